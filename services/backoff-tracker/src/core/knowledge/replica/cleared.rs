//! What operators cleared, and when: failures from before do not count.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Replica;
use crate::core::knowledge::backoff_key::{BackoffKey, BackoffKeyId};
use crate::core::knowledge::report::MAX_MESSAGE_BYTES;
use crate::core::remove_least;

/// How many cleared keys and images are remembered, for as long as reports are kept. For one more the oldest is forgotten.
const MAX_CLEARED: usize = 4_096;

impl Replica {
    /// An operator cleared a key at `date`. Returns whether that is new.
    pub(in crate::core::knowledge) fn clear(&mut self, backoff_key: BackoffKeyId, date: Duration) -> bool {
        if let Some(reports) = self.backoff_keys.get_mut(&backoff_key) {
            reports.forget_entry();
        }
        remember(&mut self.cleared, backoff_key, date)
    }

    /// An operator cleared an image at `date`. The known keys of the image are cleared separately.
    pub(in crate::core::knowledge) fn clear_image(&mut self, image: &str, date: Duration) {
        // A longer name is no image, but costs memory.
        if image.len() <= MAX_MESSAGE_BYTES {
            remember(&mut self.cleared_images, image.to_owned(), date);
        }
    }

    pub(super) fn cleared_at(&self, backoff_key: &BackoffKey) -> Option<Duration> {
        let image = backoff_key.in_view().reference();
        self.cleared.get(&backoff_key.id()).max(image.and_then(|image| self.cleared_images.get(image))).copied()
    }
}

/// Remembers when something was cleared. Returns whether that is new.
fn remember<What: Ord + Clone>(cleared: &mut BTreeMap<What, Duration>, what: What, date: Duration) -> bool {
    if cleared.get(&what).is_some_and(|known| *known >= date) {
        return false;
    }
    cleared.insert(what, date);
    if cleared.len() > MAX_CLEARED {
        remove_least(cleared, |date| *date);
    }
    true
}
