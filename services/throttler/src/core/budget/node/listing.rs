//! Lists a node's budgets for people.

use std::time::Duration;

use clock::Now;
use contract::messages::throttler::{BudgetList, BudgetState};

use super::{Budget, Budgets};

/// How many waiters are listed for each budget.
const WAITERS_LISTED: usize = 100;

impl Budgets {
    /// The state of all budgets.
    #[must_use]
    pub fn list(&self, now: Now) -> BudgetList {
        let now = now.monotonic;
        let budgets = self.budgets.iter().map(|(owner, budget)| self.state(now, owner, budget)).collect();
        BudgetList { budgets, forgotten_total: self.forgotten_total }
    }

    fn state(&self, now: Duration, owner: &str, Budget { client, lead, .. }: &Budget) -> BudgetState {
        let lead = lead.as_ref();
        let (fleet_caps, own) = (self.policies.fleet_caps_of(owner), client.own_caps());
        let in_force = lead.map_or(client.in_force, |lead| lead.core.caps());
        let per_second = in_force.pulls_per_second.unwrap_or_default();
        BudgetState {
            owner: owner.to_owned(),
            leader: client.leader.as_ref().map(|(node, _)| node.clone()),
            epoch: client.leader.as_ref().map_or(0, |(_, epoch)| *epoch),
            leads: lead.is_some(),
            learns: lead.is_some_and(|lead| lead.core.learns(now)),
            per_second,
            per_second_by_policy: fleet_caps.pulls_per_second.is_some(),
            per_second_of_node: own.pulls_per_second,
            per_second_in_force: lead.map_or(per_second, |lead| lead.core.in_force()),
            rate_cause: lead.map(|lead| lead.core.cause().as_str().to_owned()).unwrap_or_default(),
            rate_cause_ms: lead.map(|lead| now.saturating_sub(lead.cause.1).as_millis() as u64),
            at_once: in_force.pulls_at_once.unwrap_or_default(),
            at_once_by_policy: fleet_caps.pulls_at_once.is_some(),
            at_once_of_node: own.pulls_at_once,
            policy_revision: self.policies.revision,
            in_flight: lead.map_or(client.in_flight(), |lead| lead.core.in_flight()),
            waiting: lead.map_or_else(Vec::new, |lead| lead.core.waiters(now, WAITERS_LISTED)),
            waiting_count: lead.map_or(client.waiting(), |lead| lead.core.waiting()),
            known: lead.map_or_else(|| client.remembered.known(now), |lead| lead.core.known(now)),
            alone: client.is_alone(now) && !client.is_idle(),
            alone_total: client.alone_total,
            overrun_total: client.overrun_total,
            observes: self.observes(),
        }
    }
}
