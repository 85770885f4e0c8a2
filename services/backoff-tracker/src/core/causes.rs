//! Why local keys are in back-off, indexed by local key and by back-off key.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use contract::messages::backoff_tracker::LocalKey;

use super::floor::OwnFailure;
use super::knowledge::{BackoffKey, BackoffKeyId};

/// Why a local key is in back-off.
#[derive(Clone, Debug)]
pub(crate) struct Cause {
    pub(crate) failure: OwnFailure,
    /// The keys that other nodes may report on. A success of another node on one of them shows that the cause is removed.
    pub(crate) backoff_keys: Vec<Arc<BackoffKey>>,
}

/// The cause of each key's last failure.
#[derive(Debug, Default)]
pub(super) struct Causes {
    by_key: BTreeMap<LocalKey, Cause>,
    by_backoff_key: BTreeMap<BackoffKeyId, BTreeSet<LocalKey>>,
}

impl Causes {
    pub(super) fn get(&self, key: &LocalKey) -> Option<&Cause> {
        self.by_key.get(key)
    }

    pub(super) fn insert(&mut self, key: LocalKey, cause: Cause) {
        self.remove(&key);
        for backoff_key in &cause.backoff_keys {
            self.by_backoff_key.entry(backoff_key.id()).or_default().insert(key.clone());
        }
        self.by_key.insert(key, cause);
    }

    pub(super) fn remove(&mut self, key: &LocalKey) {
        let Some(cause) = self.by_key.remove(key) else { return };
        for backoff_key in &cause.backoff_keys {
            if let Some(keys) = self.by_backoff_key.get_mut(&backoff_key.id()) {
                keys.remove(key);
                if keys.is_empty() {
                    self.by_backoff_key.remove(&backoff_key.id());
                }
            }
        }
    }

    /// Forgets the oldest causes until at most `most` are left.
    pub(super) fn keep_at_most(&mut self, most: usize) {
        while self.by_key.len() > most {
            let oldest = self.by_key.iter().min_by_key(|(_, cause)| cause.failure.at).map(|(key, _)| key.clone());
            let Some(oldest) = oldest else { return };
            self.remove(&oldest);
        }
    }

    /// The local keys whose failure is about a back-off key.
    pub(super) fn of_backoff_key(&self, backoff_key: BackoffKeyId) -> impl Iterator<Item = (&LocalKey, &Cause)> {
        let keys = self.by_backoff_key.get(&backoff_key).into_iter().flatten();
        keys.filter_map(|key| Some((key, self.by_key.get(key)?)))
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.by_key.len()
    }
}
