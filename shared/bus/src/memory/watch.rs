//! Watches: what has changed since the watcher last looked, the newest change of each key alone.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use futures::stream::Stream;

use super::hub::{ConnectionId, Hub};
use crate::port::EntryChange;

/// A watcher as the hub knows it. What it holds is bounded by the number of keys.
pub(super) struct Watcher {
    pub(super) connection: ConnectionId,
    pub(super) bucket: String,
    prefix: String,
    /// By place in the queue.
    changes: BTreeMap<u64, EntryChange>,
    /// The place of each key that waits.
    places: BTreeMap<String, u64>,
    next_place: u64,
    waker: Option<Waker>,
    closed: bool,
}

impl Watcher {
    pub(super) fn new(connection: ConnectionId, bucket: &str, prefix: &str) -> Self {
        Self {
            connection,
            bucket: bucket.to_owned(),
            prefix: prefix.to_owned(),
            changes: BTreeMap::new(),
            places: BTreeMap::new(),
            next_place: 0,
            waker: None,
            closed: false,
        }
    }

    /// Queues a change if it is of a watched key, in place of an older one of the same key.
    pub(super) fn push(&mut self, change: EntryChange) {
        if let Some(key) = key_of(&change) {
            if !begins_with(key, &self.prefix) {
                return;
            }
            if let Some(place) = self.places.insert(key.to_owned(), self.next_place) {
                self.changes.remove(&place);
            }
        }
        self.changes.insert(self.next_place, change);
        self.next_place += 1;
        self.wake();
    }

    /// Ends the watch after what is queued has been read.
    pub(super) fn close(&mut self) {
        self.closed = true;
        self.wake();
    }

    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<EntryChange>> {
        if let Some((_, change)) = self.changes.pop_first() {
            if let Some(key) = key_of(&change) {
                self.places.remove(key);
            }
            return Poll::Ready(Some(change));
        }
        if self.closed {
            return Poll::Ready(None);
        }
        self.waker = Some(context.waker().clone());
        Poll::Pending
    }

    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

/// The reading end of a watch; dropping it ends it.
pub(super) struct MemoryWatch {
    pub(super) id: u64,
    pub(super) hub: Arc<Hub>,
}

impl Stream for MemoryWatch {
    type Item = EntryChange;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<EntryChange>> {
        self.hub.poll_watch(self.id, context)
    }
}

impl Drop for MemoryWatch {
    fn drop(&mut self) {
        self.hub.unwatch(self.id);
    }
}

fn key_of(change: &EntryChange) -> Option<&str> {
    match change {
        EntryChange::Put(entry) => Some(&entry.key),
        EntryChange::Gone { key, .. } => Some(key),
        EntryChange::Current => None,
    }
}

/// Whether the first tokens of `key` are those of `prefix`.
fn begins_with(key: &str, prefix: &str) -> bool {
    prefix.is_empty() || key.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}
