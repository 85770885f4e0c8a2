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

/// Nobody tries from one time to another, both in milliseconds since 1970.
#[derive(Clone, Copy, Debug)]
struct Span {
    from_ms: u64,
    until_ms: u64,
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
                let until_ms = seen.at_ms.saturating_add(seen.next_try_ms.unwrap_or_default());
                let spans = self.spans.entry(held).or_default();
                spans.push_back(Span { from_ms: seen.first_ms, until_ms });
                if spans.len() > SPANS_MOST {
                    spans.pop_front();
                }
            }
            _ => {
                self.entries.remove(entry);
                for span in self.spans.get_mut(&held).into_iter().flatten() {
                    span.until_ms = span.until_ms.min(seen.at_ms.max(span.from_ms));
                }
            }
        }
    }

    /// An attempt that ended.
    pub(super) fn attempt(&mut self, seen: &Seen) {
        let Some(duration_ms) = seen.duration_ms else { return };
        let image = seen.image.as_deref().map(|image| Held::Image(normalised(image)));
        let registry = seen.registry.clone().map(Held::Registry);
        let spans: Vec<Span> = image.iter().chain(&registry).filter_map(|held| self.spans.get(held)).flatten().copied().collect();
        if spans.is_empty() {
            return;
        }
        let began_within = |began_ms: u64| spans.iter().any(|span| span.from_ms < began_ms && began_ms < span.until_ms);
        let held = seen.times().filter(|(at_ms, _)| began_within(at_ms.saturating_sub(duration_ms)));
        let count = held.map(|(_, times)| times).sum::<u64>();
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
