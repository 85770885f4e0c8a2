//! How far a pull is: cheap to write from several layers at once, read as a snapshot.

use std::sync::{Arc, Mutex, PoisonError};

use contract::messages::throttler::RegistryLimit;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

/// The progress of one pull. Clones share it; the runtime writes, anybody reads.
#[derive(Clone, Debug, Default)]
pub struct Progress(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// Says that the manifest is resolved, or that more is known of the layers.
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    snapshot: ProgressSnapshot,
    /// The manifest was seen to be resolved, not only taken for it.
    seen: bool,
    limits: Option<Vec<RegistryLimit>>,
    /// A token server has given a token.
    token_given: bool,
    /// A blob was asked for, and the first byte of one has come.
    blob_asked: bool,
    blob_answered: bool,
    /// No second blob is asked for before the first byte of one has come.
    one_blob_first: bool,
}

/// How far a pull is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgressSnapshot {
    /// The manifest is resolved: who wants the tag's newest image must ask again after this.
    pub resolved: bool,
    /// Each layer (and the config) by digest, in the manifest's order.
    pub layers: Vec<LayerProgress>,
}

/// How far one layer is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerProgress {
    /// Its digest.
    pub digest: String,
    /// Bytes there by now, those of an earlier pull included.
    pub done_bytes: u64,
    /// Its size; 0 while unknown.
    pub total_bytes: u64,
}

impl ProgressSnapshot {
    /// Bytes there and bytes in all, over all layers.
    #[must_use]
    pub fn bytes(&self) -> (u64, u64) {
        // A manifest may declare any sizes: their sum must not wrap to a small one.
        let add = |(done, total): (u64, u64), layer: &LayerProgress| {
            (done.saturating_add(layer.done_bytes), total.saturating_add(layer.total_bytes))
        };
        self.layers.iter().fold((0, 0), add)
    }

    /// Bytes still to come, once the size of every layer is known.
    #[must_use]
    pub fn missing_bytes(&self) -> Option<u64> {
        let sized = !self.layers.is_empty() && self.layers.iter().all(|layer| layer.total_bytes > 0);
        let (done, total) = self.bytes();
        sized.then(|| total.saturating_sub(done))
    }
}

impl Progress {
    /// Nothing known yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The manifest is resolved; `layers` are what will be fetched.
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

    /// A blob is asked for that the node lacks.
    pub fn blob_asked(&self) {
        self.write(|state| state.blob_asked = true);
    }

    /// The first byte of a blob has come that the node lacks.
    pub fn blob_answered(&self) {
        let news = self.write(|state| !std::mem::replace(&mut state.blob_answered, true));
        if news {
            self.0.changed.notify_waiters();
        }
    }

    /// Whether a blob was asked for, and no byte of any has come.
    #[must_use]
    pub fn awaits_blob(&self) -> bool {
        self.write(|state| state.blob_asked && !state.blob_answered)
    }

    /// To be said before the pull begins: nobody is known to have had a blob lately, so one is asked for alone until its first byte comes.
    pub fn ask_for_one_blob_first(&self) {
        self.write(|state| state.one_blob_first = true);
    }

    /// Whether no other blob may be asked for now.
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

    /// What the registry said of its limits with the manifest; to be said before [`Progress::resolved`].
    pub fn tell_limits(&self, limits: Vec<RegistryLimit>) {
        self.write(|state| state.limits = Some(limits));
    }

    /// What the registry has said of its limits so far, empty if it told of none; none while the runtime has not shown it.
    #[must_use]
    pub fn limits(&self) -> Option<Vec<RegistryLimit>> {
        self.write(|state| state.limits.clone())
    }

    /// From now on the tag may be resolved any time, which cannot be seen: who wants the newest image must ask again, and who
    /// wants to know whether the registry answers must wait on.
    pub fn resolved_unseen(&self) {
        self.write(|state| state.snapshot.resolved = true);
    }

    /// Waits until the manifest was seen to be resolved; for ever if that never is, as when the pull fails.
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
            // Listened for before it is looked at, so that nothing is missed in between.
            woken.as_mut().enable();
            if let Some(found) = self.write(|state| known(state)) {
                return found;
            }
            woken.await;
        }
    }

    /// Replaces what is known of the layers without saying that the tag is resolved.
    pub fn layers(&self, layers: Vec<LayerProgress>) {
        self.write(|state| state.snapshot.layers = layers);
        self.0.changed.notify_waiters();
    }

    /// The layer at `index` has `done_bytes` now.
    pub fn advance(&self, index: usize, done_bytes: u64) {
        self.write(|state| {
            if let Some(layer) = state.snapshot.layers.get_mut(index) {
                layer.done_bytes = done_bytes;
            }
        });
    }

    /// A copy of what is known now.
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
    fn what_the_runtime_writes_is_read_by_others() {
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
    fn declared_sizes_add_up_to_no_small_sum() {
        let layer = |total_bytes| LayerProgress { digest: "sha256:a".to_owned(), done_bytes: 1, total_bytes };
        let snapshot = ProgressSnapshot { resolved: true, layers: vec![layer(u64::MAX), layer(u64::MAX), layer(3)] };
        assert_eq!(snapshot.bytes(), (3, u64::MAX));
        assert_eq!(snapshot.missing_bytes(), Some(u64::MAX - 3));
    }

    #[tokio::test]
    async fn who_waits_is_woken_when_the_manifest_is_seen_to_be_resolved() {
        let progress = Progress::new();
        let waiting = tokio::spawn({
            let progress = progress.clone();
            async move { progress.when_resolved().await }
        });
        tokio::task::yield_now().await;
        progress.resolved_unseen();
        progress.layers(Vec::new());
        assert!(progress.snapshot().resolved);
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished(), "it was not seen");
        progress.resolved(Vec::new());
        waiting.await.expect("it is woken");
        progress.when_resolved().await;
    }

    #[tokio::test]
    async fn who_waits_for_the_size_is_told_what_is_still_to_come() {
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
