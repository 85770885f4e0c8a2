//! Returns permits, and reports quotas to the leader with them.

use std::time::Duration;

use contract::PermitId;
use contract::messages::throttler::RegistryLimit;

use super::super::Effect;
use super::super::claim::Claim;
use super::{BudgetClient, RETURNS_MAX};

/// How long after a pull, or after the bus came back, a node checks the leader. By then a leader that died has a successor that knows the
/// quota.
const CHECK_LEADER_FOR: Duration = Duration::from_secs(10);

impl BudgetClient {
    pub(in crate::core::budget) fn release(
        &mut self,
        now: Duration,
        permit: PermitId,
        limits: Vec<RegistryLimit>,
        served: Option<bool>,
    ) -> Vec<Effect> {
        let Some(claim) = self.claims.get(permit).filter(|claim| !claim.stage.is_returned()) else { return Vec::new() };
        let used = claim.stage.is_in_flight();
        let unsent = if limits.is_empty() { claim.limits.clone().filter(|_| !claim.limits_sent) } else { Some(limits) };
        if let Some(limits) = &unsent {
            self.remembered.learn_first_hand(now, limits);
        }
        if used {
            self.check_that_leader_knows_quota(now);
        }
        self.give_back(now, permit, used, unsent, served);
        self.tick(now)
    }

    /// Has the leader informed that a permit is not needed any more.
    pub(super) fn give_back(
        &mut self,
        now: Duration,
        permit: PermitId,
        used: bool,
        limits: Option<Vec<RegistryLimit>>,
        served: Option<bool>,
    ) {
        self.claims.remove(permit);
        if self.claims.returned_count() < RETURNS_MAX {
            self.claims.insert(permit, Claim::returned(now, used, served, limits));
        }
    }

    /// Keeps a node that knows a quota in contact with the leader for a while. If the leader dies, no other node may know of this node's
    /// pull, and a node without claims does not look for the next leader.
    pub(super) fn check_that_leader_knows_quota(&mut self, now: Duration) {
        if self.remembered.is_limited(now) {
            self.check_leader_until = Some(now + CHECK_LEADER_FOR);
        }
    }
}
