//! The progress of a pull: cheap to write from several layers at once, read as a snapshot.

use std::sync::{Arc, Mutex, PoisonError};

use contract::messages::throttler::RegistryLimit;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

/// The progress of one pull. Clones share it; the runtime writes it, others read it.
#[derive(Clone, Debug, Default)]
pub struct Progress(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// Notified when the manifest is resolved or more is known of the layers.
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    snapshot: ProgressSnapshot,
    /// The manifest was seen to be resolved, not only assumed to be.
    seen: bool,
    limits: Option<Vec<RegistryLimit>>,
    free_bytes: Option<u64>,
    /// A token server has given a token.
    token_given: bool,
    /// A blob was asked for, and the first byte of one has come.
    blob_asked: bool,
    blob_answered: bool,
    /// Only one blob is asked for until its first byte has come.
    one_blob_first: bool,
}

/// The progress of a pull at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgressSnapshot {
    /// The tag is resolved, or may be: a caller that wants the newest image must start another pull.
    pub resolved: bool,
    /// Each layer (and the config) by digest, in the manifest's order.
    pub layers: Vec<LayerProgress>,
}

/// The progress of one layer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerProgress {
    /// Its digest.
    pub digest: String,
    /// Bytes received so far, including those of an earlier pull.
    pub done_bytes: u64,
    /// Its size; 0 while unknown.
    pub total_bytes: u64,
}

impl ProgressSnapshot {
    /// Received and total bytes of all layers.
    #[must_use]
    pub fn bytes(&self) -> (u64, u64) {
        // A manifest may declare any sizes; their sum must not overflow.
        let add = |(done, total): (u64, u64), layer: &LayerProgress| {
            (done.saturating_add(layer.done_bytes), total.saturating_add(layer.total_bytes))
        };
        self.layers.iter().fold((0, 0), add)
    }

    /// Bytes still missing, once the size of every layer is known.
    #[must_use]
    pub fn missing_bytes(&self) -> Option<u64> {
        let sized = !self.layers.is_empty() && self.layers.iter().all(|layer| layer.total_bytes > 0);
        let (done, total) = self.bytes();
        sized.then(|| total.saturating_sub(done))
    }
}

impl Progress {
    /// A new progress, without any information.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The manifest is resolved; `layers` will be fetched.
    pub fn resolved(&self, layers: Vec<LayerProgress>) {
        self.write(|state| {
            state.snapshot = ProgressSnapshot { resolved: true, layers };
            state.seen = true;
        });
        self.0.changed.notify_waiters();
    }

    /// A token server has given a token for this pull.
    pub fn token_given(&self) {
        self.write(|state| state.token_given = true);
        self.0.changed.notify_waiters();
    }

    /// A missing blob is asked for.
    pub fn blob_asked(&self) {
        self.write(|state| state.blob_asked = true);
    }

    /// The first byte of a missing blob has come.
    pub fn blob_answered(&self) {
        let news = self.write(|state| !std::mem::replace(&mut state.blob_answered, true));
        if news {
            self.0.changed.notify_waiters();
        }
    }

    /// Whether a blob was asked for and no byte of any has come.
    #[must_use]
    pub fn awaits_blob(&self) -> bool {
        self.write(|state| state.blob_asked && !state.blob_answered)
    }

    /// Makes the pull ask for one blob alone until its first byte comes, because no node is known to have got a blob lately. Call it before
    /// the pull begins.
    pub fn ask_for_one_blob_first(&self) {
        self.write(|state| state.one_blob_first = true);
    }

    /// Whether only the one blob may be asked for now.
    #[must_use]
    pub fn asks_for_one_blob(&self) -> bool {
        self.write(|state| state.one_blob_first && !state.blob_answered)
    }

    /// Waits until a token server has given a token; for ever if none is asked.
    pub async fn when_token_given(&self) {
        self.when(|state| state.token_given.then_some(())).await;
    }

    /// Waits until the first byte of a blob has come; for ever if none is needed.
    pub async fn when_blob_answered(&self) {
        self.when(|state| state.blob_answered.then_some(())).await;
    }

    /// Sets the limits that the registry stated with the manifest. Call it before [`Progress::resolved`].
    pub fn set_limits(&self, limits: Vec<RegistryLimit>) {
        self.write(|state| state.limits = Some(limits));
    }

    /// The limits that the registry has stated so far, empty if it stated none; none while the runtime has not shown them.
    #[must_use]
    pub fn limits(&self) -> Option<Vec<RegistryLimit>> {
        self.write(|state| state.limits.clone())
    }

