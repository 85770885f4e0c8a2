//! Effects of time on a budget client: requests and permits lapse, answers are missed, and finally the node goes alone.

use std::time::Duration;

use contract::PermitId;

use super::super::claim::Stage;
use super::super::{Alone, Effect};
use super::{BudgetClient, MISSES_TO_LOSE_LEADER};

/// A node with claims wakes every second. If it did not for this long, it slept or its clock jumped, so the lack of contact with a leader
/// shows nothing.
const SLEPT: Duration = Duration::from_secs(3);
/// A leader that does not answer is asked at least this often.
const HOLD_OFF_MAX: Duration = Duration::from_secs(2);

impl BudgetClient {
    /// How long a leader that does not answer is not asked, because it may already have more requests than it can handle.
    pub(super) fn hold_off(&self) -> Duration {
        match self.unanswered.1.checked_sub(MISSES_TO_LOSE_LEADER) {
            None => Duration::ZERO,
            Some(further) => (self.within() * (1 << further.min(3))).min(HOLD_OFF_MAX),
        }
    }

    pub(super) fn lapse(&mut self, now: Duration, wanted: &mut Vec<Effect>) {
        let slept = now.saturating_sub(self.last_step);
        self.last_step = self.last_step.max(now);
        if slept > SLEPT && !self.went_alone {
            self.leader_seen = (self.leader_seen + slept).min(now);
        }
        if slept > SLEPT {
            // Their callers slept as well.
            self.claims.change_all(|claim| claim.wanted = (claim.wanted + slept).min(now));
        }
        self.count_overruns(now, wanted);
        for permit in self.claims.lapsed(now) {
            let Some(claim) = self.claims.remove(permit).filter(|claim| !claim.stage.is_returned()) else { continue };
            wanted.push(Effect::Lapsed { permit });
            self.give_back(now, permit, claim.stage.is_in_flight(), claim.limits, None);
        }
        self.check_leader_until = self.check_leader_until.filter(|until| now < *until);
    }

    fn count_overruns(&mut self, now: Duration, wanted: &mut Vec<Effect>) {
        let in_flight: Vec<PermitId> = self.claims.in_flight().collect();
        for permit in in_flight {
            let Some(claim) = self.claims.get(permit) else { continue };
            let Stage::Held { until } = claim.stage else { continue };
            let (before, over) = (claim.overran, until <= now);
            if over && !before {
                self.overrun_total += 1;
                wanted.push(Effect::RanOut { permit, at: until });
            }
            if over != before {
                self.claims.change(permit, |claim| claim.overran = over);
            }
        }
    }

    /// Repeats requests that were not answered in time. After three misses since it answered, the leader counts as lost. If the lease still
    /// names it, it is asked less and less often, and the lease is looked up after each miss, because there may be another leader by then.
    pub(super) fn count_misses(&mut self, now: Duration) {
        let within = self.within();
        let late = |asked: Option<Duration>| asked.is_some_and(|asked| now >= asked + within);
        let ask_at = now + self.hold_off();
        let mut missed = false;
        let is_late = |permit: &PermitId| self.claims.get(*permit).is_some_and(|claim| late(claim.asked));
        for permit in self.claims.asked().filter(is_late).collect::<Vec<_>>() {
            missed = true;
            self.claims.change(permit, |claim| (claim.asked, claim.ask_at) = (None, ask_at));
        }
        if late(self.renew_asked) {
            (self.renew_asked, self.renew_at, missed) = (None, ask_at, true);
        }
        if missed && self.missed.is_none_or(|at| now >= at + within / 2) {
            self.missed = Some(now);
            self.unanswered.1 = self.unanswered.1.saturating_add(1);
            if self.unanswered.1 >= MISSES_TO_LOSE_LEADER {
                self.leader = None;
                self.campaign_at.get_or_insert(now);
            }
        }
    }

    /// If there was no leader for long, the node continues with its share, and always with at least one pull at a time.
    pub(super) fn go_alone(&mut self, now: Duration, wanted: &mut Vec<Effect>) {
        if !self.is_alone(now) || (self.membership.policy.alone == Alone::Share && self.remembered.is_used_up(now)) {
            return;
        }
        let waiting = self.may_go(now);
        if waiting.is_empty() {
            // A node without waiting requests does not go alone: its next pull looks for the leader first.
            return;
        }
        self.went_alone = true;
        let most = match (self.membership.alive, self.membership.policy.at_once as u64) {
            (_, 0) if self.membership.policy.per_second == 0.0 => u64::MAX,
            // The node does not know how many share the budget.
            (0, _) => 1,
            (_, 0) => u64::MAX,
            (nodes, at_once) => (at_once / nodes).max(1),
        };
        // The node may learn how many share the budget after its first pull.
        self.rate_alone.set(self.membership.policy.per_second / self.membership.alive.max(1) as f64);
        for permit in waiting {
            let in_flight = self.in_flight();
            if in_flight >= most || !(self.rate_alone.take(now) || in_flight == 0) {
                return;
            }
            if self.claims.change(permit, |claim| claim.stage = Stage::Alone).is_some() {
                self.own_rate_limiter.take(now);
                self.alone_total += 1;
                wanted.push(self.granted(permit, true));
            }
        }
    }
}
