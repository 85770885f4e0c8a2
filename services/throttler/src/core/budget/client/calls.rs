//! Requests to the leader: renewals first, then requests for permits, then returns.

use std::time::Duration;

use contract::messages::throttler::{BUDGET_PERMITS_PER_NODE, GrantBudget, KnownLimits, PermitLimits, RenewBudget, ReturnBudget};
use contract::{DEADLINES, NodeName, PermitId};

use super::super::claim::Stage;
use super::super::{BudgetRequest, Effect};
use super::BudgetClient;

/// How often a node without claims renews after a pull under a quota, so that a new leader learns the quota.
const CHECK_LEADER_EVERY: Duration = Duration::from_secs(2);

impl BudgetClient {
    pub(super) fn call_leader(&mut self, now: Duration, leader: &NodeName, epoch: u64, wanted: &mut Vec<Effect>) {
        self.call_renew(now, leader, epoch, wanted);
        let known = self.news_for(now, epoch);
        let is_due = |permit: &PermitId| self.claims.get(*permit).is_some_and(|claim| claim.asked.is_none() && claim.ask_at <= now);
        let due: Vec<PermitId> = self.may_go(now).into_iter().chain(self.claims.returned()).filter(is_due).collect();
        for permit in due {
            self.claims.change(permit, |claim| claim.asked = Some(now));
            let Some(claim) = self.claims.get(permit) else { continue };
            let (owner, node) = (self.membership.owner.clone(), self.membership.node.clone());
            let call = if let Stage::Returned { used, served } = claim.stage {
                BudgetRequest::Return(ReturnBudget { owner, node, permit, used, limits: claim.limits.clone(), served })
            } else {
                BudgetRequest::Grant(GrantBudget { owner, node, permit, known: known.clone(), caps: self.membership.settings })
            };
            wanted.push(Effect::Call { to: leader.clone(), asked: now, call });
        }
    }

    fn call_renew(&mut self, now: Duration, leader: &NodeName, epoch: u64, wanted: &mut Vec<Effect>) {
        let permits = self.held();
        let news = self.informed_epoch != epoch && !self.remembered.is_empty();
        if self.renew_asked.is_some() || now < self.renew_at || (permits.is_empty() && !news && self.check_leader_until.is_none()) {
            return;
        }
        let unsent = |permit| {
            let claim = self.claims.get(permit).filter(|claim| !claim.limits_sent)?;
            Some(PermitLimits { permit, limits: claim.limits.clone()? })
        };
        let limits = self.claims.in_flight().filter_map(unsent).collect();
        let known = self.news_for(now, epoch);
        (self.renew_asked, self.renew_at) =
            (Some(now), now + if permits.is_empty() { CHECK_LEADER_EVERY } else { DEADLINES.budget_permit_renewed_every });
        let renew = RenewBudget { owner: self.membership.owner.clone(), node: self.membership.node.clone(), permits, limits, known };
        wanted.push(Effect::Call { to: leader.clone(), asked: now, call: BudgetRequest::Renew(renew) });
    }

    /// What the node knows of the quota; nothing if it has sent that to the leader of this epoch.
    fn news_for(&self, now: Duration, epoch: u64) -> KnownLimits {
        if self.informed_epoch == epoch { KnownLimits::default() } else { self.remembered.known(now) }
    }

    fn held(&self) -> Vec<PermitId> {
        self.claims.in_flight().take(BUDGET_PERMITS_PER_NODE).collect()
    }
}