    /// Sets the bytes that are free where the layers will be. Call it before [`Progress::layers`].
    pub fn set_free_bytes(&self, free_bytes: Option<u64>) {
        self.write(|state| state.free_bytes = free_bytes);
    }

    /// The bytes that were free before the first layer was fetched; none while the runtime has not shown them.
    #[must_use]
    pub fn free_bytes(&self) -> Option<u64> {
        self.write(|state| state.free_bytes)
    }

    /// The runtime does not show when it resolves the tag. From now on the tag counts as resolved for callers that want the newest image,
    /// but not as seen for callers that wait for the registry's answer.
    pub fn maybe_resolved(&self) {
        self.write(|state| state.snapshot.resolved = true);
    }

    /// Waits until the manifest was seen to be resolved; for ever if it never is, as when the pull fails.
    pub async fn when_resolved(&self) {
        self.when(|state| state.seen.then_some(())).await;
    }

    /// Waits until the size of every layer is known; for ever if it never is.
    pub async fn when_sized(&self) {
        self.when(|state| state.snapshot.missing_bytes().map(|_| ())).await;
    }

    async fn when<T>(&self, known: impl Fn(&State) -> Option<T>) -> T {
        loop {
            let mut woken = std::pin::pin!(self.0.changed.notified());
            // Registered before the check, so that no notification is missed in between.
            woken.as_mut().enable();
            if let Some(found) = self.write(|state| known(state)) {
                return found;
            }
            woken.await;
        }
    }

    /// Replaces the layers without marking the tag as resolved.
    pub fn layers(&self, layers: Vec<LayerProgress>) {
        self.write(|state| state.snapshot.layers = layers);
        self.0.changed.notify_waiters();
    }

    /// Sets the received bytes of the layer at `index`.
    pub fn advance(&self, index: usize, done_bytes: u64) {
        self.write(|state| {
            if let Some(layer) = state.snapshot.layers.get_mut(index) {
                layer.done_bytes = done_bytes;
            }
        });
    }

    /// A copy of the present progress.
    #[must_use]
    pub fn snapshot(&self) -> ProgressSnapshot {
        self.write(|state| state.snapshot.clone())
    }

    fn write<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.0.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tasks of a test")]
mod tests {
    use super::*;

    #[test]
    fn clones_share_the_progress() {
        let progress = Progress::new();
        let reader = progress.clone();
        assert!(!reader.snapshot().resolved);
        let layer = |digest: &str, total_bytes| LayerProgress { digest: digest.to_owned(), done_bytes: 0, total_bytes };
        progress.resolved(vec![layer("sha256:a", 10), layer("sha256:b", 20)]);
        progress.advance(1, 15);
        progress.advance(7, 15);
        assert!(reader.snapshot().resolved);
        assert_eq!(reader.snapshot().bytes(), (15, 30));
    }

    #[test]
    fn sum_of_declared_sizes_does_not_overflow() {
        let layer = |total_bytes| LayerProgress { digest: "sha256:a".to_owned(), done_bytes: 1, total_bytes };
        let snapshot = ProgressSnapshot { resolved: true, layers: vec![layer(u64::MAX), layer(u64::MAX), layer(3)] };
        assert_eq!(snapshot.bytes(), (3, u64::MAX));
        assert_eq!(snapshot.missing_bytes(), Some(u64::MAX - 3));
    }

    #[tokio::test]
    async fn waiter_is_woken_when_the_manifest_is_seen_resolved() {
        let progress = Progress::new();
        let waiting = tokio::spawn({
            let progress = progress.clone();
            async move { progress.when_resolved().await }
        });
        tokio::task::yield_now().await;
        progress.maybe_resolved();
        progress.layers(Vec::new());
        assert!(progress.snapshot().resolved);
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished(), "it was not seen");
        progress.resolved(Vec::new());
        waiting.await.expect("it is woken");
        progress.when_resolved().await;
    }

    #[tokio::test]
    async fn waiter_for_the_size_is_woken_when_all_sizes_are_known() {
        let progress = Progress::new();
        let waiting = tokio::spawn({
            let progress = progress.clone();
            async move { progress.when_sized().await }
        });
        let layer = |done_bytes, total_bytes| LayerProgress { digest: "sha256:a".to_owned(), done_bytes, total_bytes };
        progress.resolved(Vec::new());
        tokio::task::yield_now().await;
        progress.layers(vec![layer(5, 10), layer(0, 0)]);
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished(), "one size is not known");
        progress.layers(vec![layer(5, 10), layer(0, 20)]);
        waiting.await.expect("it is woken");
        assert_eq!(progress.snapshot().missing_bytes(), Some(25));
    }
}
