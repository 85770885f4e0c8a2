//! How many nodes there are, and when each has its turn.

use std::time::Duration;

use contract::NodeName;

use super::backoff_key::{BackoffKeyId, fraction, hash128};

/// Pulls per second that a registry's budget allows by default.
pub const BUDGET_PER_SECOND: u32 = 200;
/// Time between two nodes that are released together, so that they do not all ask the budget leader in the same millisecond. The budget
/// leader spreads their pulls, because it alone knows how many wait.
const BETWEEN_RELEASED: Duration = Duration::from_micros(500);
/// The longest that a node waits to be released, in a fleet of any size.
const LONGEST_RELEASE: Duration = Duration::from_secs(1);
/// Share of the budget that nodes without a bus use if every node has a rank. New nodes need the rest.
const OF_BUDGET_BY_RANK: f64 = 0.95;
/// The share if nodes have no ranks. Their turns are random then, and with this share no second exceeds the budget.
const OF_BUDGET_BY_CHANCE: f64 = 0.7;
/// Time between the turns of two nodes that could ask for the same lease: the second sees the lease of the first before it asks.
const BETWEEN_TURNS: Duration = Duration::from_millis(2);
/// The turns of nodes without a bus are spread over at least this time, because no lease orders them.
const LEAST_SPREAD_ALONE: Duration = Duration::from_secs(5);
/// The average time between two turns to publish reports that nodes kept while they had no bus. A node receives one report before the next
/// node's turn, also on a slow bus.
const BETWEEN_PUBLISHING: Duration = Duration::from_millis(20);
/// All turns of some hundred nodes together take no longer than this; the time between two turns is then shorter.
const PUBLISHING: Duration = Duration::from_secs(3);
/// The shortest average time between two turns, in larger fleets.
const BETWEEN_PUBLISHING_LEAST: Duration = Duration::from_micros(2_500);
/// The longest that all turns take, in a fleet of any size.
const LONGEST_PUBLISHING: Duration = Duration::from_secs(20);
/// The longest that a node waits for its turn to ask, in a fleet of any size.
const LONGEST_TURN: Duration = Duration::from_millis(500);

/// The fleet, as the presence digest describes it.
#[derive(Clone, Debug)]
pub(super) struct Fleet {
    /// Nodes alive, this one included.
    pub(super) alive: usize,
    /// This node's place among them, from 0.
    pub(super) rank: Option<usize>,
    /// Nodes alive in this node's zone, which share a network; none: not known.
    pub(super) in_zone: Option<usize>,
}

impl Default for Fleet {
    fn default() -> Self {
        Self { alive: 1, rank: None, in_zone: None }
    }
}

impl Fleet {
    /// How much later than the first node this node asks for a lease.
    pub(super) fn turn(&self, node: &NodeName, purpose: u128) -> Duration {
        let all = self.of_all(BETWEEN_TURNS).min(LONGEST_TURN);
        all.mul_f64(self.place(node, purpose))
    }

    /// How much later than the first node this node continues when all waiting nodes are released.
    pub(super) fn release(&self, node: &NodeName, purpose: u128) -> Duration {
        let all = self.of_all(BETWEEN_RELEASED).min(LONGEST_RELEASE);
        all.mul_f64(self.place(node, purpose))
    }

    /// How much later than the first node this node continues without a bus, so that all nodes together stay within the default budget.
    pub(super) fn turn_alone(&self, node: &NodeName, purpose: u128) -> Duration {
        let share = if self.ranked() { OF_BUDGET_BY_RANK } else { OF_BUDGET_BY_CHANCE };
        let all = Duration::from_secs_f64(self.alive as f64 / (f64::from(BUDGET_PER_SECOND) * share));
        all.max(LEAST_SPREAD_ALONE).mul_f64(self.place(node, purpose))
    }

    /// This node's turn to publish a report that it kept while it had no bus, counted from when the bus was read. Few turns are early and
    /// most are late, so that the first three are far enough apart whether one node in a hundred has such a report or every node.
    pub(super) fn publishes_after(&self, node: &NodeName, purpose: u128) -> Duration {
        let all = self.publishing_takes();
        // The number of turns grows exponentially with time, as receivers of a multicast group space out a reply that one of them sends for
        // all.
        let steepness = 1.0 + (self.alive.max(1) as f64).ln();
        all.mul_f64((self.place(node, purpose) * steepness.exp_m1()).ln_1p() / steepness)
    }

    /// How long the turns of all nodes take.
    pub(super) fn publishing_takes(&self) -> Duration {
        if self.alive <= 1 {
            return Duration::ZERO;
        }
        self.of_all(BETWEEN_PUBLISHING).min(PUBLISHING).max(self.of_all(BETWEEN_PUBLISHING_LEAST)).min(LONGEST_PUBLISHING)
    }

