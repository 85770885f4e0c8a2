//! Handles a leader's replies.

use std::time::Duration;

use contract::messages::throttler::{BudgetAnswer, BudgetRenewed, BudgetReturned, KnownLimits, RenewBudget};
use contract::policy::Caps;
use contract::{DEADLINES, NodeName, PermitId};

use super::BudgetClient;
use crate::core::budget::claim::Stage;
use crate::core::budget::planted_bug::PlantedBug;
use crate::core::budget::{BudgetReply, BudgetRequest, Effect, HELD_UP};

/// A request is repeated this long after the leader should have called it.
const CALL_LATE: Duration = Duration::from_millis(300);

/// A grant that was held up begins too late to count in its own second, so it is asked for again and takes another turn. After this many
/// late grants, the next one is accepted.
const LATE_GRANTS: u8 = 2;

impl BudgetClient {
    /// Takes the answer to a request that was sent at `asked`.
    pub(in crate::core::budget) fn replied(
        &mut self,
        now: Duration,
        asked: Duration,
        call: &BudgetRequest,
        reply: BudgetReply,
    ) -> Vec<Effect> {
        // What was usual before this answer: the first one alone may have been held up.
        let usual = self.round_trips.usual();
        self.round_trips.saw(now, asked);
        if (now > asked + self.counts() || asked > now) && !matches!(reply, BudgetReply::Granted(BudgetAnswer::Queued { .. })) {
            // The leader may have taken the permit back by now. An answer this late does not count, unless it is `Queued`.
            return self.tick(now);
        }
        let mut wanted = Vec::new();
        match (call, reply) {
            (BudgetRequest::Grant(ask), BudgetReply::Granted(answer)) => self.answered(now, asked, usual, ask.permit, answer, &mut wanted),
            (BudgetRequest::Renew(renew), BudgetReply::Renewed(renewed)) => self.renewed(now, asked, renew, renewed),
            (BudgetRequest::Return(back), BudgetReply::Returned(BudgetReturned { epoch })) => {
                if self.accept(now, asked, epoch) && self.claims.get(back.permit).is_some_and(|claim| claim.stage.is_returned()) {
                    self.claims.remove(back.permit);
                    self.note_stated(now, back.limits.as_deref().unwrap_or_default());
                }
            }
            (_, _) => {}
        }
        wanted.extend(self.tick(now));
        wanted
    }

    pub(super) fn follow_leader(&mut self, now: Duration, node: NodeName, epoch: u64) {
        (self.leader, self.followed_at) = (Some((node, epoch)), now);
        (self.missed, self.campaign_at, self.renew_asked) = (None, None, None);
        if self.unanswered.0 != epoch {
            self.unanswered = (epoch, 0);
        }
        let ask_at = now + self.hold_off();
        self.renew_at = ask_at;
        self.claims.change_all(|claim| (claim.asked, claim.ask_at, claim.limits_sent) = (None, ask_at, false));
    }

    /// Whether a leader's message counts. If it does, its epoch is remembered.
    pub(super) fn accept(&mut self, now: Duration, asked: Duration, epoch: u64) -> bool {
        if epoch == 0 {
            // The node that the lease named does not lead, so the lease is read again.
            self.leader = None;
            self.campaign_at.get_or_insert(now + DEADLINES.leader_answer.least);
            return false;
        }
        if self.is_past(now, epoch) {
            return false;
        }
        if asked >= self.followed_at
            && let Some((node, _)) = self.leader.take_if(|(_, known)| *known < epoch)
        {
            // It has lost the lease and won it again, and begins the new term without knowledge.
            self.follow_leader(now, node, epoch);
        }
        self.fence = (epoch, now);
        self.leader_seen = now;
        if now <= asked + self.counts() {
            // After a later answer, the next one may be as late, so the leader is asked no more often than before.
            (self.missed, self.unanswered, self.went_alone) = (None, (epoch, 0), false);
        }
        true
    }

    /// Whether an epoch is past: the leader of a later one may still live. This ends after a time, because a wiped bucket starts over.
    pub(super) fn is_past(&self, now: Duration, epoch: u64) -> bool {
        epoch < self.fence.0 && now < self.fence.1 + 2 * DEADLINES.leader_lease && self.membership.planted_bug != Some(PlantedBug::NoFence)
    }

