//! The newest events in order, each once, for `list`.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use contract::messages::event_recorder::{EventList, ListEvents};
use contract::{EventReason, MessageId, PullEvent};

/// How many events a node keeps by default.
pub const KEEP_DEFAULT: usize = 1_000;
/// The most bytes of text in one page of a list: with its encoding a page must fit into one bus message (1 MiB).
const PAGE_BYTES: usize = 512 * 1024;
/// The most bytes of text in an event, so that a page fits into a message. The coordinator's events have less than half: a runtime's text
/// of 64 KiB and the image's name.
pub const EVENT_MAX_BYTES: usize = 256 * 1024;
/// The most events in one page.
const PAGE_EVENTS: usize = 500;
/// How many of the newest events are searched for a duplicate, which comes soon after the first.
const DUPLICATES_WITHIN: usize = 64;
/// Roughly the bytes of an event besides its texts: ids, names and field names.
pub const EVENT_OVERHEAD_BYTES: usize = 512;

/// The newest events of a node.
#[derive(Debug)]
pub struct Journal {
    keep: usize,
    events: VecDeque<Arc<PullEvent>>,
    /// The ids of the newest events, in one place because each new event is compared with all.
    newest: VecDeque<MessageId>,
    /// The highest number of an event. Events come in the order of their numbers, and those of a failed write come again with each retry.
    last_number: u64,
    recorded: u64,
}

impl Journal {
    /// Keeps the newest `keep` events.
    #[must_use]
    pub fn keeping(keep: usize) -> Self {
        Self { keep, events: VecDeque::new(), newest: VecDeque::with_capacity(DUPLICATES_WITHIN), last_number: 0, recorded: 0 }
    }

    /// Adds an event unless it is a duplicate; returns whether it was added.
    pub fn record(&mut self, event: impl Into<Arc<PullEvent>>) -> bool {
        let event = event.into();
        let number = number_of(&event);
        if self.newest.contains(&event.id) || number.is_some_and(|number| number <= self.last_number) {
            return false;
        }
        self.last_number = number.unwrap_or(self.last_number);
        if self.newest.len() == DUPLICATES_WITHIN {
            self.newest.pop_front();
        }
        self.newest.push_back(event.id);
        self.recorded += 1;
        self.events.push_back(event);
        while self.events.len() > self.keep {
            self.events.pop_front();
        }
        self.assert_invariants();
        true
    }

    /// Whether no recent event has this id.
    #[must_use]
    pub fn is_new(&self, id: MessageId) -> bool {
        !self.newest.contains(&id)
    }

    fn assert_invariants(&self) {
        debug_assert!(self.events.len() <= self.keep, "{} events are kept of {}", self.events.len(), self.keep);
        debug_assert!(self.newest.len() <= DUPLICATES_WITHIN, "{} ids are searched", self.newest.len());
        debug_assert!(self.recorded >= self.events.len() as u64, "every kept event was recorded");
    }

    /// One page of the kept events, oldest first.
    #[must_use]
    pub fn list(&self, wanted: &ListEvents) -> EventList {
        let first = self.recorded - self.events.len() as u64;
        let skip = usize::try_from(wanted.after.saturating_sub(first)).unwrap_or(usize::MAX);
        let mut page = EventList { events: Vec::new(), next_after: self.recorded, more: false };
        let mut bytes = 0;
        for (index, event) in self.events.iter().enumerate().skip(skip) {
            if !matches(event, wanted.reason, wanted.image.as_deref()) {
                continue;
            }
            bytes += EVENT_OVERHEAD_BYTES + text_bytes(event);
            if !page.events.is_empty() && (bytes > PAGE_BYTES || page.events.len() == PAGE_EVENTS) {
                page.next_after = first + index as u64;
                page.more = true;
                break;
            }
            page.events.push(PullEvent::clone(event));
        }
        page
    }

