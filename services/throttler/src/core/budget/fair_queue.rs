//! The queue of a budget: first come, first served, but a node with many requests does not hold back the others.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use contract::messages::throttler::BUDGET_PERMITS_PER_NODE;
use contract::{DEADLINES, NodeName, PermitId};

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

#[derive(Clone, Debug)]
pub(super) struct Waiter {
    pub(super) node: NodeName,
    pub(super) permit: PermitId,
    /// How often its permit was offered, fetched late and took another turn.
    pub(super) late: u8,
    last_seen: Duration,
}

impl Waiter {
    pub(super) fn fetched_late(self) -> Self {
        Self { late: self.late.saturating_add(1), ..self }
    }
}

/// Fair queueing by start tags: a node's first request is in the current round, and each further one in a later round.
#[derive(Debug, Default)]
pub(super) struct FairQueue {
    round: u64,
    numbers: u64,
    places: BTreeMap<PermitId, Place>,
    waiters: BTreeMap<Place, Waiter>,
    /// How many wait in each block of places, so that the requests before one are counted without a scan of all.
    blocks: BTreeMap<(u64, u64), u64>,
    /// How many places each node has.
    of_nodes: BTreeMap<NodeName, u64>,
    /// The round of each node's last place, until that round is over.
    last_rounds: BTreeMap<NodeName, u64>,
    /// Ordered by the time of the last repetition, so that silent requests are found without a scan of all.
    by_last_seen: BTreeSet<(Duration, PermitId)>,
}

impl FairQueue {
    pub(super) fn len(&self) -> usize {
        self.waiters.len()
    }

