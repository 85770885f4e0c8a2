//! The leader of one budget: it grants the fleet's permits and takes them back.

mod admission;
mod late;
mod limits;
mod rate_in_force;
#[cfg(test)]
mod tests;
mod waiting;

use std::collections::BTreeMap;
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
use super::permits::{Permit, Permits, Stage};
use super::planted_bug::PlantedBug;
use super::quota::{Out, Quota};
use super::rate_limiter::RateLimiter;
use super::silence::Silence;
use super::step::Effect;

/// A returned permit is remembered for this long, so that a late copy of its request does not get it again; messages are late by seconds.
const RETURNED_REMEMBERED: Duration = Duration::from_secs(15);
/// The most returned permits that are remembered: 15 s of returns at twice the default rate.
const RETURNED_MAX: usize = 6_000;
/// After a stall longer than this, the leader extends permits instead of expiring them.
const STALLED: Duration = Duration::from_secs(1);
/// The shortest time between two looks for expired permits and waits, because 1,000 nodes may ask within one such time.
const LOOKED_EVERY: Duration = Duration::from_millis(20);
/// A leader with permits out checks the time at least this often, so that it notices a stall. It also looks this often at requests that
/// may have no permit yet.
const AWAKE_EVERY: Duration = Duration::from_millis(500);

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

