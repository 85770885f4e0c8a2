//! The leader of one budget: it grants the fleet's permits and takes them back.

mod admission;
mod late;
mod limits;
mod rate_in_force;
#[cfg(test)]
mod tests;
mod waiting;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use clock::RoundTrips;
use contract::messages::throttler::{
    BUDGET_PERMITS_PER_NODE, BudgetAnswer, BudgetRenewed, BudgetTurn, GrantBudget, KnownLimits, PermitLimits, RenewBudget, ReturnBudget,
};
use contract::policy::Caps;
use contract::{DEADLINES, NodeName, PermitId};

use self::admission::PERMITS_MAX;
use self::rate_in_force::adaptive;
use super::BudgetPolicy;
use super::adaptive_rate::AdaptiveRate;
use super::fair_queue::FairQueue;
use super::permits::{Permits, Stage};
use super::planted_bug::PlantedBug;
use super::quota::{Out, Quota};
use super::rate_limiter::RateLimiter;
use super::silence::Silence;
use super::step::Effect;

/// A returned permit is remembered for this long, so that a late copy of its request does not get it again; messages are late by seconds.
const RETURNED_REMEMBERED: Duration = Duration::from_secs(15);
/// The most returned permits that are remembered: 15 s of returns at twice the default rate.
const RETURNED_MAX: usize = 6_000;
/// After a stall longer than this, the leader extends permit leases instead of expiring them.
const STALLED: Duration = Duration::from_secs(1);
/// The shortest time between two looks for expired permits and waits, because 1,000 nodes may ask within one such time.
const LOOKED_EVERY: Duration = Duration::from_millis(20);
/// A leader with permits out checks the time at least this often, so that it notices a stall.
const AWAKE_EVERY: Duration = Duration::from_millis(500);
/// The length of a pull from which waits are stated until it is measured.
const PULL_EXPECTED: Duration = Duration::from_secs(5);

/// How a leader's term began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Term {
    /// The epoch of this term, higher than any before: see [`contract::know::lease_epoch`].
    pub epoch: u64,
    /// No node has led this budget lately, and the record of that was not lost, so there is nothing to learn.
    pub first: bool,
    /// Until when the lease lasts, on this node's clock.
    pub until: Duration,
}

#[derive(Debug)]
pub(super) struct Leader {
    owner: String,
    node: NodeName,
    policy: BudgetPolicy,
    pub(super) term: Term,
    since: Duration,
    learns_until: Duration,
    rate_limiter: RateLimiter,
    /// The rate that `rate_limiter` is set to.
    limited_to: f64,
    /// The rate that the registry turns out to sustain; none: the owner sets no cap.
    adaptive: Option<AdaptiveRate>,
    silence: Silence,
    quota: Quota,
    queue: FairQueue,
    permits: Permits,
    /// Permits whose holders have asked again and wait for another turn of the rate.
    late: BTreeSet<PermitId>,
    returned: BTreeMap<PermitId, Duration>,
    /// The share of the budget that is kept for silent nodes.
    reserved: f64,
    /// The rate that is left, however many nodes are silent.
    least: f64,
    /// This node is the only known node of the fleet.
    only_node: bool,
    last_step: Duration,
    /// When lapsed permits were looked for last.
    looked: Option<Duration>,
    pull_takes: Duration,
    /// How long after a call a permit is fetched.
    fetches: RoundTrips,
    turns: Vec<(NodeName, BudgetTurn)>,
    /// The limits that were sent to other nodes already count one more pull of this node, so it may pull. If a leader dies, no other node
    /// knows of its own pulls.
    own_pull_announced: bool,
    /// When another node was last seen.
    others_last_seen: Option<Duration>,
    planted_bug: Option<PlantedBug>,
}

impl Leader {
    pub(super) fn new(
        now: Duration,
        node: NodeName,
        owner: &str,
        policy: BudgetPolicy,
        term: Term,
        planted_bug: Option<PlantedBug>,
    ) -> Self {
        let learns = !term.first && planted_bug != Some(PlantedBug::LearnsNothing);
        let mut leader = Self {
            owner: owner.to_owned(),
            node,
            policy,
            term,
            since: now,
            learns_until: if learns { now + DEADLINES.budget_permit_lease } else { now },
            rate_limiter: RateLimiter::new(policy.per_second),
            limited_to: policy.per_second,
            adaptive: adaptive(now, policy),
            silence: Silence::default(),
            quota: Quota::new(planted_bug),
            queue: FairQueue::default(),
            permits: Permits::default(),
            late: BTreeSet::new(),
            returned: BTreeMap::new(),
            reserved: 0.0,
            least: 0.0,
            only_node: false,
            last_step: now,
            looked: None,
            pull_takes: PULL_EXPECTED,
            fetches: RoundTrips::expected(Duration::ZERO),
            turns: Vec::new(),
            own_pull_announced: false,
            others_last_seen: None,
            planted_bug,
        };
        leader.set_rate_limiter();
        leader
    }

