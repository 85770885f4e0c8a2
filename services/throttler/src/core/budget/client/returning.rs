//! Returns permits, and reports quotas to the leader with them.

use std::time::Duration;

use contract::PermitId;
use contract::messages::throttler::RegistryLimit;

use super::super::Effect;
use super::super::claim::{Return, Stage};
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
        let Some(claim) = self.claims.remove(permit) else { return Vec::new() };
        let unsent = if limits.is_empty() { claim.limits.filter(|_| !claim.limits_sent) } else { Some(limits) };
        if let Some(limits) = &unsent {
            self.remembered.learn_first_hand(now, limits);
        }
        if claim.stage != Stage::Waiting {
            self.check_that_leader_knows_quota(now);
        }
        self.give_back(now, permit, claim.stage != Stage::Waiting, unsent, served);
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
        if self.returns.len() < RETURNS_MAX {
            self.returns.insert(permit, Return { used, limits, served, since: now, ask_at: now, asked: None });
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
