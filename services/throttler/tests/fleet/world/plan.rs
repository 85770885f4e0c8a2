//! What is planned for a run: the fleet, its requests, and what goes wrong.

use std::time::Duration;

use throttler::core::budget::{BudgetPolicy, PlantedBug};

/// What goes wrong, and what is requested.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) nodes: usize,
    pub(crate) policy: BudgetPolicy,
    /// The fleet policy sets `policy`, and each node's settings differ from it.
    pub(crate) by_policy: bool,
    /// Pulls in a window, and the length of the window.
    pub(crate) quota: Option<(u64, Duration)>,
    /// The number of addresses by which the registry knows the fleet. It counts each apart, and names them if there are several.
    pub(crate) sources: usize,
    pub(crate) requests_per_node: usize,
    /// The time over which the requests come.
    pub(crate) requested_within: Duration,
    pub(crate) pull_takes: Duration,
    pub(crate) loss: f64,
    pub(crate) doubling: f64,
    pub(crate) delay_most: Duration,
    /// The least time that each message of a far node takes, its messages to itself included, because they use the bus.
    pub(crate) one_way: Duration,
    /// How many nodes, counted from the last, are far from the server.
    pub(crate) far_nodes: usize,
    /// How many crashes, partitions and stalls there are in the first minute.
    pub(crate) troubles: usize,
    /// How long the first node is cut off from the beginning.
    pub(crate) first_cut_for: Duration,
    /// When the bucket of leases is wiped, so that revisions start over.
    pub(crate) wiped_at: Option<Duration>,
    /// How often the leader's lease is taken away in the first minute, so that there are two leaders.
    pub(crate) thefts: usize,
    /// How often a clock jumps by five minutes in the first minute.
    pub(crate) jumps: usize,
    pub(crate) lasts: Duration,
    pub(crate) planted_bug: Option<PlantedBug>,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            nodes: 8,
            policy: BudgetPolicy::default(),
            by_policy: false,
            quota: None,
            sources: 1,
            requests_per_node: 1,
            requested_within: Duration::from_millis(500),
            pull_takes: Duration::from_millis(50),
            loss: 0.0,
            doubling: 0.0,
            delay_most: Duration::from_millis(2),
            one_way: Duration::ZERO,
            far_nodes: 0,
            troubles: 0,
            first_cut_for: Duration::ZERO,
            wiped_at: None,
            thefts: 0,
            jumps: 0,
            lasts: Duration::from_secs(120),
            planted_bug: None,
        }
    }
}
