//! Decides which nodes a message of the server can concern.
//!
//! If each node wants an image of its own, each publishes that its image was resolved, and takes a lease to do so. These messages do not
//! concern other nodes, but all nodes keep them: 10,000 nodes need more than 100 GB for that. A simulation that does not deliver them has
//! the same requests, as a test shows.

use std::collections::BTreeMap;

use backoff_tracker::core::knowledge::{BackoffKey, BackoffKeyId, Finding, KeyInView, LeaseName};

use super::node::target;
use crate::bus::Broadcast;

/// The images that are wanted, by their back-off keys.
#[derive(Debug)]
pub(super) struct Interest(BTreeMap<BackoffKeyId, usize>);

impl Interest {
    /// The interest of nodes that want these images.
    pub(super) fn of(images: impl Iterator<Item = usize>) -> Self {
        Self(images.map(|image| (backoff_key_of(image), image)).collect())
    }

    /// The image that a message is about, if it concerns nodes that want this image and no other.
    pub(super) fn image_of(&self, broadcast: &Broadcast) -> Option<usize> {
        let backoff_key = match broadcast {
            Broadcast::Report { report, .. } if report.finding == Finding::Succeeded => report.backoff_key.id(),
            Broadcast::Taken { name: LeaseName::Lead(backoff_key, _), .. } | Broadcast::Freed(LeaseName::Lead(backoff_key, _)) => {
                *backoff_key
            }
            _ => return None,
        };
        self.0.get(&backoff_key).copied()
    }
}

/// The back-off key of an image's presence at the registry.
fn backoff_key_of(image: usize) -> BackoffKeyId {
    let target = target(image);
    BackoffKey::new(target.view, KeyInView::Reference { reference: target.reference, scope: target.scope, mirrored: target.mirrored }).id()
}