    /// How long it takes until each node alive has had its turn, if this much time lies between two turns.
    fn of_all(&self, between: Duration) -> Duration {
        between.saturating_mul(u32::try_from(self.alive).unwrap_or(u32::MAX))
    }

    /// This node's place in `[0, 1)`. The order differs for each purpose, so that no node is always first.
    fn place(&self, node: &NodeName, purpose: u128) -> f64 {
        let alive = self.alive.max(1);
        match self.rank {
            Some(rank) if rank < alive => {
                let first = usize::try_from(purpose % alive as u128).unwrap_or_default();
                ((rank + first) % alive) as f64 / alive as f64
            }
            _ => hashed_place(node.as_str(), &purpose.to_string()),
        }
    }

    fn ranked(&self) -> bool {
        self.rank.is_some_and(|rank| rank < self.alive)
    }
}

/// A node's place for one purpose when it has no rank: uniform in `[0, 1)`, stable.
fn hashed_place(node: &str, purpose: &str) -> f64 {
    fraction((hash128(&[node, purpose]) >> 64) as u64)
}

/// A number for each key and step, from which a node's turn is derived.
pub(super) fn purpose(backoff_key: BackoffKeyId, step: u32) -> u128 {
    backoff_key.0.wrapping_add(u128::from(step).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alone(ranked: bool) -> Vec<Duration> {
        let of = |rank: usize| {
            let node: NodeName = format!("n{rank}").parse().unwrap();
            Fleet { alive: 1_000, rank: ranked.then_some(rank), in_zone: None }.turn_alone(&node, 77)
        };
        let mut at: Vec<Duration> = (0..1_000).map(of).collect();
        at.sort_unstable();
        at
    }

    #[test]
    fn nodes_without_a_bus_never_exceed_the_budget_together() {
        for ranked in [true, false] {
            let at = alone(ranked);
            let most =
                at.iter().map(|first| at.iter().filter(|other| **other >= *first && **other < *first + Duration::from_secs(1)).count());
            assert!(most.max() <= Some(200), "ranked {ranked}");
            assert!(at.last() < Some(&Duration::from_millis(if ranked { 5_300 } else { 7_200 })));
        }
    }

    /// Two nodes that wait for an image in a fleet of 10,000 do not wait as if all nodes did.
    #[test]
    fn a_release_delays_no_node_for_longer_than_a_second() {
        let node: NodeName = "n".parse().unwrap();
        for alive in [1, 3, 1_000, 10_000, usize::MAX] {
            let latest = (0..100).map(|purpose| Fleet { alive, rank: None, in_zone: None }.release(&node, purpose)).max();
            assert!(latest <= Some(LONGEST_RELEASE), "{alive}: {latest:?}");
            assert!(alive < 1_000 || latest > Some(Duration::from_millis(300)), "{alive}: {latest:?}, all at once");
        }
    }

    /// This holds if all nodes have a report to publish, and if only a few do.
    #[test]
    fn each_of_the_first_three_reports_is_received_before_the_next_is_published() {
        for (alive, share) in [(300, 1), (300, 8), (5_000, 1), (5_000, 8), (10_000, 50)] {
            let of = |rank: usize| {
                let node: NodeName = format!("n{rank}").parse().unwrap();
                Fleet { alive, rank: Some(rank), in_zone: None }.publishes_after(&node, 77)
            };
            let mut at: Vec<Duration> = (0..alive).step_by(share).map(of).collect();
            at.sort_unstable();
            let apart: Vec<Duration> = at.windows(2).take(3).map(|pair| pair[1] - pair[0]).collect();
            assert!(apart.iter().all(|apart| *apart >= Duration::from_millis(50)), "{alive}, each {share}.: {apart:?}");
            assert!(at.last() <= Some(&LONGEST_PUBLISHING), "{alive}: {:?}", at.last());
        }
    }

    #[test]
    fn the_only_node_never_waits_for_its_turn() {
        let node: NodeName = "n".parse().unwrap();
        let alone = Fleet::default();
        assert!(alone.turn(&node, 5) < Duration::from_millis(3) && alone.release(&node, 5) < Duration::from_millis(10));
        assert_eq!(alone.publishes_after(&node, 5), Duration::ZERO);
        let out_of_range = Fleet { alive: 3, rank: Some(9), in_zone: None };
        assert!(out_of_range.turn(&node, 5) <= LONGEST_TURN, "a rank beyond the fleet is no rank");
    }

    #[test]
    fn places_are_even_and_stable() {
        let places: Vec<f64> = (0..1_000).map(|node| hashed_place(&node.to_string(), "x")).collect();
        let mean = places.iter().sum::<f64>() / 1_000.0;
        assert!(places.iter().all(|place| (0.0..1.0).contains(place)) && (0.45..0.55).contains(&mean), "{mean}");
    }
}
