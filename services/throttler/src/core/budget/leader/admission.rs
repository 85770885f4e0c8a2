//! Which waiting nodes a leader grants permits to, and when.

use std::time::Duration;

use contract::messages::throttler::{BUDGET_PERMITS_PER_NODE, BudgetTurn};
use contract::{NodeName, PermitId};

use super::{AWAKE_EVERY, Leader};
use crate::core::budget::planted_bug::PlantedBug;
use crate::core::budget::silence;

/// If no other node has called for this long, the leader may grant itself a permit. Waiting nodes ask more often than this.
const OTHERS_AWAITED: Duration = Duration::from_secs(6);
/// The most permits that a leader has out at a time.
pub(super) const PERMITS_MAX: u64 = 50_000;

impl Leader {
    pub(super) fn admit(&mut self, now: Duration) {
        if self.admits_from(now) > now {
            return;
        }
        self.admit_late(now);
        while let Some(permit) = self.next_turn(now) {
            if !(self.planted_bug == Some(PlantedBug::Unpaced) || self.rate_limiter.take(now)) {
                return;
            }
            let Some(node) = self.permits.call(now, permit) else { return };
            self.own_pull_announced &= node != self.node;
            self.turns.push((node, BudgetTurn { owner: self.owner.clone(), permit }));
            if let Some(adaptive) = &mut self.adaptive {
                adaptive.granted(now);
            }
        }
    }

    /// When the leader has to look next at what waits, if no message comes. Until then it can grant no permit, as far as it knows.
    pub(super) fn next_admission(&self, now: Duration) -> Option<Duration> {
        let from = self.admits_from(now);
        let due = from.max(now + self.rate_limiter.ready_in(now, 0));
        let turn = (self.permits.waiting() > 0).then(|| {
            let may_be_granted = from > now || self.next_turn(now).is_some();
            if may_be_granted { due } else { self.last_step + AWAKE_EVERY }
        });
        let late = self.permits.first_late().map(|_| due);
        turn.into_iter().chain(late).min()
    }

    /// From when on permits are granted, if messages change nothing: not while the leader learns, and not while the registry is silent.
    fn admits_from(&self, now: Duration) -> Duration {
        match self.silence.ends() {
            _ if self.learns(now) => self.learns_until,
            Some(ends) if self.is_silent(now) => ends,
            _ => now,
        }
    }

    /// The next request whose node may have a permit now, if the rate allows one.
    fn next_turn(&self, now: Duration) -> Option<PermitId> {
        if self.permits.waiting() == 0 || self.is_full() {
            return None;
        }
        let allowance = self.quota.allows(now, self.out())?;
        let (may_pull_itself, most) = (self.may_pull_itself(now), self.most_of_one());
        let first = |most: u64| {
            self.permits.first_waiting(|node| {
                self.permits.held_by(node) < most && (may_pull_itself || *node != self.node) && allowance.is_for(node)
            })
        };
        // Nodes with a quarter of the slots are passed over while others wait, because their pulls may wait for slots of their own.
        self.slots().and_then(|slots| first(quarter(slots).min(most))).or_else(|| first(most))
    }

    /// Whether the registry answered before and now answers no node.
    pub(super) fn is_silent(&self, now: Duration) -> bool {
        let Some(unanswered) = self.silence.unanswered(now) else { return false };
        self.permits.unanswered_of(unanswered).take(silence::PULLS).count() == silence::PULLS
    }

    fn may_pull_itself(&self, now: Duration) -> bool {
        !self.quota.is_limited() || self.own_pull_announced || self.others_last_seen.is_none_or(|seen| now > seen + OTHERS_AWAITED)
    }

    pub(super) fn slots(&self) -> Option<u64> {
        let at_once = self.policy.at_once as u64;
        (at_once > 0).then(|| ((at_once as f64 * (1.0 - self.reserved())) as u64).max(1))
    }

    pub(super) fn is_full(&self) -> bool {
        let most = self.slots().map_or(PERMITS_MAX, |slots| slots.min(PERMITS_MAX));
        self.permits.out_count() >= most
    }

    /// The most permits of one node. A quarter of the slots is left to the others, so that a node that never returns a permit does not keep
    /// them from pulling. If the owner sets no limit, a node may have as many as it may renew.
    pub(super) fn most_of_one(&self) -> u64 {
        let all = BUDGET_PERMITS_PER_NODE as u64;
        match self.slots() {
            None => all,
            Some(slots) if self.nodes == 1 => slots.min(all),
            Some(slots) => slots.saturating_sub(quarter(slots)).clamp(1, all),
        }
    }

    /// How many unknown permits the leader takes over from a node: while it learns, all that the node may hold; later, a quarter of the
    /// slots while there is room.
    pub(super) fn strangers_taken(&self, now: Duration, node: &NodeName) -> u64 {
        let most = match self.slots() {
            Some(_) if !self.learns(now) && self.is_full() => 0,
            Some(slots) if !self.learns(now) => quarter(slots).min(self.most_of_one()),
            _ => self.most_of_one(),
        };
        most.saturating_sub(self.permits.held_by(node))
    }
}

/// A quarter of the slots, at least one.
fn quarter(slots: u64) -> u64 {
    (slots / 4).max(1)
}
