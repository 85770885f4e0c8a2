//! Operators' clears.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::time::Duration;

use contract::know::MAX_KEYS_CLEARED;
use contract::messages::backoff_tracker::EntryQuery;
use image::Reference;

use super::backoff_key::BackoffKeyId;
use super::lease::RequestId;
use super::list::{in_words, is_of_image};
use super::node::Knowledge;
use super::request::{Request, State};

/// What a clear applies to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Clearing {
    /// The image, normalised, if one is cleared.
    pub image: Option<String>,
    /// Back-off keys.
    pub backoff_keys: Vec<BackoffKeyId>,
}

impl Knowledge {
    /// An operator clears a key as listed, or an image, on this node. Returns what was cleared as text, and what the clear applies to on
    /// other nodes; none if the text is neither.
    pub(super) fn clear(&mut self, now: Duration, what: &str) -> (Vec<String>, Option<Clearing>) {
        let clearing = self.to_clear(now, what);
        let mut cleared = Vec::new();
        if let Some(Clearing { image, backoff_keys }) = &clearing {
            cleared = self.would_clear(now, image.as_deref(), backoff_keys);
            self.cleared(now, image.as_deref(), backoff_keys.clone(), Duration::ZERO);
        }
        (cleared, clearing)
    }

    /// What a clear applies to: of an image all its listed entries, and of the key of a pod its image.
    fn to_clear(&self, now: Duration, what: &str) -> Option<Clearing> {
        if let Some(backoff_key) = BackoffKeyId::parse(what).filter(|backoff_key| self.backoff_key(*backoff_key).is_some()) {
            return Some(Clearing { image: None, backoff_keys: vec![backoff_key] });
        }
        // Other nodes may refuse an image that this node knows nothing about.
        let name = what.rsplit(' ').next().unwrap_or(what);
        let image = Reference::parse(name).ok()?.normalised().to_owned();
        let entry_query = EntryQuery::of(name);
        let mut named = self.entries(now);
        named.retain(|entry| entry_query.names(&self.listed(now, entry)));
        named.sort_by_key(|entry| (!entry.refuses_all, Reverse(entry.next_attempt)));
        named.truncate(MAX_KEYS_CLEARED);
        let of_image = self
            .replica
            .backoff_keys_of_image(&image)
            .into_iter()
            .filter(|backoff_key| named.iter().all(|entry| entry.backoff_key.id() != *backoff_key));
        let mut backoff_keys: Vec<BackoffKeyId> = named.iter().map(|entry| entry.backoff_key.id()).chain(of_image).collect();
        backoff_keys.truncate(MAX_KEYS_CLEARED);
        Some(Clearing { image: Some(image), backoff_keys })
    }

    /// The failures that a clear would remove, as text.
    fn would_clear(&self, now: Duration, image: Option<&str>, backoff_keys: &[BackoffKeyId]) -> Vec<String> {
        let shared = backoff_keys.iter().filter_map(|backoff_key| self.entry(now, *backoff_key)).map(|entry| entry.backoff_key.in_words());
        let own = self.failed_keys.held_ones().filter(|(key, _)| image.is_some_and(|image| is_of_image(&key.image, image)));
        shared.chain(own.map(|(key, _)| in_words(key))).collect()
    }

    /// Applies a clear: failures of attempts that began before it do not count any more.
    pub(super) fn cleared(&mut self, now: Duration, image: Option<&str>, backoff_keys: Vec<BackoffKeyId>, age: Duration) {
        let date = now.saturating_sub(age);
        let mut backoff_keys: BTreeSet<BackoffKeyId> = backoff_keys.into_iter().collect();
        if let Some(image) = image {
            backoff_keys.extend(self.replica.backoff_keys_of_image(image));
            self.replica.clear_image(image, date);
        }
        // Otherwise this node itself would still refuse what failed by these keys.
        self.failed_keys.clear_all(date, |key, failed| {
            image.is_some_and(|image| is_of_image(&key.image, image))
                || failed.backoff_keys.iter().any(|backoff_key| backoff_keys.contains(&backoff_key.id()))
        });
        self.retry_pauses.clear(|backoff_key| backoff_keys.contains(backoff_key));
        let news: Vec<BackoffKeyId> = backoff_keys.iter().filter(|backoff_key| self.replica.clear(**backoff_key, date)).copied().collect();
        news.iter().for_each(|backoff_key| self.openings.forget(*backoff_key));
        self.counts.cleared_total += u64::from(!news.is_empty() || image.is_some());
        let touched = |request: &Request| {
            Some(request.target_keys.target.reference.as_str()) == image
                || backoff_keys.iter().any(|backoff_key| request.target_keys.touches(*backoff_key))
        };
        let ids: Vec<RequestId> = self.requests.iter().filter(|(_, request)| touched(request)).map(|(id, _)| id).collect();
        for id in &ids {
            self.requests.change(*id, |request| {
                if matches!(request.state, State::Fresh) {
                    // It continues in its turn, like other released requests.
                    request.state = State::Delayed;
                }
            });
        }
        self.touched.extend(ids);
    }
}
