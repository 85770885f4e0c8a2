//! Folding: repeats of refusals and failures become one event with a count, so that an outage of hours makes few events.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use contract::{EventReason, FailureClass, PodRef, PullEvent, Repeats};

/// How long repeats are collected after the first event of a kind.
const FOLD_AT_FIRST: Duration = Duration::from_secs(60);
/// The longest collection; each one is twice as long as the one before.
const FOLD_AT_MOST: Duration = Duration::from_secs(3_600);
/// The most kinds that are remembered; beyond it the one emitted least recently is emitted and forgotten.
const KINDS_MOST: usize = 4_096;

/// The kind of an event: events with equal keys are repeats of each other.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct FoldKey {
    image: String,
    entry: Option<String>,
    pod: Option<PodRef>,
    reason: EventReason,
    class: Option<FailureClass>,
}

impl FoldKey {
    /// The smallest key of an image; Pulling is the smallest reason.
    fn first_of(image: &str) -> Self {
        Self { image: image.to_owned(), entry: None, pod: None, reason: EventReason::Pulling, class: None }
    }
}

#[derive(Debug)]
struct Fold {
    /// The store's key for `pending`.
    id: u64,
    /// When an event of this kind was last emitted.
    emitted_at: Duration,
    /// How long repeats are collected after that.
    span: Duration,
    /// The newest repeat, with the count of repeats that it represents.
    pending: Option<PullEvent>,
}

/// The result of folding an event.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Folded {
    /// It is emitted as its own event.
    Emit(Box<PullEvent>),
    /// It is a repeat; the store keeps the repeats under this id until they are emitted.
    Keep(u64, Box<PullEvent>),
}

impl Fold {
    /// When `pending` is emitted, or when the kind is forgotten if nothing is pending.
    fn due(&self) -> Duration {
        self.emitted_at + if self.pending.is_some() { self.span } else { 2 * self.span }
    }
}

/// All remembered kinds.
#[derive(Debug, Default)]
pub(super) struct Folds {
    by_key: BTreeMap<FoldKey, Fold>,
    /// The kinds with and without a pending repeat, by due time.
    pending: BTreeSet<(Duration, FoldKey)>,
    quiet: BTreeSet<(Duration, FoldKey)>,
    last_id: u64,
}

impl Folds {
    /// Takes an event. Pending repeats that it releases are added to `released`, with their ids; they are emitted before the event.
    pub(super) fn take(&mut self, now: Duration, event: PullEvent, released: &mut Vec<(u64, PullEvent)>) -> Folded {
        match event.reason {
            EventReason::Pulled => self.end(&event.image, released, |key| key.pod == event.pod && key.entry.is_none()),
            EventReason::BackoffReleased => self.end(&event.image, released, |key| key.entry.is_some() && key.entry == event.entry),
            _ => {}
        }
        let Some(key) = key_of(&event) else { return Folded::Emit(Box::new(event)) };
        let Some(mut fold) = self.remove(&key) else {
            self.make_room(released);
            self.last_id += 1;
            self.insert(key, Fold { id: self.last_id, emitted_at: now, span: FOLD_AT_FIRST, pending: None });
            return Folded::Emit(Box::new(event));
        };
        let is_over = now >= fold.emitted_at + fold.span;
        let folded = match fold.pending.take() {
            // No repeat came during the collection, so this event is emitted to show that the failure goes on.
            None if is_over => {
                let was_quiet = now >= fold.emitted_at + 2 * fold.span;
                fold.span = if was_quiet { FOLD_AT_FIRST } else { longer(fold.span) };
                fold.emitted_at = now;
                Folded::Emit(Box::new(event))
            }
            before => {
                let repeats = before.and_then(|before| before.repeats).unwrap_or(Repeats { count: 0, first_ms: event.time_ms });
                let repeats = Repeats { count: repeats.count + 1, ..repeats };
                let event = PullEvent { repeats: Some(repeats), ..event };
                fold.pending = Some(event.clone());
                Folded::Keep(fold.id, Box::new(event))
            }
        };
        self.insert(key, fold);
        folded
    }

