//! Forgets the quota of a budget.

use std::collections::VecDeque;
use std::time::Duration;

use clock::Now;

use super::super::step::Effect;
use super::Budgets;

impl Budgets {
    /// Whether a quota of the owner is known, to this node as a client or as the leader.
    #[must_use]
    pub fn knows_quota(&self, now: Now, owner: &str) -> bool {
        let now = now.monotonic;
        let Some(budget) = self.budgets.get(owner) else { return false };
        let as_leader = budget.lead.as_ref().is_some_and(|lead| !lead.core.known(now).limits.is_empty());
        as_leader || budget.client.remembered.is_limited(now)
    }

    /// Forgets the quota of an owner, as the leader and as a client. One pull then asks the registry.
    pub(super) fn forget_quota(&mut self, now: Duration, owner: &str, work: &mut VecDeque<Effect>) {
        if let Some(lead) = self.lead_mut(owner) {
            lead.core.forget_quota(now);
            work.extend(lead.core.take_turns());
        }
        self.client(now, owner, |client| client.forget_quota(now), work);
    }
}
