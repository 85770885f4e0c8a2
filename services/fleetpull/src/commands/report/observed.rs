//! What `fleet.share = enforce` would have refused: attempts that began while a back-off entry said that nobody tries yet.

use std::collections::{BTreeMap, VecDeque};

use contract::EventReason;

use super::seen::Seen;

/// Spans of one image or registry that are remembered: attempts that began long ago have ended long ago.
const SPANS_MOST: usize = 16;
/// Images and registries with spans, and entries; of more those that end first are forgotten.
const KNOWN_MOST: usize = 20_000;

/// What an entry holds back.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Held {
    Image(String),
    Registry(String),
}

/// An entry says that nobody tries until a time. Times are in milliseconds since 1970.
#[derive(Clone, Debug)]
struct Span {
    /// Who said so.
    node: String,
    class: Option<String>,
    /// Since when it refuses others: what one node alone reports refuses nobody.
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

    /// A second node fails likewise.
    fn hear_of_failure(&mut self, seen: &Seen) {
        let confirms = seen.node != self.node && seen.class == self.class && seen.first_ms < self.until_ms;
        if confirms && self.confirmed_ms.is_none() {
            self.confirmed_ms = Some(seen.first_ms);
        }
    }
}

/// Attempts against entries.
#[derive(Debug, Default)]
pub(super) struct Observed {
    spans: BTreeMap<Held, VecDeque<Span>>,
    entries: BTreeMap<String, Held>,
    /// Attempts that would have been refused rightly: they failed.
    pub(super) failed: u64,
    /// Wrongly: the image was pulled.
    pub(super) pulled: u64,
    /// Entries whose extent events tell.
    pub(super) entries_compared: u64,
    /// Entries of a repository or login alone.
    pub(super) entries_not_compared: u64,
}

impl Observed {
    /// An event about an entry.
    pub(super) fn entry(&mut self, seen: &Seen) {
        let Some(entry) = &seen.entry else { return };
        let held = match (seen.reason, &seen.image, &seen.registry) {
            (_, Some(image), _) => Held::Image(normalised(image)),
            (EventReason::RegistryUnavailable | EventReason::RegistryRecovered, None, Some(registry)) => Held::Registry(registry.clone()),
            // An entry that has no image is of a registry if another event says so.
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
                    // It was counted when it was opened.
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

    /// An attempt that ended.
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

/// The reference by which entries name an image: two spellings of one image are the same.
fn normalised(image: &str) -> String {
    image::Reference::parse(image).map_or_else(|_| image.to_owned(), |reference| reference.normalised().to_owned())
}