    /// One page of the events after `wanted.stored_after`: those in `loaded`, which come from the store, and kept ones that the store has
    /// deleted or could not take. `is_all`: the store has none after `loaded`.
    #[must_use]
    pub fn list_stored(&self, wanted: &ListEvents, loaded: Vec<Arc<PullEvent>>, is_all: bool) -> EventList {
        let (after, limit) = (wanted.stored_after.unwrap_or_default(), page_events(wanted));
        let until = loaded.last().filter(|_| !is_all).and_then(|last| number_of(last)).unwrap_or(u64::MAX);
        let kept = self.events.iter().filter(|event| number_of(event).is_some_and(|number| number > after && number <= until));
        let by_number: BTreeMap<u64, Arc<PullEvent>> =
            kept.cloned().chain(loaded).filter_map(|event| Some((number_of(&event)?, event))).collect();
        let mut page = EventList { events: Vec::new(), next_after: after, more: !is_all };
        let mut bytes = 0;
        for (number, event) in by_number {
            if matches(&event, wanted.reason, wanted.image.as_deref()) {
                bytes += EVENT_OVERHEAD_BYTES + text_bytes(&event);
                if !page.events.is_empty() && (bytes > PAGE_BYTES || page.events.len() == limit) {
                    page.more = true;
                    break;
                }
                page.events.push(PullEvent::clone(&event));
            }
            page.next_after = number;
        }
        page
    }

    /// How many events were recorded, and how many are kept.
    #[must_use]
    pub fn counts(&self) -> (u64, u64) {
        (self.recorded, self.events.len() as u64)
    }
}

/// The most events in the page that is asked for.
#[must_use]
pub fn page_events(wanted: &ListEvents) -> usize {
    match usize::try_from(wanted.limit) {
        Ok(limit @ 1..PAGE_EVENTS) => limit,
        _ => PAGE_EVENTS,
    }
}

fn number_of(event: &PullEvent) -> Option<u64> {
    event.sequence.as_ref().map(|sequence| sequence.number)
}

/// The bytes of an event's texts.
#[must_use]
pub fn text_bytes(event: &PullEvent) -> usize {
    let pod = event.pod.as_ref().map_or(0, |pod| pod.namespace.len() + pod.name.len() + pod.uid.len());
    event.message.len() + event.image.len() + event.registry.as_ref().map_or(0, String::len) + pod
}

fn matches(event: &PullEvent, reason: Option<EventReason>, image: Option<&str>) -> bool {
    reason.is_none_or(|reason| event.reason == reason) && image.is_none_or(|image| event.image == image)
}

#[cfg(test)]
pub(crate) mod tests {
    use clock::Random;
    use contract::TraceContext;

    use super::*;

    pub(crate) fn event(random: &mut Random, image: &str, reason: EventReason, message_bytes: usize) -> PullEvent {
        PullEvent {
            image: image.to_owned(),
            ..PullEvent::new(
                MessageId::random(random),
                0,
                "n1".parse().expect("a name"),
                reason,
                "m".repeat(message_bytes),
                TraceContext::root(random),
            )
        }
    }

    #[test]
    fn newest_events_are_kept_in_order() {
        let mut random = Random::seeded(1);
        let mut journal = Journal::keeping(3);
        for image in ["a", "b", "c", "d"] {
            assert!(journal.record(event(&mut random, image, EventReason::Pulling, 1)));
        }
        let images: Vec<_> = journal.list(&ListEvents::default()).events.into_iter().map(|event| event.image).collect();
        assert_eq!(images, ["b", "c", "d"]);
        assert_eq!(journal.counts(), (4, 3));
    }

    #[test]
    fn duplicate_event_is_added_once() {
        let mut journal = Journal::keeping(3);
        let event = event(&mut Random::seeded(1), "a", EventReason::Pulling, 1);
        assert!(journal.record(event.clone()));
        assert!(!journal.record(event));
        assert_eq!(journal.counts(), (1, 1));
    }

    fn numbered(random: &mut Random, number: u64) -> Arc<PullEvent> {
        let sequence = Some(contract::EventSequence { incarnation: "inc".to_owned(), number });
        Arc::new(PullEvent { sequence, ..event(random, &number.to_string(), EventReason::Pulled, 1) })
    }

