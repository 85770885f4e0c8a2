//! Lists and clears of the node's own back-off.

use std::time::Duration;

use contract::messages::backoff_tracker::{BackoffEntry, EntryKind, KeyParts, LocalKey};
use image::Reference;

use super::causes::Cause;
use super::delays::milliseconds;
use super::tracker::Tracker;

impl Tracker {
    /// Forgets a key as listed, or all keys of an image; returns the forgotten keys as listed.
    pub(super) fn clear_named(&mut self, now: Duration, what: &str) -> Vec<String> {
        let keys = keys_named(self, what, now);
        keys.iter().for_each(|key| self.clear(key));
        keys.iter().map(in_words).collect()
    }
}

/// Keys as they are listed. `decided` returns how long entries refuse a pull that failed by a cause, if the fleet decides that.
pub(crate) fn own<'a>(
    tracker: &Tracker,
    keys: impl Iterator<Item = (&'a LocalKey, Option<&'a Cause>)>,
    now: Duration,
    decided: impl Fn(&Cause) -> Option<Duration>,
) -> impl Iterator<Item = BackoffEntry> {
    keys.map(move |(key, cause)| {
        let left = cause.and_then(&decided).or_else(|| tracker.held(now, key));
        let ago =
            cause.map(|cause| u64::try_from(now.saturating_sub(cause.failure.at).as_millis()).unwrap_or(u64::MAX)).unwrap_or_default();
        BackoffEntry {
            key: in_words(key),
            key_parts: key_parts(key),
            class: cause.map(|cause| cause.failure.class).unwrap_or_default(),
            binds: "this node".to_owned(),
            reporter_count: 1,
            step: 1,
            since_ms: ago,
            last_ms_ago: ago,
            next_attempt_ms: left.map(milliseconds).unwrap_or_default(),
            cause: cause.map(|cause| cause.failure.cause.clone()).unwrap_or_default(),
            trace: cause.and_then(|cause| cause.failure.trace),
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

/// The keys of an image that failed up to `before`.
pub(crate) fn keys_of_image(tracker: &Tracker, image: &str, before: Duration) -> Vec<LocalKey> {
    let of_image = tracker.known().filter(|(key, _)| is_of_image(&key.image, image));
    of_image.filter(|(_, cause)| cause.is_none_or(|cause| cause.failure.at <= before)).map(|(key, _)| key.clone()).collect()
}

/// The keys that `what` names: one as it is listed, or all of an image.
pub(crate) fn keys_named(tracker: &Tracker, what: &str, now: Duration) -> Vec<LocalKey> {
    let listed = tracker.known().map(|(key, _)| key).find(|key| in_words(key) == what).cloned();
    let image = Reference::parse(what).map_or_else(|_| what.to_owned(), |reference| reference.normalised().to_owned());
    let mut keys = keys_of_image(tracker, &image, now);
    keys.extend(listed);
    keys.sort_unstable();
    keys.dedup();
    keys
}
