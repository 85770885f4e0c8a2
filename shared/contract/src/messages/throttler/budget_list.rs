//! The budgets of the fleet, as a node lists them.

use serde::{Deserialize, Serialize};

use super::KnownLimits;
use crate::{Command, NodeName, Service};

/// Asks for this node's knowledge of the fleet's budgets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListBudgets {}

impl Command for ListBudgets {
    type Reply = BudgetList;
    const SERVICE: Service = Service::Throttler;
    const VERB: &'static str = "budgets";
}

/// The answer to [`ListBudgets`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct BudgetList {
    /// One for each owner, sorted by name, as many as fit into a message; see `left_out`.
    pub budgets: Vec<BudgetState>,
    /// Owners forgotten since start because there were too many.
    pub forgotten_total: u64,
    /// How many more budgets there are.
    pub left_out: u64,
}

/// The state of one budget, as this node knows it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct BudgetState {
    /// The owner.
    pub owner: String,
    /// The leading node; none: unknown.
    pub leader: Option<NodeName>,
    /// The leader's epoch.
    pub epoch: u64,
    /// Whether this node is the leader: then the figures below are the fleet's, else this node's.
    pub leads: bool,
    /// Whether the leader is new and still learns which permits are held.
    pub learns: bool,
    /// The cap: pulls per second that the fleet may begin; 0: no limit.
    pub per_second: f64,
    /// Whether the cap is from the fleet policy; else it is the median of the settings of the nodes that asked last.
    pub per_second_by_policy: bool,
    /// The lower cap of this node's own settings, which applies to this node in addition to the fleet's cap; none: there is none.
    pub per_second_of_node: Option<f64>,
    /// The rate in force, as far as this node knows it; 0: no limit.
    pub per_second_in_force: f64,
    /// Why the rate is not higher: `policy`, `starting`, `overload`, `quota`, `silent_nodes`; empty: another node leads, and knows it.
    pub rate_cause: String,
    /// For how long its leader has found that cause, in milliseconds; none: another node leads, and knows it.
    pub rate_cause_ms: Option<u64>,
    /// The most pulls at once; 0: no limit.
    pub at_once: u64,
    /// As [`BudgetState::per_second_by_policy`].
    pub at_once_by_policy: bool,
    /// As [`BudgetState::per_second_of_node`].
    pub at_once_of_node: Option<u64>,
    /// The revision of the fleet policy that this node follows; 0: none.
    pub policy_revision: u64,
    /// Permits granted and not returned.
    pub in_flight: u64,
    /// The waiting requests, next first; at most 100, and of all budgets of the list 2,000.
    pub waiting: Vec<BudgetWaiter>,
    /// How many requests wait.
    pub waiting_count: u64,
    /// The stated limits, less all permits that are granted and not returned.
    pub known: KnownLimits,
    /// Whether no leader is reached, so that this node uses its own share.
    pub alone: bool,
    /// Pulls begun without a permit of the fleet since start, because no leader was reached.
    pub alone_total: u64,
    /// Permits that ended while their pulls went on, since start.
    pub overrun_total: u64,
    /// Whether the fleet policy makes nodes only observe: then the budget delays no pull that has not begun.
    pub observes: bool,
}

/// One waiting request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetWaiter {
    /// The node.
    pub node: NodeName,
    /// The estimated wait, in milliseconds from now.
    pub wait_ms: u64,
}
