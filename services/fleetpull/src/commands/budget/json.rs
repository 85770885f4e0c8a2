//! A budget as JSON. The names and their meaning are an interface.

use contract::messages::throttler::{BudgetWaiter, RegistryLimit};
use contract::{NodeName, registry_of_budget};
use serde::Serialize;

use super::Budget;
use super::differences::{Difference, differences};

/// One budget as JSON, with its leader's values if the leader answers.
#[derive(Serialize)]
struct JsonBudget<'a> {
    kind: &'static str,
    owner: &'a str,
    registry: String,
    leader: Option<&'a NodeName>,
    epoch: u64,
    leads: bool,
    learns: bool,
    /// The cap. Null if there is no limit.
    per_second: Option<f64>,
    /// True if the cap comes from the fleet policy, false if from the settings of the node in `reported_by`.
    per_second_by_policy: bool,
    /// The rate in force. Null if there is no limit, or if another node leads and does not answer.
    per_second_in_force: Option<f64>,
    /// Why the rate is below the cap: policy, starting, overload, quota, silent_nodes.
    rate_cause: Option<&'a str>,
    /// For how long the leader has found that cause. Null if no node that answered leads the budget.
    rate_cause_ms: Option<u64>,
    /// Null if there is no limit.
    at_once: Option<u64>,
    at_once_by_policy: bool,
    /// The revision of the fleet policy on the node in `reported_by`. 0 if it has none.
    policy_revision: u64,
    /// If no node that answered leads the budget, this and `waiting_count` are sums of what the nodes that answered have.
    in_flight: u64,
    waiting: &'a [BudgetWaiter],
    waiting_count: u64,
    known: JsonQuotas<'a>,
    alone_total: u64,
    overrun_total: u64,
    /// The node that these values come from.
    reported_by: &'a NodeName,
    /// Nodes that have this budget.
    node_count: usize,
    /// Nodes among them that reach no leader and use their own share.
    alone_nodes: &'a [NodeName],
    /// Nodes that use other caps.
    differences: Vec<Difference<'a>>,
}

/// The registry's quotas.
#[derive(Serialize)]
struct JsonQuotas<'a> {
    none_stated: bool,
    limits: Vec<JsonQuota<'a>>,
}

/// One quota.
#[derive(Serialize)]
pub(crate) struct JsonQuota<'a> {
    source: Option<&'a str>,
    /// Null if the registry does not report it.
    limit: Option<u64>,
    remaining: u64,
    /// Null if the registry does not report it.
    window_ms: Option<u64>,
    reset_ms: Option<u64>,
}

impl<'a> JsonQuota<'a> {
    /// The quota as JSON.
    pub(crate) fn of(limit: &'a RegistryLimit) -> Self {
        Self {
            source: limit.source.as_deref(),
            limit: unless_zero(limit.limit),
            remaining: limit.remaining,
            window_ms: unless_zero(limit.window_ms),
            reset_ms: limit.reset_ms,
        }
    }
}

/// None for zero.
fn unless_zero(number: u64) -> Option<u64> {
    (number > 0).then_some(number)
}

/// The budget as JSON.
pub(crate) fn json(budget: &Budget) -> impl Serialize + '_ {
    let Budget { state, reported_by, nodes, alone, caps } = budget;
    JsonBudget {
        kind: "budget",
        owner: &state.owner,
        registry: registry_of_budget(&state.owner),
        leader: state.leader.as_ref(),
        epoch: state.epoch,
        leads: state.leads,
        learns: state.learns,
        per_second: (state.per_second > 0.0).then_some(state.per_second),
        per_second_by_policy: state.per_second_by_policy,
        per_second_in_force: (state.leads && state.per_second > 0.0).then_some(state.per_second_in_force),
        rate_cause: Some(state.rate_cause.as_str()).filter(|cause| !cause.is_empty()),
        rate_cause_ms: state.rate_cause_ms,
        at_once: unless_zero(state.at_once),
        at_once_by_policy: state.at_once_by_policy,
        policy_revision: state.policy_revision,
        in_flight: state.in_flight,
        waiting: &state.waiting,
        waiting_count: state.waiting_count,
        known: JsonQuotas { none_stated: state.known.none_stated, limits: state.known.limits.iter().map(JsonQuota::of).collect() },
        alone_total: state.alone_total,
        overrun_total: state.overrun_total,
        reported_by,
        node_count: *nodes,
        alone_nodes: alone,
        differences: differences(state, caps),
    }
}