    /// Emits pending repeats that are due, and forgets kinds that no longer repeat.
    pub(super) fn release(&mut self, now: Duration, released: &mut Vec<(u64, PullEvent)>) {
        let due = |kinds: &BTreeSet<(Duration, FoldKey)>| -> BTreeSet<FoldKey> {
            kinds.iter().take_while(|(due, _)| *due <= now).map(|(_, key)| key.clone()).collect()
        };
        let (over, forgotten) = (due(&self.pending), due(&self.quiet));
        for key in forgotten {
            self.remove(&key);
        }
        for key in over {
            if let Some(Fold { id, span, pending: Some(event), .. }) = self.remove(&key) {
                released.push((id, event));
                self.insert(key, Fold { id, emitted_at: now, span: longer(span), pending: None });
            }
        }
    }

    /// When the next pending repeat is due.
    pub(super) fn next_due(&self) -> Option<Duration> {
        self.pending.first().map(|(due, _)| *due)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Checks that both sets by time agree with the kinds.
    #[cfg(test)]
    fn assert_found_by_time(&self) {
        let due = |is_pending: bool| self.by_key.iter().filter(move |(_, fold)| fold.pending.is_some() == is_pending);
        let by_time = |is_pending| due(is_pending).map(|(key, fold)| (fold.due(), key.clone())).collect::<BTreeSet<_>>();
        assert_eq!((&self.pending, &self.quiet), (&by_time(true), &by_time(false)));
    }

    /// Releases the pending repeats of an image that is present, or of an entry that closed; the next failure counts as the first. All
    /// events of an entry name the same image.
    fn end(&mut self, image: &str, released: &mut Vec<(u64, PullEvent)>, is_over: impl Fn(&FoldKey) -> bool) {
        let of_image = self.by_key.range(FoldKey::first_of(image)..).map(|(key, _)| key).take_while(|key| key.image == image);
        let over: Vec<FoldKey> = of_image.filter(|key| is_over(key)).cloned().collect();
        for fold in over.iter().filter_map(|key| self.remove(key)) {
            released.extend(fold.pending.map(|event| (fold.id, event)));
        }
    }

    fn make_room(&mut self, released: &mut Vec<(u64, PullEvent)>) {
        if self.by_key.len() < KINDS_MOST {
            return;
        }
        let quietest = self.by_key.iter().min_by_key(|(_, fold)| fold.emitted_at).map(|(key, _)| key.clone());
        if let Some(fold) = quietest.and_then(|key| self.remove(&key)) {
            released.extend(fold.pending.map(|event| (fold.id, event)));
        }
    }

    fn insert(&mut self, key: FoldKey, fold: Fold) {
        let by_time = if fold.pending.is_some() { &mut self.pending } else { &mut self.quiet };
        by_time.insert((fold.due(), key.clone()));
        self.by_key.insert(key, fold);
    }

    fn remove(&mut self, key: &FoldKey) -> Option<Fold> {
        let (key, fold) = self.by_key.remove_entry(key)?;
        let by_time = if fold.pending.is_some() { &mut self.pending } else { &mut self.quiet };
        by_time.remove(&(fold.due(), key));
        Some(fold)
    }
}

fn longer(span: Duration) -> Duration {
    (2 * span).min(FOLD_AT_MOST)
}

fn key_of(event: &PullEvent) -> Option<FoldKey> {
    // Not for other reasons: the entry that refuses a pull may change between repeats.
    let entry = event.entry.clone().filter(|_| event.reason == EventReason::BackoffProbed);
    let key = || FoldKey { image: event.image.clone(), entry, pod: event.pod.clone(), reason: event.reason, class: event.class };
    event.reason.is_folded().then(key)
}

#[cfg(test)]
mod tests {
    use clock::Random;

    use super::super::test_event;
    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    struct Bench {
        folds: Folds,
        random: Random,
        emitted: Vec<(u64, u64)>,
    }

    impl Bench {
        fn new() -> Self {
            Self { folds: Folds::default(), random: Random::seeded(1), emitted: Vec::new() }
        }