/// It leads until it is dropped: the caller ends it when the lease is over.
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
    permits: Permits,
    returned: BTreeMap<PermitId, Duration>,
    /// How many nodes of the fleet are known, and how many of them are silent; both 0 before that is reported.
    nodes: u64,
    silent_nodes: u64,
    last_step: Duration,
    /// When lapsed permits were looked for last.
    looked: Option<Duration>,
    /// How long a pull takes, mostly the last ones; none until one has ended.
    pull_takes: Option<Duration>,
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
            permits: Permits::default(),
            returned: BTreeMap::new(),
            nodes: 0,
            silent_nodes: 0,
            last_step: now,
            looked: None,
            pull_takes: None,
            fetches: RoundTrips::expected(Duration::ZERO),
            turns: Vec::new(),
            own_pull_announced: false,
            others_last_seen: None,
            planted_bug,
        };
        leader.set_rate_limiter();
        leader
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
            match permit.stage {
                Stage::Waiting(_) => {}
                Stage::Called(_) => {
                    let (turn, took) = (permit.turn, self.fetches.saw(now, permit.granted));
                    if !self.takes_another_turn(permit, took) {
                        return self.claimed(now, ask);
                    }
                    self.permits.put_back(ask.permit);
                    self.rate_limiter.give_back(turn);
                }
                Stage::Claimed | Stage::Late => {
                    let late = self.takes_another_turn(permit, now.saturating_sub(permit.turn));
                    return if late { self.claimed_late(now, ask) } else { self.claimed(now, ask) };
                }
            }
        }
        if let Err(reason) = self.permits.request(now, &ask.node, ask.permit) {
            let text = format!("{reason} for the fleet's budget of {}: try again later", self.owner);
            return BudgetAnswer::Refused { epoch, text };
        }
        self.admit(now);
        if self.is_out(ask.permit) {
            return self.claimed(now, ask);
        }
        let ahead = self.permits.ahead_of(ask.permit).unwrap_or_default();
        let wait_ms = self.wait(now, ahead, &ask.node).as_millis() as u64;
        BudgetAnswer::Queued { epoch, ahead, wait_ms, known: self.limits_for(now, &ask.node), caps: self.caps() }
    }

    pub(super) fn renew(&mut self, now: Duration, renew: &RenewBudget) -> BudgetRenewed {
        self.settle(now);
        self.learn_limits(now, &renew.node, &renew.known);
        let mut kept = Vec::new();
        let mut strangers = self.strangers_taken(now, &renew.node);
        for id in renew.permits.iter().take(BUDGET_PERMITS_PER_NODE) {
            if self.is_of_another(*id, &renew.node) {
                continue;
            }
            if self.is_out(*id) {
                self.permits.claim(*id);
                if self.planted_bug != Some(PlantedBug::RenewalsIgnored) {
                    self.permits.refresh(now, *id);
                }
            } else if self.returned.contains_key(id) || strangers == 0 || self.permits.out_count() >= PERMITS_MAX {
                continue;
            } else {
                strangers -= 1;
                self.permits.take_over(now, *id, renew.node.clone());
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
        let held = self.permits.get(back.permit).filter(|permit| permit.is_out());
        let was_granted = held.is_some();
        // If the holder has reported limits, it is already known that the pull was served.
        let answered = held.and_then(|permit| Some((permit.granted_here(), back.served.filter(|served| !(permit.answered && *served))?)));
        match &back.limits {
            Some(limits) if was_granted => drop(self.learn_stated(now, &back.node, back.permit, limits)),
            // A pull that an earlier leader granted.
            Some(limits) if !self.returned.contains_key(&back.permit) => {
                self.learn_limits(now, &back.node, &KnownLimits { none_stated: limits.is_empty(), limits: limits.clone() });
            }
            _ => {}
        }
        if let Some((granted, served)) = answered {
            self.answered(now, &back.node, granted, served);
        }
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
        let lapse = (self.permits.out_count() > 0).then_some(self.last_step + AWAKE_EVERY);
        lapse.into_iter().chain(self.next_admission(now)).min()
    }

    pub(super) fn in_flight(&self) -> u64 {
        self.permits.out_count()
    }

    pub(super) fn waiting(&self) -> u64 {
        self.permits.waiting()
    }

    pub(super) fn assert_invariants(&self) {
        debug_assert!(self.permits.out_count() <= PERMITS_MAX, "permits are bounded");
        debug_assert!(self.returned.len() <= RETURNED_MAX, "remembered returns are bounded");
        self.permits.assert_invariants();
    }

    pub(super) fn is_idle(&self) -> bool {
        self.permits.is_empty()
    }

    /// The caps in force, whatever the registry turns out to sustain.
    pub(super) fn caps(&self) -> Caps {
        self.policy.caps()
    }

    /// Whether another node holds the permit or waits for it.
    fn is_of_another(&self, id: PermitId, node: &NodeName) -> bool {
        self.permits.get(id).is_some_and(|permit| permit.node != *node)
    }

    fn is_out(&self, id: PermitId) -> bool {
        self.permits.get(id).is_some_and(Permit::is_out)
    }

    /// Hands the permit over to its node.
    fn claimed(&mut self, now: Duration, ask: &GrantBudget) -> BudgetAnswer {
        // The answer says it.
        self.turns.retain(|(_, turn)| turn.permit != ask.permit);
        self.permits.claim(ask.permit);
        self.permits.refresh(now, ask.permit);
        let (known, lease_ms) = (self.limits_for(now, &ask.node), DEADLINES.budget_permit_lease.as_millis() as u64);
        BudgetAnswer::Granted { epoch: self.term.epoch, lease_ms, known, caps: self.caps() }
    }

    fn out(&self) -> Out {
        self.permits.out()
    }

    /// Ends a request or its permit; `used`: a pull may have begun with it.
    fn end(&mut self, now: Duration, id: PermitId, used: bool) {
        let Some(permit) = self.permits.remove(id) else { return };
        if matches!(permit.stage, Stage::Called(_)) {
            // Its node has not fetched it, so its turn is the next one's.
            self.rate_limiter.give_back(permit.turn);
        }
        if used && permit.is_in_use() {
            let took = now.saturating_sub(permit.granted);
            self.pull_takes = Some(self.pull_takes.map_or(took, |takes| (takes * 7 + took) / 8));
            if !permit.answered {
                self.quota.ended_unanswered(now, &permit.node);
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
        self.quota.expire(now);
        self.returned.retain(|_, at| now < *at + RETURNED_REMEMBERED);
    }
}