    /// Whether the lease still lasts.
    pub(super) fn leads(&self, now: Duration) -> bool {
        now < self.term.until || self.planted_bug == Some(PlantedBug::NoFence)
    }

    pub(super) fn learns(&self, now: Duration) -> bool {
        now < self.learns_until
    }

    pub(super) fn ask(&mut self, now: Duration, ask: &GrantBudget) -> BudgetAnswer {
        self.settle(now);
        self.learn_limits(now, &ask.node, &ask.known);
        let epoch = self.term.epoch;
        if self.is_of_another(ask.permit, &ask.node) {
            return BudgetAnswer::Refused { epoch, text: "another node holds this permit".to_owned() };
        }
        if self.returned.contains_key(&ask.permit) {
            return BudgetAnswer::Refused { epoch, text: "this permit was returned".to_owned() };
        }
        if let Some(permit) = self.permits.get(ask.permit) {
            match &permit.stage {
                Stage::Called(place, waiter) => {
                    let took = self.fetches.saw(now, permit.granted);
                    if !self.takes_another_turn(permit, took) {
                        return self.claimed(now, ask);
                    }
                    self.queue.put(*place, waiter.clone().fetched_late());
                    self.permits.remove(ask.permit);
                }
                Stage::Claimed => {
                    let late = self.takes_another_turn(permit, now.saturating_sub(permit.turn));
                    return if late { self.claimed_late(now, ask) } else { self.claimed(now, ask) };
                }
            }
        }
        if let Err(reason) = self.queue.join(now, &ask.node, ask.permit) {
            let text = format!("{reason} for the fleet's budget of {}: try again later", self.owner);
            return BudgetAnswer::Refused { epoch, text };
        }
        self.admit(now);
        if self.permits.contains(ask.permit) {
            return self.claimed(now, ask);
        }
        let ahead = self.queue.ahead_of(ask.permit).unwrap_or_default();
        let wait_ms = self.wait(now, ahead, &ask.node).as_millis() as u64;
        BudgetAnswer::Queued { epoch, ahead, wait_ms, known: self.limits_for(now, &ask.node), caps: self.caps() }
    }

    pub(super) fn renew(&mut self, now: Duration, renew: &RenewBudget) -> BudgetRenewed {
        self.settle(now);
        self.learn_limits(now, &renew.node, &renew.known);
        let mut kept = Vec::new();
        let mut strangers = self.strangers_taken(now, &renew.node);
        for id in renew.permits.iter().take(BUDGET_PERMITS_PER_NODE) {
            match self.permits.get(*id) {
                _ if self.is_of_another(*id, &renew.node) => continue,
                Some(_) => {
                    self.permits.claim(*id);
                    if self.planted_bug != Some(PlantedBug::RenewalsIgnored) {
                        self.permits.refresh(now, *id);
                    }
                    self.late.remove(id);
                }
                None if self.returned.contains_key(id) || strangers == 0 || self.permits.len() >= PERMITS_MAX => continue,
                None => {
                    strangers -= 1;
                    self.queue.leave(*id);
                    self.permits.insert(now, *id, renew.node.clone(), Stage::Claimed, true);
                }
            }
            kept.push(*id);
        }
        for PermitLimits { permit, limits } in renew.limits.iter().take(BUDGET_PERMITS_PER_NODE) {
            if let Some(granted) = self.learn_stated(now, &renew.node, *permit, limits) {
                self.answered(now, &renew.node, granted, true);
            }
        }
        self.admit(now);
        BudgetRenewed { epoch: self.term.epoch, kept, known: self.limits_for(now, &renew.node) }
    }

    pub(super) fn give_back(&mut self, now: Duration, back: &ReturnBudget) {
        self.settle(now);
        if self.is_of_another(back.permit, &back.node) {
            return;
        }
        let held = self.permits.get(back.permit);
        let was_granted = held.is_some();
        // If the holder has reported limits, it is already known that the pull was served.
        let answered = held.and_then(|permit| Some((permit.granted_here(), back.served.filter(|served| !(permit.answered && *served))?)));
        match &back.limits {
            Some(limits) if held.is_some() => drop(self.learn_stated(now, &back.node, back.permit, limits)),
            // A pull that an earlier leader granted.
            Some(limits) if !self.returned.contains_key(&back.permit) => {
                self.learn_limits(now, &back.node, &KnownLimits { none_stated: limits.is_empty(), limits: limits.clone() });
            }
            _ => {}
        }
        if let Some((granted, served)) = answered {
            self.answered(now, &back.node, granted, served);
        }
        self.queue.leave(back.permit);
        self.end(now, back.permit, back.used);
        // An id without a permit may be invented, so half of the room is for permits that were granted.
        let room = if was_granted { RETURNED_MAX } else { RETURNED_MAX / 2 };
        if self.returned.len() < room {
            self.returned.insert(back.permit, now);
        }
        self.admit(now);
    }