        fn happens(&mut self, seconds: u64, image: &str, reason: EventReason) {
            let mut released = Vec::new();
            self.folds.release(at(seconds), &mut released);
            let duration_ms = Some(1);
            let event = PullEvent { time_ms: seconds * 1_000, duration_ms, ..test_event(&mut self.random, image, reason, 0) };
            let folded = self.folds.take(at(seconds), event, &mut released);
            self.note(seconds, released);
            if let Folded::Emit(event) = folded {
                self.note(seconds, vec![(0, *event)]);
            }
        }

        fn passes(&mut self, seconds: u64) {
            let mut released = Vec::new();
            self.folds.release(at(seconds), &mut released);
            self.note(seconds, released);
        }

        fn note(&mut self, seconds: u64, released: Vec<(u64, PullEvent)>) {
            self.folds.assert_found_by_time();
            self.emitted.extend(released.iter().map(|(_, event)| (seconds, event.repeats.map_or(1, |repeats| repeats.count))));
        }
    }

    #[test]
    fn failure_of_hours_makes_few_events_with_the_full_count() {
        let mut bench = Bench::new();
        for minute in 0..8 * 60 {
            bench.happens(60 * minute + 1, "a", EventReason::Failed);
            bench.happens(60 * minute + 31, "a", EventReason::Failed);
        }
        bench.passes(24 * 3_600);
        assert_eq!(bench.emitted.iter().map(|(_, count)| count).sum::<u64>(), 960);
        assert!(bench.emitted.len() <= 16, "{:?}", bench.emitted);
        assert_eq!(bench.emitted[0], (1, 1), "the first is emitted at once");
        bench.passes(48 * 3_600);
        assert_eq!(bench.folds.len(), 0, "a kind without repeats is forgotten");
    }

    #[test]
    fn reasons_and_images_fold_separately_and_pulling_and_pulled_never() {
        let mut bench = Bench::new();
        for second in 0..10 {
            for (image, reason) in [("a", EventReason::BackOff), ("a", EventReason::Failed), ("b", EventReason::Failed)] {
                bench.happens(second, image, reason);
            }
            bench.happens(second, "c", EventReason::Pulling);
            bench.happens(second, "c", EventReason::Pulled);
        }
        assert_eq!(bench.emitted.len(), 3 + 20);
    }

    #[test]
    fn success_releases_pending_repeats() {
        let mut bench = Bench::new();
        for second in 0..5 {
            bench.happens(second, "a", EventReason::Failed);
        }
        bench.happens(6, "a", EventReason::Pulled);
        bench.happens(7, "a", EventReason::Failed);
        assert_eq!(bench.emitted, [(0, 1), (6, 4), (6, 1), (7, 1)]);
    }

    #[test]
    fn probes_of_an_entry_fold_until_its_release() {
        let mut bench = Bench::new();
        let probed = |bench: &mut Bench, seconds: u64, reason: EventReason, entry: &str| {
            let event = PullEvent { entry: Some(entry.to_owned()), ..test_event(&mut bench.random, "", reason, 0) };
            let mut released = Vec::new();
            let folded = bench.folds.take(at(seconds), event, &mut released);
            bench.note(seconds, released);
            if let Folded::Emit(event) = folded {
                bench.note(seconds, vec![(0, *event)]);
            }
        };
        for second in 0..5 {
            probed(&mut bench, second, EventReason::BackoffProbed, "a");
        }
        probed(&mut bench, 5, EventReason::BackoffProbed, "b");
        probed(&mut bench, 6, EventReason::BackoffReleased, "a");
        assert_eq!(bench.emitted, [(0, 1), (5, 1), (6, 4), (6, 1)]);
    }

    #[test]
    fn kinds_beyond_the_bound_are_emitted_and_not_lost() {
        let mut bench = Bench::new();
        for _ in 0..2 {
            for number in 0..KINDS_MOST + 10 {
                bench.happens(1, &number.to_string(), EventReason::Failed);
            }
        }
        bench.passes(1_000);
        assert_eq!(bench.emitted.iter().map(|(_, count)| count).sum::<u64>(), 2 * (KINDS_MOST as u64 + 10));
        assert!(bench.folds.len() <= KINDS_MOST);
    }
}
