//! Why keys are held, found by key and by what they failed by.

use std::collections::{BTreeMap, BTreeSet};

use contract::messages::backoff_tracker::BackoffKey;

use super::knowledge::TopicId;
use super::tracker::Cause;

/// The cause of each key's last failure.
#[derive(Debug, Default)]
pub(super) struct Causes {
    by_key: BTreeMap<BackoffKey, Cause>,
    by_topic: BTreeMap<TopicId, BTreeSet<BackoffKey>>,
}

impl Causes {
    pub(super) fn get(&self, key: &BackoffKey) -> Option<&Cause> {
        self.by_key.get(key)
    }

    pub(super) fn insert(&mut self, key: BackoffKey, cause: Cause) {
        self.remove(&key);
        for topic in &cause.topics {
            self.by_topic.entry(topic.id()).or_default().insert(key.clone());
        }
        self.by_key.insert(key, cause);
    }

    pub(super) fn remove(&mut self, key: &BackoffKey) {
        let Some(cause) = self.by_key.remove(key) else { return };
        for topic in &cause.topics {
            if let Some(keys) = self.by_topic.get_mut(&topic.id()) {
                keys.remove(key);
                if keys.is_empty() {
                    self.by_topic.remove(&topic.id());
                }
            }
        }
    }

    /// Forgets the oldest beyond so many.
    pub(super) fn keep_at_most(&mut self, most: usize) {
        while self.by_key.len() > most {
            let oldest = self.by_key.iter().min_by_key(|(_, cause)| cause.at).map(|(key, _)| key.clone());
            let Some(oldest) = oldest else { return };
            self.remove(&oldest);
        }
    }

    /// The keys that failed by a topic.
    pub(super) fn of_topic(&self, topic: TopicId) -> impl Iterator<Item = (&BackoffKey, &Cause)> {
        let keys = self.by_topic.get(&topic).into_iter().flatten();
        keys.filter_map(|key| Some((key, self.by_key.get(key)?)))
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.by_key.len()
    }
}
