//! How far a pull is, for whoever asks: cheap to write from several layers at once, read as a snapshot.

use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};

/// The progress of one pull. Clones share it; the runtime writes, anybody reads.
#[derive(Clone, Debug, Default)]
pub struct Progress(Arc<Mutex<ProgressSnapshot>>);

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
        self.layers.iter().fold((0, 0), |(done, total), layer| (done + layer.done_bytes, total + layer.total_bytes))
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
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.resolved = true;
        state.layers = layers;
    }

    /// Replaces what is known of the layers without saying that the tag is resolved.
    pub fn layers(&self, layers: Vec<LayerProgress>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).layers = layers;
    }

    /// The layer at `index` has `done_bytes` now.
    pub fn advance(&self, index: usize, done_bytes: u64) {
        if let Some(layer) = self.0.lock().unwrap_or_else(PoisonError::into_inner).layers.get_mut(index) {
            layer.done_bytes = done_bytes;
        }
    }

    /// A copy of what is known now.
    #[must_use]
    pub fn snapshot(&self) -> ProgressSnapshot {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
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
}
