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
            self.learn_first_hand(now, limits);
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

    /// A pull of this node has stated these limits.
    pub(super) fn learn_first_hand(&mut self, now: Duration, limits: &[RegistryLimit]) {
        self.remembered.learn_first_hand(now, limits);
        self.note_stated(now, limits);
    }

    /// Limits that a pull of this node has stated are news, or a leader has confirmed that it received them. Its answers to requests from
    /// before may not include them.
    pub(super) fn note_stated(&mut self, now: Duration, limits: &[RegistryLimit]) {
        if !limits.is_empty() {
            self.limits_stated_at = Some(now);
        }
    }

    /// Whether a leader that has answered a request of `asked` had received all that pulls of this node have stated.
    pub(super) fn is_leader_informed(&self, asked: Duration) -> bool {
        self.is_of_this_term(asked) && self.limits_stated_at.is_none_or(|at| at < asked && !self.has_unreported_limits())
    }

    /// Whether a request of `asked` was sent in the term of the leader that this node follows. An answer that arrives after the leader was
    /// lost may be of its next term, in which it knows nothing.
    pub(super) fn is_of_this_term(&self, asked: Duration) -> bool {
        self.leader.is_some() && asked >= self.followed_at
    }

    fn has_unreported_limits(&self) -> bool {
        let is_unreported = |claim: &Claim| !claim.limits_sent && claim.limits.as_ref().is_some_and(|limits| !limits.is_empty());
        self.claims.in_flight().chain(self.claims.returned()).filter_map(|permit| self.claims.get(permit)).any(is_unreported)
    }

    /// Keeps a node that knows a quota in contact with the leader for a while. If the leader dies, no other node may know of this node's
    /// pull, and a node without claims does not look for the next leader.
    pub(super) fn check_that_leader_knows_quota(&mut self, now: Duration) {
        if self.remembered.is_limited(now) {
            self.check_leader_until = Some(now + CHECK_LEADER_FOR);
        }
    }
}
