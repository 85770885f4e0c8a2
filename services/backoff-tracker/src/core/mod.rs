//! The sans-IO core: what a node and its fleet know of failures ([`knowledge`]), and kubelet's delays ([`BackoffPolicy`]).

mod delays;
pub mod knowledge;

use std::collections::{BTreeMap, BTreeSet};

pub(crate) use delays::milliseconds;
pub use delays::{BackoffPolicy, Delay};

/// Removes the entry whose value has the least `rank`, the first of several.
fn remove_least<K: Ord + Clone, V, R: Ord>(map: &mut BTreeMap<K, V>, rank: impl Fn(&V) -> R) {
    if let Some(least) = map.iter().min_by_key(|(_, value)| rank(value)).map(|(key, _)| key.clone()) {
        map.remove(&least);
    }
}

/// Removes a value from an index, and its set if that is empty then.
fn remove_from_index<K: Ord, V: Ord>(index: &mut BTreeMap<K, BTreeSet<V>>, key: &K, value: &V) {
    if let Some(values) = index.get_mut(key) {
        values.remove(value);
        if values.is_empty() {
            index.remove(key);
        }
    }
}
