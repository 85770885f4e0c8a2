//! How many permits of a budget each node has. Thousands of nodes may have one, and each message asks for those that have many.

use std::collections::{BTreeMap, BTreeSet};

use contract::NodeName;

#[derive(Debug, Default)]
pub(super) struct Holders {
    counts: BTreeMap<NodeName, u64>,
    by_count: BTreeSet<(u64, NodeName)>,
}

impl Holders {
    pub(super) fn add(&mut self, node: &NodeName) {
        self.set(node, self.count_of(node) + 1);
    }

    pub(super) fn remove(&mut self, node: &NodeName) {
        self.set(node, self.count_of(node).saturating_sub(1));
    }

    pub(super) fn count_of(&self, node: &NodeName) -> u64 {
        self.counts.get(node).copied().unwrap_or_default()
    }

    /// The nodes with at least this many permits.
    pub(super) fn with_at_least(&self, least: u64) -> impl Iterator<Item = &NodeName> {
        self.by_count.iter().rev().take_while(move |(count, _)| *count >= least).map(|(_, node)| node)
    }

    /// How many permits all nodes have.
    pub(super) fn total(&self) -> u64 {
        self.counts.values().sum()
    }

    fn set(&mut self, node: &NodeName, count: u64) {
        if let Some(before) = self.counts.remove(node) {
            self.by_count.remove(&(before, node.clone()));
        }
        if count > 0 {
            self.counts.insert(node.clone(), count);
            self.by_count.insert((count, node.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use clock::Random;

    use super::*;

    #[test]
    fn nodes_with_many_permits_are_found() {
        let (mut holders, mut random, mut expected) = (Holders::default(), Random::seeded(1), BTreeMap::new());
        for _ in 0..2_000 {
            let node: NodeName = format!("n{}", (random.fraction() * 7.0) as u64).parse().expect("a name");
            let count = expected.entry(node.clone()).or_insert(0_u64);
            if random.fraction() < 0.5 {
                *count += 1;
                holders.add(&node);
            } else {
                *count = count.saturating_sub(1);
                holders.remove(&node);
            }
            assert_eq!((holders.count_of(&node), holders.total()), (expected[&node], expected.values().sum::<u64>()));
            for least in 1..10 {
                let found: BTreeSet<&NodeName> = holders.with_at_least(least).collect();
                let with_many = expected.iter().filter(|(_, count)| **count >= least).map(|(node, _)| node);
                assert_eq!(found, with_many.collect::<BTreeSet<_>>(), "at least {least}");
            }
            assert_eq!(holders.by_count.len(), holders.counts.len());
        }
    }
}
