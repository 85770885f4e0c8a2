//! Lists a node's budgets for people.

use std::time::Duration;

use clock::Now;
use contract::list_bounds::keep_fitting;
use contract::messages::throttler::{BudgetList, BudgetState};

use super::{Budget, Budgets};

/// The most waiters that are listed for each budget.
const WAITERS_LISTED: usize = 100;
/// The most waiters that are listed for all budgets, in equal shares: at 0.3 KiB each, if names are as long as they may be, 600 KiB.
const ALL_WAITERS_LISTED: usize = 2_000;

/// How many waiters are listed for each of so many budgets.
fn waiters_of_each(budgets: usize) -> usize {
    WAITERS_LISTED.min(ALL_WAITERS_LISTED / budgets.max(1))
}

impl Budgets {
    /// The state of the budgets, as many as fit into one answer.
    #[must_use]
    pub fn list(&self, now: Now) -> BudgetList {
        let now = now.monotonic;
        let waiters = waiters_of_each(self.budgets.len());
        let mut budgets: Vec<BudgetState> = self.budgets.iter().map(|(owner, budget)| self.state(now, owner, budget, waiters)).collect();
        let left_out = keep_fitting(&mut budgets);
        BudgetList { budgets, forgotten_total: self.forgotten_total, left_out }
    }

    fn state(&self, now: Duration, owner: &str, Budget { client, lead, .. }: &Budget, waiters: usize) -> BudgetState {
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
            waiting: lead.map_or_else(Vec::new, |lead| lead.core.waiters(now, waiters)),
            waiting_count: lead.map_or(client.waiting(), |lead| lead.core.waiting()),
            known: lead.map_or_else(|| client.remembered.known(now), |lead| lead.core.known(now)),
            alone: client.is_alone(now) && !client.is_idle(),
            alone_total: client.alone_total,
            overrun_total: client.overrun_total,
            observes: self.observes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use clock::Random;
    use contract::PermitId;

    use super::*;
    use crate::core::budget::{BudgetPolicy, Input};

    #[test]
    fn budgets_are_listed_as_far_as_a_message_takes_them() {
        let (now, random) = (Now::default().after(Duration::from_secs(100)), &mut Random::seeded(1));
        let mut budgets = Budgets::new("n1".parse().expect("a name"), BudgetPolicy::default(), Random::seeded(2));
        for number in 0..500 {
            let owner = format!("{number:03}{}", "x".repeat(4_000));
            budgets.step(now, Input::Want { owner, permit: PermitId::random(random) });
        }
        let list = budgets.list(now);
        assert!(list.budgets[0].owner.starts_with("000") && list.budgets.len() < 230, "{}", list.budgets.len());
        assert_eq!(list.budgets.len() as u64 + list.left_out, 500);
    }

    #[test]
    fn many_budgets_list_few_waiters_each() {
        assert_eq!([0, 1, 20, 21, 1_000].map(waiters_of_each), [100, 100, 100, 95, 2]);
    }
}
