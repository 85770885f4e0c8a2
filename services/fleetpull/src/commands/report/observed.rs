//! Counts the attempts that `fleet.share = enforce` would have refused: those that began while a back-off entry was open.

use std::collections::{BTreeMap, VecDeque};

use contract::EventReason;

use super::event_fields::EventFields;

/// Spans that are remembered for an image or registry. Attempts do not last long enough to need older ones.
const SPANS_MOST: usize = 16;
/// Images and registries with spans, and entries, that are remembered. Beyond that the oldest entry is forgotten, or half of the images and
/// registries: those whose spans end first.
pub(super) const KNOWN_MOST: usize = 20_000;

/// The image or registry that an entry is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Held {
    Image(String),
    Registry(String),
}

/// The time during which an entry is open. Times are in milliseconds since 1970-01-01.
#[derive(Clone, Debug)]
struct Span {
    /// The node that reported it.
    node: String,
    class: Option<String>,
    /// When the entry was corroborated. An unconfirmed entry refuses no attempt.
    confirmed_ms: Option<u64>,
    until_ms: u64,
}

impl Span {
    fn of(seen: &EventFields) -> Self {
        Self {
            node: seen.node.clone(),
            class: seen.class.clone(),
            confirmed_ms: seen.reporters.is_some_and(|reporters| reporters > 1).then_some(seen.first_ms),
            until_ms: seen.at_ms.saturating_add(seen.next_attempt_ms.unwrap_or_default()),
        }
    }

    fn refuses(&self, began_ms: u64) -> bool {
        self.confirmed_ms.is_some_and(|confirmed| confirmed < began_ms) && began_ms < self.until_ms
    }

    /// Takes a failed attempt: the same failure on a second node corroborates the entry.
    fn add_failure(&mut self, seen: &EventFields) {
        let confirms = seen.node != self.node && seen.class == self.class && seen.first_ms < self.until_ms;
        if confirms && self.confirmed_ms.is_none() {
            self.confirmed_ms = Some(seen.first_ms);
        }
    }
}

/// What entries are about, until they are released.
#[derive(Debug, Default)]
struct Entries {
    /// Each with the number of its last event.
    known: BTreeMap<String, (u64, Held)>,
    by_number: BTreeMap<u64, String>,
    events: u64,
}

impl Entries {
    fn get(&self, entry: &str) -> Option<&Held> {
        self.known.get(entry).map(|(_, held)| held)
    }

    fn insert(&mut self, entry: &str, held: Held) {
        self.remove(entry);
        self.events += 1;
        self.by_number.insert(self.events, entry.to_owned());
        self.known.insert(entry.to_owned(), (self.events, held));
    }

    fn remove(&mut self, entry: &str) {
        if let Some((number, _)) = self.known.remove(entry) {
            self.by_number.remove(&number);
        }
    }

    /// Forgets the entry whose last event is the oldest, if there are too many; returns whether it did.
    fn forget_oldest(&mut self) -> bool {
        if self.known.len() <= KNOWN_MOST {
            return false;
        }
        self.by_number.pop_first().is_some_and(|(_, oldest)| self.known.remove(&oldest).is_some())
    }
}

/// Compares attempts with entries.
#[derive(Debug, Default)]
pub(super) struct Observed {
    spans: BTreeMap<Held, VecDeque<Span>>,
    entries: Entries,
    /// Attempts that would have been refused rightly, because they failed.
    pub(super) failed: u64,
    /// Attempts that would have been refused wrongly, because the image was pulled.
    pub(super) pulled: u64,
    /// Entries for which events say which attempts they concern.
    pub(super) entries_compared: u64,
    /// Entries about a repository or a login, for which events do not say it.
    pub(super) entries_not_compared: u64,
    /// Entries, and images and registries with an open one, that were forgotten early to limit memory.
    pub(super) cut: u64,
}

impl Observed {
    /// Takes an event about an entry.
    pub(super) fn entry(&mut self, seen: &EventFields) {
        let Some(entry) = &seen.entry else { return };
        let held = match (seen.reason, &seen.image, &seen.registry) {
            (_, Some(image), _) => Held::Image(normalised(image)),
            (EventReason::RegistryUnavailable | EventReason::RegistryRecovered, None, Some(registry)) => Held::Registry(registry.clone()),
            // An entry without an image concerns the whole registry if another event says so.
            _ => match self.entries.get(entry) {
                Some(held) => held.clone(),
                None => {
                    self.entries_not_compared += u64::from(seen.reason == EventReason::BackoffOpened);
                    return;
                }
            },
        };
        match seen.reason {
            EventReason::BackoffOpened | EventReason::RegistryUnavailable | EventReason::BackoffProbed => {
                if self.entries.get(entry).is_none() {
                    self.entries_compared += 1;
                    // The entry was counted when it was opened.
                    let was_counted = seen.reason == EventReason::RegistryUnavailable;
                    self.entries_not_compared = self.entries_not_compared.saturating_sub(u64::from(was_counted));
                }
                self.entries.insert(entry, held.clone());
                self.cut += u64::from(self.entries.forget_oldest());
                self.make_room(&held, seen.at_ms);
                let spans = self.spans.entry(held).or_default();
                spans.push_back(Span::of(seen));
                if spans.len() > SPANS_MOST {
                    spans.pop_front();
                }
            }
            _ => {
                self.entries.remove(entry);
                for span in self.spans.get_mut(&held).into_iter().flatten() {
                    span.until_ms = span.until_ms.min(seen.at_ms);
                }
            }
        }
    }

    /// Takes a completed attempt.
    pub(super) fn attempt(&mut self, seen: &EventFields) {
        let Some(duration_ms) = seen.duration_ms else { return };
        let keys = [seen.image.as_deref().map(|image| Held::Image(normalised(image))), seen.registry.clone().map(Held::Registry)];
        let mut count = 0_u64;
        for (at_ms, times) in seen.times() {
            let began_ms = at_ms.saturating_sub(duration_ms);
            let mut spans = keys.iter().flatten().filter_map(|key| self.spans.get(key)).flatten();
            if spans.any(|span| span.refuses(began_ms)) {
                count = count.saturating_add(times);
            }
        }
        if seen.reason == EventReason::Failed {
            for key in keys.iter().flatten() {
                self.spans.get_mut(key).into_iter().flatten().for_each(|span| span.add_failure(seen));
            }
        }
        match seen.reason {
            EventReason::Pulled => self.pulled = self.pulled.saturating_add(count),
            _ => self.failed = self.failed.saturating_add(count),
        }
    }

    /// Makes room for the spans of one more image or registry.
    fn make_room(&mut self, held: &Held, now_ms: u64) {
        if self.spans.len() < KNOWN_MOST || self.spans.contains_key(held) {
            return;
        }
        let last = |spans: &VecDeque<Span>| spans.iter().map(|span| span.until_ms).max().unwrap_or_default();
        let mut by_end: Vec<(u64, Held)> = self.spans.iter().map(|(held, spans)| (last(spans), held.clone())).collect();
        by_end.sort_unstable();
        for (until_ms, held) in by_end.into_iter().take(KNOWN_MOST / 2) {
            self.spans.remove(&held);
            self.cut += u64::from(now_ms < until_ms);
        }
    }
}

/// The reference in the form that entries use. All spellings of an image have the same form.
fn normalised(image: &str) -> String {
    image::Reference::parse(image).map_or_else(|_| image.to_owned(), |reference| reference.normalised().to_owned())
}
