//! Failure spans: from the first failure or refusal of an image for a pod on a node until the failure ends.

use std::collections::BTreeMap;

use super::event_fields::EventFields;
use super::kubelet;

/// Spans that are open at the same time. Beyond that the oldest are ended.
const OPEN_MOST: usize = 50_000;

/// The key of kubelet's back-off: node, pod and image.
pub(super) type Key = (String, Option<String>, String);

/// None if the event is not about an image.
pub(super) fn key_of(seen: &EventFields) -> Option<Key> {
    Some((seen.node.clone(), seen.pod.clone(), seen.image.clone()?))
}

#[derive(Clone, Debug)]
struct Open {
    first_ms: u64,
    last_ms: u64,
    made: u64,
    registry: Option<String>,
}

/// An ended span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ended {
    pub(super) key: Key,
    pub(super) registry: Option<String>,
    /// The attempts that kubelet's rule makes in the span.
    pub(super) by_rule: u64,
    /// The failing attempts that were made in the span.
    pub(super) made: u64,
}

impl Open {
    fn end(self, key: Key, at_ms: u64) -> Ended {
        let by_rule = kubelet::attempts_within(at_ms.saturating_sub(self.first_ms));
        Ended { key, registry: self.registry, by_rule, made: self.made }
    }
}

/// The open spans.
#[derive(Debug, Default)]
pub(super) struct Spans {
    open: BTreeMap<Key, Open>,
    /// Spans that were ended early to limit memory.
    pub(super) cut: u64,
}

impl Spans {
    /// Takes a failure or refusal, with the number of attempts made for it.
    pub(super) fn refused(&mut self, key: Key, seen: &EventFields, made: u64, ended: &mut Vec<Ended>) {
        let fresh = Open { first_ms: seen.first_ms, last_ms: seen.at_ms, made, registry: seen.registry.clone() };
        match self.open.get_mut(&key) {
            Some(open) if seen.first_ms <= open.last_ms.saturating_add(kubelet::FORGOTTEN_AFTER_MS) => {
                open.first_ms = open.first_ms.min(seen.first_ms);
                open.last_ms = open.last_ms.max(seen.at_ms);
                open.made = open.made.saturating_add(made);
            }
            Some(open) => {
                let over = std::mem::replace(open, fresh);
                let last_ms = over.last_ms;
                ended.push(over.end(key, last_ms));
            }
            None => {
                self.make_room(seen.at_ms, ended);
                self.open.insert(key, fresh);
            }
        }
    }

    /// Takes a successful pull. Returns how long failures delayed it, if any did.
    pub(super) fn pulled(&mut self, key: Key, at_ms: u64, ended: &mut Vec<Ended>) -> Option<u64> {
        let open = self.open.remove(&key)?;
        let (first_ms, last_ms) = (open.first_ms, open.last_ms);
        let is_its_end = at_ms <= last_ms.saturating_add(kubelet::FORGOTTEN_AFTER_MS);
        ended.push(open.end(key, if is_its_end { at_ms } else { last_ms }));
        is_its_end.then(|| at_ms.saturating_sub(first_ms))
    }

    /// Ends all open spans at their last event.
    pub(super) fn end(&mut self, ended: &mut Vec<Ended>) {
        for (key, open) in std::mem::take(&mut self.open) {
            let last_ms = open.last_ms;
            ended.push(open.end(key, last_ms));
        }
    }

    fn make_room(&mut self, now_ms: u64, ended: &mut Vec<Ended>) {
        if self.open.len() < OPEN_MOST {
            return;
        }
        self.end_before(now_ms.saturating_sub(kubelet::FORGOTTEN_AFTER_MS), ended);
        if self.open.len() < OPEN_MOST {
            return;
        }
        let mut lasts: Vec<u64> = self.open.values().map(|open| open.last_ms).collect();
        lasts.sort_unstable();
        let before = ended.len();
        self.end_before(lasts.get(OPEN_MOST / 2).map_or(u64::MAX, |last| last.saturating_add(1)), ended);
        self.cut += (ended.len() - before) as u64;
    }

    /// Ends the spans whose last event is before this time.
    fn end_before(&mut self, time_ms: u64, ended: &mut Vec<Ended>) {
        let (over, open) = std::mem::take(&mut self.open).into_iter().partition(|(_, open)| open.last_ms < time_ms);
        self.open = open;
        let over: BTreeMap<Key, Open> = over;
        for (key, open) in over {
            let last_ms = open.last_ms;
            ended.push(open.end(key, last_ms));
        }
    }
}