    pub(super) fn tick(&mut self, now: Duration) {
        self.looked = None;
        self.settle(now);
        self.admit(now);
    }

    /// The turns that have come since the last call.
    pub(super) fn take_turns(&mut self) -> impl Iterator<Item = Effect> {
        std::mem::take(&mut self.turns).into_iter().map(|(to, turn)| Effect::Turn { to, turn })
    }

    /// When to tick next at the latest.
    pub(super) fn wake_at(&self, now: Duration) -> Option<Duration> {
        // A lapse may be noticed this much later.
        let lapse = (!self.permits.is_empty()).then_some(now + AWAKE_EVERY);
        lapse.into_iter().chain(self.next_admission(now)).min()
    }

    pub(super) fn in_flight(&self) -> u64 {
        self.permits.len()
    }

    pub(super) fn waiting(&self) -> u64 {
        self.queue.len() as u64
    }

    pub(super) fn assert_invariants(&self) {
        debug_assert!(self.permits.len() <= PERMITS_MAX, "permits are bounded");
        debug_assert!(self.returned.len() <= RETURNED_MAX, "remembered returns are bounded");
        debug_assert!(self.late.iter().all(|id| self.permits.contains(*id)), "each late start has a permit");
        debug_assert!((0.0..=1.0).contains(&self.reserved), "the kept share is a fraction: {}", self.reserved);
        self.queue.assert_invariants();
        self.permits.assert_invariants();
    }

    pub(super) fn is_idle(&self) -> bool {
        self.permits.is_empty() && self.queue.is_empty()
    }

    /// The caps in force, whatever the registry turns out to sustain.
    pub(super) fn caps(&self) -> Caps {
        self.policy.caps()
    }

    /// Whether another node holds the permit or waits for it.
    fn is_of_another(&self, id: PermitId, node: &NodeName) -> bool {
        let of = self.permits.get(id).map(|permit| &permit.node).or_else(|| self.queue.node_of(id));
        of.is_some_and(|of| of != node)
    }

    /// Hands the permit over to its node.
    fn claimed(&mut self, now: Duration, ask: &GrantBudget) -> BudgetAnswer {
        // The answer says it.
        self.turns.retain(|(_, turn)| turn.permit != ask.permit);
        let epoch = self.term.epoch;
        match self.permits.get(ask.permit) {
            Some(permit) if permit.node == ask.node => {
                self.permits.claim(ask.permit);
                self.permits.refresh(now, ask.permit);
                let known = self.limits_for(now, &ask.node);
                BudgetAnswer::Granted { epoch, lease_ms: DEADLINES.budget_permit_lease.as_millis() as u64, known, caps: self.caps() }
            }
            _ => BudgetAnswer::Refused { epoch, text: "another node holds this permit".to_owned() },
        }
    }

    fn out(&self) -> Out {
        self.permits.out()
    }

    /// Ends a permit; `used`: a pull may have begun with it.
    fn end(&mut self, now: Duration, id: PermitId, used: bool) {
        let Some(permit) = self.permits.remove(id) else { return };
        self.late.remove(&id);
        if used && matches!(permit.stage, Stage::Claimed) {
            self.pull_takes = (self.pull_takes * 7 + now.saturating_sub(permit.granted)) / 8;
            if !permit.answered {
                self.quota.ended_unanswered(now);
            }
        }
    }

    /// Applies the passing of time: stalls, expiry and windows that are over.
    fn settle(&mut self, now: Duration) {
        let stalled_for = now.saturating_sub(self.last_step);
        self.last_step = self.last_step.max(now);
        if stalled_for > STALLED && self.planted_bug != Some(PlantedBug::RenewalsIgnored) {
            self.permits.excuse(stalled_for);
        }
        if self.looked.is_some_and(|looked| now < looked + LOOKED_EVERY) {
            return;
        }
        self.looked = Some(now);
        if let Some(adaptive) = &mut self.adaptive {
            adaptive.pass(now);
            self.set_rate_limiter();
        }
        for id in self.permits.lapsed(now) {
            self.end(now, id, true);
        }
        self.queue.expire(now);
        self.quota.expire(now);
        self.returned.retain(|_, at| now < *at + RETURNED_REMEMBERED);
    }
}
