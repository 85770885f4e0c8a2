//! The order of a budget's queue: first come, first served, but a node with many requests does not hold back the others.

use std::collections::BTreeMap;

use contract::messages::throttler::BUDGET_PERMITS_PER_NODE;
use contract::{NodeName, PermitId};

use super::{COUNTED_ANEW, count_down};

/// The most requests that may wait for one budget: every node of a large fleet, twice. Further ones are refused.
pub(super) const WAITING_MAX: usize = 20_000;

/// The most waiting requests of one node: as many as the permits that it may hold. A node asks for no more than it has slots, and
/// `pull.parallel` allows as many.
const WAITING_MAX_OF_NODE: usize = BUDGET_PERMITS_PER_NODE;

/// How many places of one round are counted together: about the square root of the most that wait.
const BLOCK: u64 = 128;

/// A place in the queue: its round, then the order of arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    round: u64,
    number: u64,
}

impl Place {
    fn block(self) -> (u64, u64) {
        (self.round, self.number / BLOCK)
    }
}

/// Fair queueing by start tags: a node's first request is in the current round, and each further one in a later round.
#[derive(Debug, Default)]
pub(super) struct FairQueue {
    round: u64,
    numbers: u64,
    /// All that wait, in the order of their turns.
    order: BTreeMap<Place, (NodeName, PermitId)>,
    /// How many wait in each block of places, so that the requests before one are counted without a scan of all.
    blocks: BTreeMap<(u64, u64), u64>,
    /// How many places each node has.
    of_nodes: BTreeMap<NodeName, u64>,
    /// The round of each node's last place, until that round is over.
    last_rounds: BTreeMap<NodeName, u64>,
}

impl FairQueue {
    pub(super) fn len(&self) -> usize {
        self.order.len()
    }

    pub(super) fn assert_invariants(&self) {
        let waiting = self.order.len();
        debug_assert!(waiting <= WAITING_MAX, "the queue is bounded");
        if waiting <= COUNTED_ANEW {
            debug_assert_eq!(self.of_nodes.values().sum::<u64>(), waiting as u64, "places are counted for each node");
            debug_assert_eq!(self.blocks.values().sum::<u64>(), waiting as u64, "places are counted for each block");
        }
    }

    /// The place of a further request of this node.
    pub(super) fn join(&mut self, node: &NodeName) -> Result<Place, String> {
        if self.of_nodes.get(node).is_some_and(|places| *places >= WAITING_MAX_OF_NODE as u64) {
            return Err(format!("{WAITING_MAX_OF_NODE} pulls of this node wait already"));
        }
        if self.order.len() >= WAITING_MAX {
            return Err(format!("{WAITING_MAX} pulls wait already"));
        }
        let round = self.last_rounds.get(node).map_or(self.round, |last| self.round.max(last + 1));
        self.last_rounds.insert(node.clone(), round);
        self.numbers += 1;
        Ok(Place { round, number: self.numbers })
    }

    /// From now on, this request waits at this place.
    pub(super) fn insert(&mut self, place: Place, node: NodeName, permit: PermitId) {
        *self.blocks.entry(place.block()).or_default() += 1;
        *self.of_nodes.entry(node.clone()).or_default() += 1;
        self.order.insert(place, (node, permit));
    }

    pub(super) fn remove(&mut self, place: Place) {
        let Some((node, _)) = self.order.remove(&place) else { return };
        count_down(&mut self.of_nodes, &node);
        count_down(&mut self.blocks, &place.block());
    }

    /// The first request of a node that may have a turn.
    pub(super) fn first(&self, may: impl Fn(&NodeName) -> bool) -> Option<(Place, PermitId)> {
        // Mostly there are fewer nodes than requests.
        if !self.of_nodes.keys().any(&may) {
            return None;
        }
        let first = self.order.iter().find(|(_, (node, _))| may(node));
        first.map(|(place, (_, permit))| (*place, *permit))
    }

    /// The request at this place has its turn, so its round begins.
    pub(super) fn begin_round(&mut self, place: Place) {
        self.round = self.round.max(place.round);
        if self.last_rounds.len() > self.order.len() * 2 + 64 {
            let round = self.round;
            self.last_rounds.retain(|_, last| *last >= round);
        }
    }

    pub(super) fn ahead_of(&self, place: Place) -> u64 {
        let block = place.block();
        let before: u64 = self.blocks.range(..block).map(|(_, count)| count).sum();
        let first = Place { round: block.0, number: block.1 * BLOCK };
        before + self.order.range(first..place).count() as u64
    }

    /// The nodes of all waiting requests, in the order of their turns.
    pub(super) fn nodes(&self) -> impl Iterator<Item = &NodeName> {
        self.order.values().map(|(node, _)| node)
    }
}

#[cfg(test)]
mod tests {
    use clock::Random;

    use super::*;

    fn join(queue: &mut FairQueue, name: &str, random: &mut Random) {
        let node: NodeName = name.parse().expect("a name");
        let place = queue.join(&node).expect("there is room");
        queue.insert(place, node, PermitId::random(random));
    }

    /// Takes out the next request and returns its node.
    fn taken(queue: &mut FairQueue) -> Option<NodeName> {
        let (place, _) = queue.first(|_| true)?;
        queue.begin_round(place);
        let node = queue.order.get(&place).map(|(node, _)| node.clone());
        queue.remove(place);
        node
    }

    fn order(queue: &mut FairQueue) -> String {
        std::iter::from_fn(|| taken(queue)).map(|node| node.as_str().to_owned()).collect()
    }

    fn joined(names: &str) -> FairQueue {
        let (mut queue, mut random) = (FairQueue::default(), Random::seeded(1));
        names.chars().for_each(|name| join(&mut queue, &name.to_string(), &mut random));
        queue
    }

    #[test]
    fn nodes_take_turns_and_each_is_served_in_order() {
        assert_eq!(order(&mut joined("aaabbc")), "abcaba");
        assert_eq!(order(&mut joined("abcabc")), "abcabc");
    }

    #[test]
    fn late_node_is_not_behind_all_requests_of_a_busy_node() {
        let mut queue = joined("aaaa");
        assert!(taken(&mut queue).is_some());
        assert!(taken(&mut queue).is_some());
        join(&mut queue, "b", &mut Random::seeded(2));
        assert_eq!(order(&mut queue), "baa".to_owned());
    }

    #[test]
    fn requests_ahead_are_counted_by_blocks() {
        let (mut queue, mut random) = (FairQueue::default(), Random::seeded(3));
        for step in 0..1_000 {
            let name = format!("n{}", (random.fraction() * 40.0) as u64);
            join(&mut queue, &name, &mut random);
            if step % 3 == 0 {
                taken(&mut queue);
            }
            if step % 7 == 0 {
                let any = queue.order.keys().nth(queue.len() / 2).copied();
                any.into_iter().for_each(|place| queue.remove(place));
            }
        }
        let counted: Vec<u64> = queue.order.keys().map(|place| queue.ahead_of(*place)).collect();
        assert_eq!(counted, (0..queue.len() as u64).collect::<Vec<_>>());
    }
}