    fn answered(
        &mut self,
        now: Duration,
        asked: Duration,
        usual: Duration,
        permit: PermitId,
        answer: BudgetAnswer,
        wanted: &mut Vec<Effect>,
    ) {
        let epoch = match &answer {
            BudgetAnswer::Granted { epoch, .. } | BudgetAnswer::Queued { epoch, .. } | BudgetAnswer::Refused { epoch, .. } => *epoch,
            BudgetAnswer::NotLeading {} | BudgetAnswer::Unknown { .. } => 0,
        };
        let counts = self.accept(now, asked, epoch);
        if self.claims.get(permit).is_some_and(|claim| claim.asked == Some(asked) && !claim.stage.is_returned()) {
            self.claims.change(permit, |claim| (claim.asked, claim.ask_at) = (None, now + CALL_LATE));
        }
        if !counts {
            return;
        }
        match answer {
            BudgetAnswer::Granted { lease_ms, known, caps, .. } => {
                self.leader_states(now, asked, epoch, &known, caps);
                let took = now.saturating_sub(asked);
                let until = asked + Duration::from_millis(lease_ms).min(DEADLINES.budget_permit_lease);
                let is_late = took > usual + HELD_UP;
                let begins = self.claims.change_waiting(permit, |claim| {
                    let begins = !is_late || claim.late >= LATE_GRANTS;
                    if begins {
                        claim.stage = Stage::Held { until };
                    } else {
                        (claim.late, claim.ask_at) = (claim.late + 1, now);
                    }
                    begins
                });
                if begins == Some(true) {
                    self.own_rate_limiter.take(now);
                    wanted.push(self.granted(permit, false));
                }
            }
            BudgetAnswer::Queued { ahead, wait_ms, known, caps, .. } => {
                self.leader_states(now, asked, epoch, &known, caps);
                let wait = Duration::from_millis(wait_ms);
                self.claims.change_waiting(permit, |claim| {
                    (claim.ahead, claim.turn_at) = (ahead, Some(now + wait));
                    claim.ask_at = now + (wait + CALL_LATE).min(DEADLINES.budget_asked_again);
                });
            }
            BudgetAnswer::Refused { text, .. } => {
                if self.claims.get(permit).is_some_and(|claim| claim.stage == Stage::Waiting) {
                    self.claims.remove(permit);
                    wanted.push(Effect::Refused { permit, text });
                }
            }
            BudgetAnswer::NotLeading {} | BudgetAnswer::Unknown { .. } => {}
        }
    }

    /// The leader of this epoch has answered the request of `asked`. A request that was made in this term contained what this node knew. A
    /// pull's return may still be under way.
    fn leader_states(&mut self, now: Duration, asked: Duration, epoch: u64, known: &KnownLimits, caps: Caps) {
        if caps != Caps::NONE {
            self.set_caps_in_force(caps);
        }
        let is_informed = self.is_leader_informed(asked);
        self.remembered.learn(now, is_informed, known);
        if self.is_of_this_term(asked) {
            self.informed_epoch = epoch;
        }
    }

    pub(super) fn renewed(&mut self, now: Duration, asked: Duration, renew: &RenewBudget, renewed: BudgetRenewed) {
        if self.renew_asked == Some(asked) {
            self.renew_asked = None;
        }
        if !self.accept(now, asked, renewed.epoch) {
            return;
        }
        self.leader_states(now, asked, renewed.epoch, &renewed.known, Caps::NONE);
        for stated in &renew.limits {
            self.claims.change(stated.permit, |claim| claim.limits_sent = true);
            self.note_stated(now, &stated.limits);
        }
        let renewed_until = asked.min(now) + DEADLINES.budget_permit_lease;
        for permit in renewed.kept {
            let until = match self.claims.get(permit).map(|claim| claim.stage) {
                // The answer to a later renewal may have come first.
                Some(Stage::Held { until }) => until.max(renewed_until),
                Some(Stage::Alone) => renewed_until,
                _ => continue,
            };
            self.claims.change(permit, |claim| claim.stage = Stage::Held { until });
        }
    }
}
