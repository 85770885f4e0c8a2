//! Counts the attempts that `fleet.share = enforce` would have refused: those that began while a back-off entry was open.

use std::collections::{BTreeMap, VecDeque};

use contract::EventReason;

use super::seen::Seen;

/// Spans that are remembered for an image or registry. Attempts do not last long enough to need older ones.
const SPANS_MOST: usize = 16;
/// Images and registries with spans, and entries, that are remembered. At this number the spans that end first are dropped, or all entries.
const KNOWN_MOST: usize = 20_000;

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
    fn of(seen: &Seen) -> Self {
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
    fn hear_of_failure(&mut self, seen: &Seen) {
        let confirms = seen.node != self.node && seen.class == self.class && seen.first_ms < self.until_ms;
        if confirms && self.confirmed_ms.is_none() {
            self.confirmed_ms = Some(seen.first_ms);
        }
    }
}

/// Compares attempts with entries.
#[derive(Debug, Default)]
pub(super) struct Observed {
    spans: BTreeMap<Held, VecDeque<Span>>,
    entries: BTreeMap<String, Held>,
    /// Attempts that would have been refused rightly, because they failed.
    pub(super) failed: u64,
    /// Attempts that would have been refused wrongly, because the image was pulled.
    pub(super) pulled: u64,
    /// Entries for which events say which attempts they concern.
    pub(super) entries_compared: u64,
    /// Entries about a repository or a login, for which events do not say it.
    pub(super) entries_not_compared: u64,
}

impl Observed {
    /// Takes an event about an entry.
    pub(super) fn entry(&mut self, seen: &Seen) {
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
                if !self.entries.contains_key(entry) {
                    self.entries_compared += 1;
                    // The entry was counted when it was opened.
                    let was_counted = seen.reason == EventReason::RegistryUnavailable;
                    self.entries_not_compared = self.entries_not_compared.saturating_sub(u64::from(was_counted));
                }
                self.make_room();
                self.entries.insert(entry.clone(), held.clone());
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
    pub(super) fn attempt(&mut self, seen: &Seen) {
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
                self.spans.get_mut(key).into_iter().flatten().for_each(|span| span.hear_of_failure(seen));
            }
        }
        match seen.reason {
            EventReason::Pulled => self.pulled = self.pulled.saturating_add(count),
            _ => self.failed = self.failed.saturating_add(count),
        }
    }

    fn make_room(&mut self) {
        if self.entries.len() >= KNOWN_MOST {
            self.entries.clear();
        }
        if self.spans.len() >= KNOWN_MOST {
            let last = |spans: &VecDeque<Span>| spans.iter().map(|span| span.until_ms).max().unwrap_or_default();
            let mut ends: Vec<u64> = self.spans.values().map(last).collect();
            ends.sort_unstable();
            let newest = ends.get(KNOWN_MOST / 2).copied().unwrap_or_default();
            self.spans.retain(|_, spans| last(spans) > newest);
        }
    }
}

/// The reference in the form that entries use. All spellings of an image have the same form.
fn normalised(image: &str) -> String {
    image::Reference::parse(image).map_or_else(|_| image.to_owned(), |reference| reference.normalised().to_owned())
}
