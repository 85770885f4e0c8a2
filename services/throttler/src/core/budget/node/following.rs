//! Applies a changed fleet policy to a node's budgets.

use std::collections::VecDeque;
use std::time::Duration;

use contract::policy::FleetPolicy;

use super::stated_caps::StatedCaps;
use super::{Budget, Budgets};
use crate::core::budget::planted_bug::PlantedBug;
use crate::core::budget::{BudgetPolicy, Effect};

impl Budgets {
    /// Sets each budget to the limits in force. Permits that are out stay out.
    pub(super) fn follow(&mut self, now: Duration, policy: FleetPolicy, revision: u64, work: &mut VecDeque<Effect>) {
        (self.policies.fleet, self.policies.revision) = (policy, revision);
        for (owner, budget) in &mut self.budgets {
            work.extend(budget.client.set_policy(now, self.policies.of(owner)));
        }
        for owner in self.leads().map(|(owner, _)| owner.clone()).collect::<Vec<_>>() {
            self.set_caps(now, &owner);
            let Some(lead) = self.lead_mut(&owner) else { continue };
            lead.core.tick(now);
            work.extend(lead.core.take_turns());
        }
    }

    /// Sets the caps in force of a budget that this node leads.
    pub(super) fn set_caps(&mut self, now: Duration, owner: &str) {
        let Some(policy) = self.lead(owner).map(|lead| self.policy_of_leader(owner, &lead.stated_caps)) else { return };
        let Some(Budget { client, lead: Some(lead), .. }) = self.budgets.get_mut(owner) else { return };
        lead.core.set_policy(now, policy);
        client.set_caps_in_force(lead.core.caps());
    }

    /// The limits for a budget that this node leads.
    pub(super) fn policy_of_leader(&self, owner: &str, stated_caps: &StatedCaps) -> BudgetPolicy {
        let settings = self.policies.settings;
        if self.planted_bug == Some(PlantedBug::PolicyIgnored) {
            return settings;
        }
        settings.with(stated_caps.median()).with(self.policies.fleet_caps_of(owner))
    }
}