    pub(super) fn assert_invariants(&self) {
        let waiting = self.waiters.len();
        debug_assert!(waiting <= WAITING_MAX, "the queue is bounded");
        debug_assert_eq!(
            (self.places.len(), self.by_last_seen.len()),
            (waiting, waiting),
            "each place is known by its permit and its time"
        );
        if waiting <= COUNTED_ANEW {
            debug_assert_eq!(self.of_nodes.values().sum::<u64>(), waiting as u64, "places are counted for each node");
            debug_assert_eq!(self.blocks.values().sum::<u64>(), waiting as u64, "places are counted for each block");
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    /// Adds a request, or repeats it: then it keeps its place.
    pub(super) fn join(&mut self, now: Duration, node: &NodeName, permit: PermitId) -> Result<(), String> {
        if let Some(waiter) = self.places.get(&permit).and_then(|place| self.waiters.get_mut(place)) {
            self.by_last_seen.remove(&(waiter.last_seen, permit));
            waiter.last_seen = now;
            self.by_last_seen.insert((now, permit));
            return Ok(());
        }
        if self.of_nodes.get(node).is_some_and(|places| *places >= WAITING_MAX_OF_NODE as u64) {
            return Err(format!("{WAITING_MAX_OF_NODE} pulls of this node wait already"));
        }
        if self.waiters.len() >= WAITING_MAX {
            return Err(format!("{WAITING_MAX} pulls wait already"));
        }
        let round = self.last_rounds.get(node).map_or(self.round, |last| self.round.max(last + 1));
        self.last_rounds.insert(node.clone(), round);
        self.numbers += 1;
        let place = Place { round, number: self.numbers };
        self.put(place, Waiter { node: node.clone(), permit, late: 0, last_seen: now });
        Ok(())
    }

    /// Puts a request that [`FairQueue::next`] has taken out back at its place.
    pub(super) fn put(&mut self, place: Place, waiter: Waiter) {
        self.by_last_seen.insert((waiter.last_seen, waiter.permit));
        self.places.insert(waiter.permit, place);
        *self.blocks.entry(place.block()).or_default() += 1;
        *self.of_nodes.entry(waiter.node.clone()).or_default() += 1;
        self.waiters.insert(place, waiter);
    }

    /// Takes out the next request that is of none of these nodes.
    pub(super) fn next(&mut self, excluded: &BTreeSet<NodeName>) -> Option<(Place, Waiter)> {
        let place = *self.waiters.iter().find(|(_, waiter)| !excluded.contains(&waiter.node))?.0;
        let waiter = self.take(place)?;
        self.round = self.round.max(place.round);
        if self.last_rounds.len() > self.waiters.len() * 2 + 64 {
            let round = self.round;
            self.last_rounds.retain(|_, last| *last >= round);
        }
        Some((place, waiter))
    }

    pub(super) fn leave(&mut self, permit: PermitId) {
        if let Some(place) = self.places.get(&permit).copied() {
            self.take(place);
        }
    }

    /// The node of this permit; none if it does not wait.
    pub(super) fn node_of(&self, permit: PermitId) -> Option<&NodeName> {
        self.places.get(&permit).and_then(|place| self.waiters.get(place)).map(|waiter| &waiter.node)
    }

    pub(super) fn ahead_of(&self, permit: PermitId) -> Option<u64> {
        let place = self.places.get(&permit)?;
        let block = place.block();
        let before: u64 = self.blocks.range(..block).map(|(_, count)| count).sum();
        let first = Place { round: block.0, number: block.1 * BLOCK };
        Some(before + self.waiters.range(first..*place).count() as u64)
    }

    /// Forgets requests that are not repeated any more.
    pub(super) fn expire(&mut self, now: Duration) {
        while let Some((last_seen, permit)) = self.by_last_seen.first().copied() {
            if now < last_seen + DEADLINES.budget_place_lapses_after {
                return;
            }
            self.leave(permit);
        }
    }

    /// Whether a request of another node waits.
    pub(super) fn has_others_than(&self, nodes: &BTreeSet<NodeName>) -> bool {
        self.of_nodes.len() > nodes.iter().filter(|node| self.of_nodes.contains_key(*node)).count()
    }

    /// All waiting requests, in the order of their turns.
    pub(super) fn waiters(&self) -> impl Iterator<Item = &Waiter> {
        self.waiters.values()
    }

    fn take(&mut self, place: Place) -> Option<Waiter> {
        let waiter = self.waiters.remove(&place)?;
        self.places.remove(&waiter.permit);
        self.by_last_seen.remove(&(waiter.last_seen, waiter.permit));
        count_down(&mut self.of_nodes, &waiter.node);
        count_down(&mut self.blocks, &place.block());
        Some(waiter)
    }
}

#[cfg(test)]
mod tests {
    use clock::Random;

    use super::*;

    fn order(queue: &mut FairQueue) -> String {
        std::iter::from_fn(|| queue.next(&BTreeSet::new())).map(|(_, waiter)| waiter.node.as_str().to_owned()).collect()
    }

    fn joined(names: &str) -> FairQueue {
        let (mut queue, mut random) = (FairQueue::default(), Random::seeded(1));
        for name in names.chars() {
            assert_eq!(queue.join(Duration::ZERO, &name.to_string().parse().expect("a name"), PermitId::random(&mut random)), Ok(()));
        }
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
        assert!(queue.next(&BTreeSet::new()).is_some());
        assert!(queue.next(&BTreeSet::new()).is_some());
        assert_eq!(queue.join(Duration::ZERO, &"b".parse().expect("a name"), PermitId::random(&mut Random::seeded(2))), Ok(()));
        assert_eq!(order(&mut queue), "baa".to_owned());
    }

    #[test]
    fn requests_ahead_are_counted_by_blocks() {
        let (mut queue, mut random) = (FairQueue::default(), Random::seeded(3));
        for step in 0..1_000 {
            let node = format!("n{}", (random.fraction() * 40.0) as u64).parse().expect("a name");
            assert_eq!(queue.join(Duration::ZERO, &node, PermitId::random(&mut random)), Ok(()));
            if step % 3 == 0 {
                queue.next(&BTreeSet::new());
            }
            if step % 7 == 0 {
                let any = queue.waiters().nth(queue.len() / 2).map(|waiter| waiter.permit);
                any.into_iter().for_each(|permit| queue.leave(permit));
            }
        }
        let order: Vec<PermitId> = queue.waiters().map(|waiter| waiter.permit).collect();
        let counted: Vec<Option<u64>> = order.iter().map(|permit| queue.ahead_of(*permit)).collect();
        assert_eq!(counted, (0..order.len() as u64).map(Some).collect::<Vec<_>>());
    }

    #[test]
    fn silent_request_loses_its_place_and_a_repeated_one_keeps_it() {
        let mut queue = joined("ab");
        let first = queue.waiters().next().cloned().expect("a request waits");
        assert_eq!(queue.join(Duration::from_secs(10), &first.node, first.permit), Ok(()));
        queue.expire(contract::DEADLINES.budget_place_lapses_after);
        assert_eq!(queue.ahead_of(first.permit), Some(0));
        assert_eq!(queue.len(), 1);
        queue.expire(Duration::from_secs(25));
        assert!(queue.is_empty());
    }
}
