//! Queries of a node's budgets: the next tick, the waits of requests, and the counters.

use std::time::Duration;

use clock::Now;
use contract::PermitId;
use contract::messages::throttler::PermitCounts;

use super::{Budget, Budgets};
use crate::core::budget::claim::BudgetWait;
use crate::core::budget::client::BudgetClient;

/// The shortest time until the next tick, whatever is due.
const TICK_LEAST: Duration = Duration::from_micros(500);

impl Budgets {
    /// How long until the next tick is due at the latest; none if nothing is pending.
    #[must_use]
    pub fn wake_in(&self, now: Now) -> Option<Duration> {
        let now = now.monotonic;
        let of_budget = |budget: &Budget| {
            let lead = budget.lead.as_ref().and_then(|lead| lead.core.wake_at(now));
            [budget.client.wake_at(now), lead, budget.lease.next_due()]
        };
        self.budgets.values().flat_map(of_budget).flatten().min().map(|at| at.saturating_sub(now).max(TICK_LEAST))
    }

    /// How long a request has to wait; none if it does not wait.
    #[must_use]
    pub fn wait_of(&self, now: Now, permit: PermitId) -> Option<BudgetWait> {
        self.budgets.get(self.owners.get(&permit)?)?.client.wait_of(now.monotonic, permit)
    }

    /// The waits of the requests whose turn a leader has stated.
    pub fn known_waits(&self, now: Now) -> impl Iterator<Item = (PermitId, BudgetWait)> {
        self.budgets.values().flat_map(move |budget| budget.client.known_waits(now.monotonic))
    }

    /// Adds the counters of the budgets to those of the node's own queue.
    #[must_use]
    pub fn count(&self, own: PermitCounts) -> PermitCounts {
        let clients = || self.budgets.values().map(|budget| &budget.client);
        PermitCounts {
            budgets: self.budgets.len() as u64,
            budgets_led: self.leads().count() as u64,
            budget_waiting: clients().map(BudgetClient::waiting).sum(),
            budget_in_flight: clients().map(BudgetClient::in_flight).sum(),
            alone_total: clients().map(|client| client.alone_total).sum(),
            overrun_total: clients().map(|client| client.overrun_total).sum(),
            forgotten_total: self.forgotten_total,
            policy_revision: self.policies.revision,
            ..own
        }
    }

    /// How many claims were looked at since the last call.
    #[cfg(test)]
    pub(in crate::core::budget) fn take_looked_at(&self) -> usize {
        self.budgets.values().map(|budget| budget.client.take_looked_at()).sum()
    }

    /// Whether the fleet policy only observes: then no budget of the fleet holds back a pull.
    #[must_use]
    pub fn observes(&self) -> bool {
        self.policies.observes()
    }

    /// The epoch in which this node leads the owner's budget.
    #[must_use]
    pub fn epoch_led(&self, owner: &str) -> Option<u64> {
        self.lead(owner).map(|lead| lead.core.term.epoch)
    }
}
