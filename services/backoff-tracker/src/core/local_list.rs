//! Lists and clears of the node's own back-off.

use std::time::Duration;

use contract::messages::backoff_tracker::{BackoffEntry, EntryKind, KeyParts, LocalKey};
use image::Reference;

use super::delays::milliseconds;
use super::failed_keys::FailedKey;
use super::tracker::Tracker;

impl Tracker {
    /// Forgets a key as listed, or all keys of an image; returns the forgotten keys as listed.
    pub(super) fn clear_named(&mut self, now: Duration, what: &str) -> Vec<String> {
        let image = Reference::parse(what).map_or_else(|_| what.to_owned(), |reference| reference.normalised().to_owned());
        let cleared = self.clear_all(now, |key, _| is_of_image(&key.image, &image) || in_words(key) == what);
        cleared.iter().map(in_words).collect()
    }
}

/// Keys as they are listed. `decided` returns how long entries refuse a pull that has failed so, if the fleet decides that.
pub(crate) fn own<'a>(
    tracker: &Tracker,
    keys: impl Iterator<Item = (&'a LocalKey, Option<&'a FailedKey>)>,
    now: Duration,
    decided: impl Fn(&FailedKey) -> Option<Duration>,
) -> impl Iterator<Item = BackoffEntry> {
    keys.map(move |(key, failed)| {
        let left = failed.and_then(&decided).or_else(|| tracker.held(now, key));
        let failure = failed.map(|failed| &failed.failure);
        let ago = failure.map(|failure| u64::try_from(now.saturating_sub(failure.at).as_millis()).unwrap_or(u64::MAX)).unwrap_or_default();
        BackoffEntry {
            key: in_words(key),
            key_parts: key_parts(key),
            class: failure.map(|failure| failure.class).unwrap_or_default(),
            binds: "this node".to_owned(),
            reporter_count: 1,
            step: 1,
            since_ms: ago,
            last_ms_ago: ago,
            next_attempt_ms: left.map(milliseconds).unwrap_or_default(),
            cause: failure.map(|failure| failure.cause.clone()).unwrap_or_default(),
            trace: failure.and_then(|failure| failure.trace),
            ..BackoffEntry::default()
        }
    })
}

fn key_parts(key: &LocalKey) -> KeyParts {
    let registry = Reference::parse(&key.image).map(|image| image.registry().to_owned()).unwrap_or_default();
    KeyParts { image: key.image.clone(), pod: key.pod.clone(), ..KeyParts::of(EntryKind::NodeImage, &registry) }
}

/// A key as it is listed: the image, for a pod `namespace/name image`.
pub(crate) fn in_words(key: &LocalKey) -> String {
    key.pod.as_ref().map_or_else(|| key.image.clone(), |pod| format!("{pod} {}", key.image))
}

/// Whether `asked` names the normalised `image`.
pub(crate) fn is_of_image(asked: &str, image: &str) -> bool {
    asked == image || Reference::parse(asked).is_ok_and(|reference| reference.normalised() == image)
}
