//! Merges the answers of nodes as they arrive.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::rc::Rc;

use contract::NodeName;
use contract::messages::backoff_tracker::BackoffEntry;

use super::Known;

/// The most rows of one command. A large fleet could have millions of own back-off entries.
const ROWS_MOST: usize = 10_000;

/// The merged answers so far.
#[derive(Debug, Default)]
pub struct Merger {
    // The key identifies a shared entry. For an entry that is not shared, the node is added.
    known: BTreeMap<(String, Option<NodeName>), Held>,
    /// The holders of shared entries of which only the key is known, until a node sends the whole entry.
    by_key: BTreeMap<String, Vec<u32>>,
    names: Names,
    left_out: u64,
}

/// An entry, and the numbers of its holders, because the names of 10,000 nodes for each of hundreds of entries take too much memory.
#[derive(Debug)]
struct Held {
    entry: BackoffEntry,
    holders: Vec<u32>,
    next: BTreeMap<NodeName, u64>,
}

/// Numbers for nodes, in the order of their answers.
#[derive(Debug, Default)]
struct Names {
    numbers: BTreeMap<NodeName, u32>,
    names: Vec<NodeName>,
}

impl Merger {
    /// Adds the entries of a node.
    pub fn add(&mut self, node: &NodeName, entries: Vec<BackoffEntry>) {
        for entry in entries {
            let place = (entry.key.clone(), entry.view.is_none().then(|| node.clone()));
            if self.known.len() >= ROWS_MOST && !self.known.contains_key(&place) {
                self.left_out += 1;
                continue;
            }
            let number = self.names.number(node);
            match self.known.entry(place) {
                Entry::Vacant(room) => {
                    room.insert(Held::reported_by(node, vec![number], entry));
                }
                Entry::Occupied(held) => held.into_mut().add_holder(node, number, entry),
            }
        }
    }

    /// Adds the keys of a node's shared entries.
    pub fn add_keys(&mut self, node: &NodeName, keys: Vec<String>) {
        let number = self.names.number(node);
        for key in keys {
            let place = (key, None);
            if let Some(held) = self.known.get_mut(&place) {
                held.holders.push(number);
            } else if self.by_key.len() < ROWS_MOST || self.by_key.contains_key(&place.0) {
                self.by_key.entry(place.0).or_default().push(number);
            } else {
                self.left_out += 1;
            }
        }
    }

    /// A node with an entry of which only the key is known.
    #[must_use]
    pub fn node_with_more(&self) -> Option<NodeName> {
        self.by_key.values().find_map(|holders| holders.first()).and_then(|number| self.names.name(*number))
    }

    /// Takes the whole entries of a node. An entry of this node that is missing here no longer exists on the node.
    pub fn complete(&mut self, node: &NodeName, entries: Vec<BackoffEntry>) {
        for entry in entries {
            if let Some(holders) = self.by_key.remove(&entry.key) {
                self.known.insert((entry.key.clone(), None), Held::reported_by(node, holders, entry));
            }
        }
        let number = self.names.number(node);
        self.by_key.retain(|_, holders| {
            holders.retain(|other| *other != number);
            !holders.is_empty()
        });
    }

    /// The number of rows that did not fit.
    #[must_use]
    pub fn left_out(&self) -> u64 {
        self.left_out + self.by_key.len() as u64
    }

    /// Shared entries first, then each node's own, sorted by subject. The nodes are sorted by name.
    #[must_use]
    pub fn into_known(self) -> Vec<Known> {
        let Self { known, names, .. } = self;
        let mut lists: BTreeMap<Vec<u32>, Rc<[NodeName]>> = BTreeMap::new();
        let known = known.into_values().map(|Held { entry, mut holders, next }| {
            holders.sort_unstable();
            let nodes = match lists.get(&holders) {
                Some(nodes) => Rc::clone(nodes),
                None => {
                    let mut nodes: Vec<NodeName> = holders.iter().filter_map(|number| names.name(*number)).collect();
                    nodes.sort();
                    Rc::clone(lists.entry(holders).or_insert(nodes.into()))
                }
            };
            Known { entry, nodes, next, quota_wait_ms: 0, is_without_bus: false, is_paused: false, observers: Rc::default() }
        });
        let mut known: Vec<Known> = known.collect();
        let order = |known: &Known| (known.entry.view.is_none(), known.entry.key_parts.to_string(), known.nodes.first().cloned());
        known.sort_by_cached_key(order);
        known
    }
}

/// The entry with more failures is newer; if equal, the one with the later failure.
fn newness(entry: &BackoffEntry) -> (u32, Reverse<u64>) {
    (entry.step, Reverse(entry.last_ms_ago))
}

impl Held {
    fn reported_by(node: &NodeName, holders: Vec<u32>, entry: BackoffEntry) -> Self {
        let next = BTreeMap::from([(node.clone(), entry.next_attempt_ms)]);
        Self { entry, holders, next }
    }

    /// Adds another holder of the entry.
    fn add_holder(&mut self, node: &NodeName, number: u32, entry: BackoffEntry) {
        self.holders.push(number);
        self.next.insert(node.clone(), entry.next_attempt_ms);
        let probed_by = self.entry.probed_by.take().or_else(|| entry.probed_by.clone());
        if newness(&entry) > newness(&self.entry) {
            self.entry = entry;
        }
        self.entry.probed_by = probed_by;
    }
}

impl Names {
    fn number(&mut self, node: &NodeName) -> u32 {
        if let Some(number) = self.numbers.get(node) {
            return *number;
        }
        let number = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
        self.numbers.insert(node.clone(), number);
        self.names.push(node.clone());
        number
    }

    fn name(&self, number: u32) -> Option<NodeName> {
        self.names.get(number as usize).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{node, own, shared};
    use super::*;

    #[test]
    fn entry_that_most_nodes_send_by_its_key_is_sent_in_full_by_one() {
        let key = |number: u32| format!("{number:032x}");
        let entry = |number: u32| BackoffEntry { key: key(number), ..shared("registry.example/a:1", number) };
        let mut merger = Merger::default();
        merger.add(&node("n1"), vec![entry(1)]);
        merger.add_keys(&node("n2"), vec![key(1), key(2), key(3)]);
        merger.add_keys(&node("n3"), vec![key(2)]);
        assert_eq!((merger.node_with_more(), merger.left_out()), (Some(node("n2")), 2));
        // The third entry has been closed since.
        merger.complete(&node("n2"), vec![entry(1), entry(2)]);
        assert_eq!((merger.node_with_more(), merger.left_out()), (None, 0));
        let entries: Vec<(u32, usize)> = merger.into_known().iter().map(|known| (known.entry.step, known.nodes.len())).collect();
        assert_eq!(entries, [(1, 2), (2, 2)]);
    }

    #[test]
    fn merged_entries_are_bounded() {
        let mut merger = Merger::default();
        for number in 0..11 {
            merger.add(&node(&format!("n{number}")), (0..1_000).map(|image| own(&format!("a:{image}"))).collect());
        }
        merger.add(&node("n0"), vec![own("a:0")]);
        assert_eq!(merger.left_out(), 1_000, "what is already listed is updated");
        assert_eq!(merger.into_known().len(), ROWS_MOST);
    }
}
