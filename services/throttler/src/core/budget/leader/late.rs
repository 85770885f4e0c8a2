//! Permits that are fetched late: each takes another turn of the rate, so that late pulls do not begin together.

use std::time::Duration;

use contract::messages::throttler::{BudgetAnswer, BudgetTurn, GrantBudget};

use super::Leader;
use crate::core::budget::HELD_UP;
use crate::core::budget::permits::Permit;

/// A permit that is fetched late takes another turn of the rate at most this often. A node that is late each time has a slow connection.
const LATE_TURNS: u8 = 3;

impl Leader {
    /// Whether a permit that is fetched `after` its turn takes another one, so that late permits do not begin together.
    pub(super) fn takes_another_turn(&self, permit: &Permit, after: Duration) -> bool {
        permit.late < LATE_TURNS && after > self.fetches.usual_at_best() + HELD_UP
    }

    /// A node that asks again for a granted permit has not begun, because the answer was lost. It takes a further turn of the rate, the
    /// next one.
    pub(super) fn claimed_late(&mut self, now: Duration, ask: &GrantBudget) -> BudgetAnswer {
        self.permits.claimed_late(now, ask.permit);
        self.admit(now);
        let Some(ahead) = self.permits.late_before(ask.permit) else { return self.claimed(now, ask) };
        let wait_ms = self.rate_limiter.ready_in(now, ahead).as_millis() as u64;
        BudgetAnswer::Queued { epoch: self.term.epoch, ahead, wait_ms, known: self.limits_for(now, &ask.node), caps: self.caps() }
    }

    /// Permits that are asked for again precede the queue, because each was granted once and counts as out.
    pub(super) fn admit_late(&mut self, now: Duration) {
        while let Some((node, permit)) = self.permits.first_late() {
            if !self.rate_limiter.take(now) {
                return;
            }
            self.permits.grant_again(now, permit);
            self.turns.push((node, BudgetTurn { owner: self.owner.clone(), permit }));
        }
    }
}