    #[test]
    fn events_of_a_failed_write_are_added_once_however_often_it_is_repeated() {
        let mut random = Random::seeded(1);
        let mut journal = Journal::keeping(1_000);
        let mut batch: Vec<Arc<PullEvent>> = (1..=3 * DUPLICATES_WITHIN as u64).map(|number| numbered(&mut random, number)).collect();
        for _ in 0..3 {
            // Each retry also writes what has come since.
            batch.push(numbered(&mut random, batch.len() as u64 + 1));
            journal.record(event(&mut random, "present", EventReason::Pulled, 1));
            for event in &batch {
                journal.record(Arc::clone(event));
            }
        }
        let all = batch.len() as u64 + 3;
        assert_eq!(journal.counts(), (all, all));
    }

    #[test]
    fn lists_are_filtered_by_reason_image_and_position() {
        let mut random = Random::seeded(1);
        let mut journal = Journal::keeping(10);
        journal.record(event(&mut random, "a", EventReason::Pulling, 1));
        journal.record(event(&mut random, "a", EventReason::Failed, 1));
        journal.record(event(&mut random, "b", EventReason::Failed, 1));
        let count = |wanted: ListEvents| journal.list(&wanted).events.len();
        assert_eq!(count(ListEvents { reason: Some(EventReason::Failed), ..ListEvents::default() }), 2);
        assert_eq!(count(ListEvents { image: Some("a".to_owned()), ..ListEvents::default() }), 2);
        assert_eq!(count(ListEvents { reason: Some(EventReason::Failed), image: Some("b".to_owned()), ..ListEvents::default() }), 1);
        assert_eq!(count(ListEvents { after: 2, ..ListEvents::default() }), 1);
        assert_eq!(count(ListEvents { after: 99, ..ListEvents::default() }), 0);
    }

    #[test]
    fn stored_and_kept_events_are_listed_together_in_pages() {
        let mut random = Random::seeded(1);
        let stored: Vec<Arc<PullEvent>> = (1..=20).map(|number| numbered(&mut random, number)).collect();
        let mut journal = Journal::keeping(10);
        // The store could not take 18 and has deleted 12. An event without a number is not stored.
        assert!(stored.iter().all(|event| journal.record(Arc::clone(event))));
        journal.record(event(&mut random, "present", EventReason::Pulled, 1));
        let store: Vec<Arc<PullEvent>> = stored.iter().filter(|event| !["18", "12"].contains(&event.image.as_str())).cloned().collect();
        let (mut after, mut seen, mut pages) = (0, Vec::new(), 0);
        loop {
            let wanted = ListEvents { stored_after: Some(after), limit: 3, ..ListEvents::default() };
            let rest = store.iter().filter(|event| number_of(event).is_some_and(|number| number > after));
            let loaded: Vec<_> = rest.take(page_events(&wanted)).cloned().collect();
            let is_all = loaded.len() < page_events(&wanted);
            let page = journal.list_stored(&wanted, loaded, is_all);
            assert!(page.events.len() <= 3, "{}", page.events.len());
            seen.extend(page.events.into_iter().map(|event| event.image));
            (after, pages) = (page.next_after, pages + 1);
            if !page.more {
                break;
            }
        }
        assert_eq!(seen, (1..=20).map(|number: u32| number.to_string()).collect::<Vec<_>>());
        assert!(pages >= 7, "{pages}");
    }

    #[test]
    fn pages_cover_every_event_once_and_fit_a_message() {
        let mut random = Random::seeded(1);
        let mut journal = Journal::keeping(1_000);
        for number in 0..1_500 {
            journal.record(event(&mut random, &number.to_string(), EventReason::Failed, if number % 50 == 0 { 60_000 } else { 10 }));
        }
        let (mut after, mut seen, mut pages) = (0, Vec::new(), 0);
        loop {
            let page = journal.list(&ListEvents { after, ..ListEvents::default() });
            assert!(page.events.iter().map(|event| event.message.len()).sum::<usize>() <= PAGE_BYTES + 64 * 1024);
            seen.extend(page.events.into_iter().map(|event| event.image));
            after = page.next_after;
            pages += 1;
            if !page.more {
                break;
            }
        }
        let expected: Vec<String> = (500..1_500).map(|number: u32| number.to_string()).collect();
        assert_eq!(seen, expected);
        assert!(pages > 2, "{pages}");
    }
}
