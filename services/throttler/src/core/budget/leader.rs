//! The leader of one budget: it grants the fleet's permits and takes them back.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use clock::RoundTrips;
use contract::messages::throttler::{
    BUDGET_PERMITS_PER_NODE, BudgetAnswer, BudgetRenewed, BudgetTurn, BudgetWaiter, GrantBudget, KnownLimits, PermitLimits, RegistryLimit,
    RenewBudget, ReturnBudget,
};
use contract::{NodeName, PermitId};

use super::adaptive_rate::{AdaptiveRate, RegistryAnswer};
use super::fair_queue::{FairQueue, Waiter};
use super::permits::{Permit, Permits, Stage};
use super::planted_bug::PlantedBug;
use super::quota::{Allowance, Out, Quota};
use super::rate::{Rate, RateCause};
use super::rate_limiter::RateLimiter;
use super::silence::{self, Silence};
use super::{ASK_AGAIN, BudgetPolicy, FLEET_PERMIT_LEASE, HELD_UP};

/// How many more turns of the rate a permit takes that is fetched late. A node that is late each time has a slow connection.
const LATE_TURNS: u8 = 3;
/// A late copy of a question must not get a permit after the permit was returned; messages are late by seconds.
const RETURNED_REMEMBERED: Duration = Duration::from_secs(15);
/// So many returned permits are remembered: 15 s of returns at twice the default rate.
const RETURNED_MAX: usize = 6_000;
/// A leader that was deaf for longer does not hold the silence against its holders.
const DEAF: Duration = Duration::from_secs(1);
/// How often expired permits and waits are looked for at most: a thousand nodes may ask within one such time.
const LOOKED_EVERY: Duration = Duration::from_millis(20);
/// How often a leader with permits out looks at the time at least, so that it notices a stall.
const AWAKE_EVERY: Duration = Duration::from_millis(500);
/// If no other node has been heard from for this long, the leader may grant itself a permit. Waiting nodes ask more often than this.
const OTHERS_AWAITED: Duration = Duration::from_secs(6);
/// How often a leader looks whether it may pull itself.
const OWN_PULL_LOOKED_AT: Duration = Duration::from_millis(20);
/// For how long a new leader takes limits from nodes that know them from others. Later it knows better.
const LEARNS_FOR: Duration = Duration::from_secs(30);
/// For how long a new leader learns if it hears of a quota: by then all waiting nodes have asked it.
const LEARNS_QUOTA: Duration = Duration::from_secs(ASK_AGAIN.as_secs() + 1);
/// The length of a pull with which stated waits begin. Later it is measured.
const PULL_EXPECTED: Duration = Duration::from_secs(5);
/// The most permits that a leader counts at a time when the owner sets no limit.
const PERMITS_MAX: u64 = 50_000;

/// How a leader's term began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Term {
    /// Of this leadership, higher than any before: see [`contract::know::lease_epoch`].
    pub epoch: u64,
    /// No node has led this budget lately, and the memory of it has not been lost: there is nothing to learn.
    pub first: bool,
    /// Until when the lease lasts, on this node's clock.
    pub until: Duration,
}

/// The leader of one budget.
#[derive(Debug)]
pub(super) struct Leader {
    owner: String,
    node: NodeName,
    policy: BudgetPolicy,
    pub(super) term: Term,
    since: Duration,
    learns_until: Duration,
    rate_limiter: RateLimiter,
    /// What the pace is set to.
    paced: f64,
    /// The rate that the registry turns out to sustain; none: the owner sets no cap.
    adaptive: Option<AdaptiveRate>,
    silence: Silence,
    quota: Quota,
    queue: FairQueue,
    permits: Permits,
    /// Of these the holders have asked again, and wait for another turn of the rate.
    late: BTreeSet<PermitId>,
    returned: BTreeMap<PermitId, Duration>,
    /// The share of the budget that is kept for silent nodes.
    reserved: f64,
    /// The rate that is left however many are silent.
    least: f64,
    /// The fleet is this node alone, as far as the node was told.
    only_node: bool,
    last_step: Duration,
    /// When lapses were looked for last.
    looked: Option<Duration>,
    pull_takes: Duration,
    /// How long after a call a permit is fetched.
    fetches: RoundTrips,
    turns: Vec<(NodeName, BudgetTurn)>,
    /// Others were told of a quota as if this node had pulled once more, so it may: when a leader dies, nobody else knows of its
    /// own pulls.
    own_pull_told: bool,
    /// When another node was heard from.
    others_heard: Option<Duration>,
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
            learns_until: if learns { now + FLEET_PERMIT_LEASE } else { now },
            rate_limiter: RateLimiter::new(policy.per_second),
            paced: policy.per_second,
            adaptive: adaptive(now, policy, planted_bug),
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
            own_pull_told: false,
            others_heard: None,
            planted_bug,
        };
        leader.set_rate_limiter();
        leader
    }

    /// How many pulls a second it grants, as people are shown. The rate begins lower.
    pub(super) fn rate(&self) -> Rate {
        let per_1000_s = |rate: f64| (rate > 0.0).then(|| (rate * 1_000.0).round() as u64);
        let (rate, cause) = match self.cause() {
            RateCause::Quota => return Rate { per_1000_s: Some(0), cause: RateCause::Quota },
            RateCause::Starting => (self.kept_rate(), if self.reserved > 0.0 { RateCause::SilentNodes } else { RateCause::Policy }),
            cause => (self.paced, cause),
        };
        Rate { per_1000_s: per_1000_s(rate), cause }
    }

    /// The rate in force; 0 for no limit.
    pub(super) fn in_force(&self) -> f64 {
        if self.quota.is_spent() { 0.0 } else { self.paced }
    }

    /// Why it is no higher.
    pub(super) fn cause(&self) -> RateCause {
        let adapted = self.adaptive.as_ref().filter(|adaptive| adaptive.in_force() < self.kept_rate());
        match adapted {
            _ if self.quota.is_spent() => RateCause::Quota,
            Some(adaptive) if adaptive.is_found() => RateCause::Overload,
            Some(_) => RateCause::Starting,
            None if self.paced < self.policy.per_second => RateCause::SilentNodes,
            None => RateCause::Policy,
        }
    }

    /// What is left of the cap beside the share of the silent nodes.
    fn kept_rate(&self) -> f64 {
        (self.policy.per_second * (1.0 - self.reserved)).max(self.least)
    }

    /// Takes the caps in force from now on. The share of the silent nodes is to be set again.
    pub(super) fn set_policy(&mut self, now: Duration, policy: BudgetPolicy) {
        let before = std::mem::replace(&mut self.policy, policy);
        if before.per_second == policy.per_second {
            return;
        }
        match &mut self.adaptive {
            Some(adaptive) if policy.per_second > 0.0 => adaptive.set_cap(now, policy.per_second),
            _ => self.adaptive = adaptive(now, policy, self.planted_bug),
        }
        self.set_rate_limiter();
        self.rate_limiter.begin_anew(now, self.paced);
    }

    fn set_rate_limiter(&mut self) {
        let found = self.adaptive.as_ref().map_or(f64::INFINITY, AdaptiveRate::in_force);
        self.paced = self.kept_rate().min(found);
        self.rate_limiter.set(self.paced);
    }

    /// The registry has answered a pull.
    fn answered(&mut self, now: Duration, node: &NodeName, granted: Option<Duration>, served: bool) {
        let answer = if served { RegistryAnswer::Served } else { RegistryAnswer::Failed };
        // A failure comes at once, or when somebody's patience is over.
        self.silence.answered(now, granted.filter(|_| served).map(|granted| now.saturating_sub(granted)));
        if let Some(adaptive) = &mut self.adaptive {
            adaptive.answered(now, node, granted, answer);
            self.set_rate_limiter();
        }
    }

    /// Whether the lease still lasts.
    pub(super) fn leads(&self, now: Duration) -> bool {
        now < self.term.until || self.planted_bug == Some(PlantedBug::NoFence)
    }

    pub(super) fn learns(&self, now: Duration) -> bool {
        now < self.learns_until
    }

    /// Of `known` nodes `silent` are not heard from. Each may be pulling by its own share.
    pub(super) fn reserve(&mut self, silent: u64, known: u64) {
        self.only_node = known == 1;
        self.reserved = if known == 0 { 0.0 } else { (silent as f64 / known as f64).clamp(0.0, 1.0) };
        self.least = self.policy.per_second / known.max(1) as f64;
        self.set_rate_limiter();
    }

    pub(super) fn ask(&mut self, now: Duration, ask: &GrantBudget) -> BudgetAnswer {
        self.settle(now);
        self.learn_limits(now, &ask.node, &ask.known);
        let epoch = self.term.epoch;
        if self.returned.contains_key(&ask.permit) {
            return BudgetAnswer::Refused { epoch, text: "this permit was returned".to_owned() };
        }
        if let Some(permit) = self.permits.get(ask.permit) {
            match permit.stage() {
                Stage::Called(place, waiter) => {
                    let took = self.fetches.saw(now, permit.granted);
                    if !self.takes_another_turn(permit, took) {
                        return self.claimed(now, ask);
                    }
                    self.queue.put(*place, waiter.clone().that_came_late());
                    self.permits.remove(ask.permit);
                }
                Stage::Claimed => {
                    let late = permit.node == ask.node && self.takes_another_turn(permit, now.saturating_sub(permit.turn));
                    return if late { self.claimed_late(now, ask) } else { self.claimed(now, ask) };
                }
            }
        }
        if let Err(full) = self.queue.join(now, &ask.node, ask.permit) {
            let text = format!("{full} for the fleet's budget of {}: try again later", self.owner);
            return BudgetAnswer::Refused { epoch, text };
        }
        self.admit(now);
        if self.permits.contains(ask.permit) {
            self.turns.retain(|(_, turn)| turn.permit != ask.permit);
            return self.claimed(now, ask);
        }
        let ahead = self.queue.ahead_of(ask.permit).unwrap_or_default();
        let wait_ms = self.wait(now, ahead, &ask.node).as_millis() as u64;
        BudgetAnswer::Queued { epoch, ahead, wait_ms, known: self.tell(now, &ask.node) }
    }

    /// True if a permit that is fetched so long after its turn takes another one, so that late permits do not begin together.
    fn takes_another_turn(&self, permit: &Permit, after: Duration) -> bool {
        permit.late < LATE_TURNS && after > self.fetches.usual() + HELD_UP
    }

    pub(super) fn renew(&mut self, now: Duration, renew: &RenewBudget) -> BudgetRenewed {
        self.settle(now);
        self.learn_limits(now, &renew.node, &renew.known);
        let mut kept = Vec::new();
        let mut strangers = self.strangers_taken(now, &renew.node);
        for id in renew.permits.iter().take(BUDGET_PERMITS_PER_NODE) {
            match self.permits.get(*id) {
                Some(permit) if permit.node == renew.node => {
                    self.permits.claim(*id);
                    if self.planted_bug != Some(PlantedBug::RenewalsIgnored) {
                        self.permits.hear(now, *id);
                    }
                    self.late.remove(id);
                }
                Some(_) => continue,
                None if self.returned.contains_key(id) || strangers == 0 || self.permits.len() >= PERMITS_MAX => continue,
                None => {
                    strangers -= 1;
                    self.queue.leave(*id);
                    self.permits.inherit(now, *id, renew.node.clone());
                }
            }
            kept.push(*id);
        }
        for PermitLimits { permit, limits } in renew.told.iter().take(BUDGET_PERMITS_PER_NODE) {
            if let Some(granted) = self.told(now, &renew.node, *permit, limits) {
                self.answered(now, &renew.node, granted, true);
            }
        }
        self.admit(now);
        BudgetRenewed { epoch: self.term.epoch, kept, known: self.tell(now, &renew.node) }
    }

    pub(super) fn give_back(&mut self, now: Duration, back: &ReturnBudget) {
        self.settle(now);
        let held = self.permits.get(back.permit);
        if held.is_some_and(|permit| permit.node != back.node) {
            return;
        }
        // That it was served is known already if its holder has told of limits.
        let answered = held.and_then(|permit| Some((permit.granted_here(), back.served.filter(|served| !(permit.is_told() && *served))?)));
        match &back.told {
            Some(limits) if held.is_some() => drop(self.told(now, &back.node, back.permit, limits)),
            // A pull that a leader before let go.
            Some(limits) if !self.returned.contains_key(&back.permit) => {
                self.learn_limits(now, &back.node, &KnownLimits { none_told: limits.is_empty(), limits: limits.clone() });
            }
            _ => {}
        }
        if self.queue.node_of(back.permit).is_some_and(|node| *node != back.node) {
            return;
        }
        if let Some((granted, served)) = answered {
            self.answered(now, &back.node, granted, served);
        }
        self.queue.leave(back.permit);
        self.end(now, back.permit, back.used);
        if self.returned.len() < RETURNED_MAX {
            self.returned.insert(back.permit, now);
        }
        self.admit(now);
    }

    /// Lets time do its work.
    pub(super) fn tick(&mut self, now: Duration) {
        self.looked = None;
        self.settle(now);
        self.admit(now);
    }

    /// Whose turn has come since this was asked last.
    pub(super) fn take_turns(&mut self) -> Vec<(NodeName, BudgetTurn)> {
        std::mem::take(&mut self.turns)
    }

    /// When to tick next at the latest.
    pub(super) fn wake_at(&self, now: Duration) -> Option<Duration> {
        // A lapse may be seen so much later.
        let lapse = (!self.permits.is_empty()).then_some(now + AWAKE_EVERY);
        let turn = (!self.queue.is_empty()).then(|| match self.quota.allows(now, self.out()) {
            _ if self.learns(now) => self.learns_until,
            _ if self.is_full() => now + Duration::from_secs(1),
            Allowance::Yes if self.is_silent(now) => self.silence.ends().unwrap_or(now),
            Allowance::Yes if self.may_pull_itself(now) => now + self.rate_limiter.ready_in(now, 0),
            Allowance::Yes => now + self.rate_limiter.ready_in(now, 0).max(OWN_PULL_LOOKED_AT),
            Allowance::But(_) | Allowance::No(_) => now + Duration::from_millis(500),
        });
        let late = (!self.late.is_empty()).then(|| now + self.rate_limiter.ready_in(now, 0).max(self.learns_until.saturating_sub(now)));
        lapse.into_iter().chain(turn).chain(late).min()
    }

    pub(super) fn in_flight(&self) -> u64 {
        self.permits.len()
    }

    pub(super) fn waiting(&self) -> u64 {
        self.queue.len() as u64
    }

    pub(super) fn assert_invariants(&self) {
        debug_assert!(self.permits.len() <= PERMITS_MAX, "permits are bounded");
        debug_assert!(self.returned.len() <= RETURNED_MAX, "what is remembered of returns is bounded");
        debug_assert!(self.late.iter().all(|id| self.permits.contains(*id)), "only who has a permit begins late");
        debug_assert!((0.0..=1.0).contains(&self.reserved), "a share is kept: {}", self.reserved);
        self.queue.assert_invariants();
        self.permits.assert_invariants();
    }

    pub(super) fn is_idle(&self) -> bool {
        self.permits.is_empty() && self.queue.is_empty()
    }

    pub(super) fn waiters(&self, now: Duration, most: usize) -> Vec<BudgetWaiter> {
        let waits = |(ahead, waiter): (usize, &Waiter)| BudgetWaiter {
            node: waiter.node.clone(),
            wait_ms: self.wait(now, ahead as u64, &waiter.node).as_millis() as u64,
        };
        self.queue.waiters().take(most).enumerate().map(waits).collect()
    }

    pub(super) fn known(&self, now: Duration) -> KnownLimits {
        self.quota.known(now, self.out())
    }

    /// How long until a waiting node has its turn, by the number of those before it, if that can be said.
    fn wait(&self, now: Duration, ahead: u64, node: &NodeName) -> Duration {
        let rate = self.rate_limiter.ready_in(now, ahead);
        let quota = self.quota.wait(now, self.out(), ahead, node);
        let slots = match self.slots() {
            None => Duration::ZERO,
            Some(slots) => {
                let free = slots.saturating_sub(self.permits.len());
                let rounds = if ahead < free { 0 } else { (ahead - free) / slots + 1 };
                self.pull_takes.saturating_mul(u32::try_from(rounds).unwrap_or(u32::MAX))
            }
        };
        rate.max(quota).max(slots).max(self.learns_until.saturating_sub(now))
    }

    /// A node that asks again for a permit that it was granted has not begun, because the answer was lost. It takes a turn of its own, the next.
    fn claimed_late(&mut self, now: Duration, ask: &GrantBudget) -> BudgetAnswer {
        self.permits.hear(now, ask.permit);
        self.late.insert(ask.permit);
        self.admit(now);
        if !self.late.contains(&ask.permit) {
            self.turns.retain(|(_, turn)| turn.permit != ask.permit);
            return self.claimed(now, ask);
        }
        let ahead = self.late.iter().take_while(|id| **id != ask.permit).count() as u64;
        let wait_ms = self.rate_limiter.ready_in(now, ahead).as_millis() as u64;
        BudgetAnswer::Queued { epoch: self.term.epoch, ahead, wait_ms, known: self.tell(now, &ask.node) }
    }

    /// Those that ask again go before the line: they have been let go once, and are counted as out.
    fn admit_late(&mut self, now: Duration) {
        while let Some(id) = self.late.first().copied() {
            let Some(node) = self.permits.get(id).map(|permit| permit.node.clone()) else {
                self.late.remove(&id);
                continue;
            };
            if !self.rate_limiter.take(now) {
                return;
            }
            self.late.remove(&id);
            self.permits.grant_again(now, id);
            self.turns.push((node, BudgetTurn { owner: self.owner.clone(), permit: id }));
        }
    }

    fn claimed(&mut self, now: Duration, ask: &GrantBudget) -> BudgetAnswer {
        let epoch = self.term.epoch;
        match self.permits.get(ask.permit) {
            Some(permit) if permit.node == ask.node => {
                self.permits.claim(ask.permit);
                self.permits.hear(now, ask.permit);
                let known = self.tell(now, &ask.node);
                BudgetAnswer::Granted { epoch, lease_ms: FLEET_PERMIT_LEASE.as_millis() as u64, known }
            }
            _ => BudgetAnswer::Refused { epoch, text: "this permit is another node's".to_owned() },
        }
    }

    fn admit(&mut self, now: Duration) {
        if self.learns(now) || !self.leads(now) || self.is_silent(now) {
            return;
        }
        self.admit_late(now);
        while !self.queue.is_empty() && !self.is_full() {
            let but = match self.quota.allows(now, self.out()) {
                Allowance::Yes if self.may_pull_itself(now) => None,
                Allowance::Yes => Some(BTreeSet::from([self.node.clone()])),
                Allowance::But(nodes) => Some(nodes),
                Allowance::No(_) => return,
            };
            let but = self.but_who_has_much(self.but_who_has_all(but));
            if !self.somebody_but(but.as_ref()) || !(self.planted_bug == Some(PlantedBug::Unpaced) || self.rate_limiter.take(now)) {
                return;
            }
            let Some((place, waiter)) = self.queue.next(but.as_ref()) else { return };
            let (node, id) = (waiter.node.clone(), waiter.permit);
            self.own_pull_told &= node != self.node;
            self.turns.push((node.clone(), BudgetTurn { owner: self.owner.clone(), permit: id }));
            self.permits.insert(now, id, node, Stage::Called(place, waiter));
            if let Some(adaptive) = &mut self.adaptive {
                adaptive.granted(now);
            }
        }
    }

    /// True if the registry has answered until now, and answers no node any more.
    fn is_silent(&self, now: Duration) -> bool {
        let Some(unanswered) = self.silence.unanswered(now) else { return false };
        self.permits.unanswered_of(unanswered).take(silence::PULLS).count() == silence::PULLS
    }

    fn may_pull_itself(&self, now: Duration) -> bool {
        !self.quota.is_limited() || self.own_pull_told || self.others_heard.is_none_or(|heard| now > heard + OTHERS_AWAITED)
    }

    /// What a node is told of the limits.
    fn tell(&mut self, now: Duration, node: &NodeName) -> KnownLimits {
        let mut known = self.quota.known_to(node, self.known(now));
        if *node != self.node {
            known.limits.iter_mut().for_each(|limit| limit.remaining = limit.remaining.saturating_sub(1));
            self.own_pull_told = true;
            self.others_heard = Some(now);
        }
        known
    }

    /// Nodes that hold as much as one node may are passed over.
    fn but_who_has_all(&self, but: Option<BTreeSet<NodeName>>) -> Option<BTreeSet<NodeName>> {
        let most = self.most_of_one();
        if self.permits.len() < most {
            return but;
        }
        let mut full = self.permits.who_hold(most).cloned().peekable();
        if full.peek().is_none() {
            return but;
        }
        let mut nodes = but.unwrap_or_default();
        nodes.extend(full);
        Some(nodes)
    }

    /// Nodes with a quarter of the slots are passed over while others wait, because their pulls may wait for slots of their own.
    fn but_who_has_much(&self, but: Option<BTreeSet<NodeName>>) -> Option<BTreeSet<NodeName>> {
        let Some(slots) = self.slots() else { return but };
        let mut nodes = but.clone().unwrap_or_default();
        nodes.extend(self.permits.who_hold(quarter(slots)).cloned());
        if self.somebody_but(Some(&nodes)) { Some(nodes) } else { but }
    }

    fn somebody_but(&self, nodes: Option<&BTreeSet<NodeName>>) -> bool {
        nodes.is_none_or(|nodes| self.queue.waiters().any(|waiter| !nodes.contains(&waiter.node)))
    }

    fn slots(&self) -> Option<u64> {
        let at_once = self.policy.at_once as u64;
        (at_once > 0).then(|| ((at_once as f64 * (1.0 - self.reserved)) as u64).max(1))
    }

    fn is_full(&self) -> bool {
        let most = self.slots().map_or(PERMITS_MAX, |slots| slots.min(PERMITS_MAX));
        self.permits.len() >= most
    }

    /// The most permits of one node: a quarter of the slots is left to the others, so that a node that never returns a permit does not
    /// keep them from pulling. Where the owner sets no limit, as many as a node may renew.
    fn most_of_one(&self) -> u64 {
        let all = BUDGET_PERMITS_PER_NODE as u64;
        match self.slots() {
            None => all,
            Some(slots) if self.only_node => slots.min(all),
            Some(slots) => slots.saturating_sub(quarter(slots)).clamp(1, all),
        }
    }

    /// How many permits that the leader does not know it takes over from a node: while it learns, all that the node may hold, and later
    /// a quarter of the slots while there is room.
    fn strangers_taken(&self, now: Duration, node: &NodeName) -> u64 {
        let most = match self.slots() {
            Some(_) if !self.learns(now) && self.is_full() => 0,
            Some(slots) if !self.learns(now) => quarter(slots).min(self.most_of_one()),
            _ => self.most_of_one(),
        };
        most.saturating_sub(self.permits.held_by(node))
    }

    fn out(&self) -> Out {
        self.permits.out()
    }

    /// Takes what the registry told of its limits in a pull, and when the pull was granted; none: this was told before.
    fn told(&mut self, now: Duration, node: &NodeName, id: PermitId, limits: &[RegistryLimit]) -> Option<Option<Duration>> {
        let granted = self.permits.tell(node, id)?;
        let out = self.out();
        self.quota.told(now, node, granted, limits, out);
        Some(granted)
    }

    fn learn_limits(&mut self, now: Duration, node: &NodeName, known: &KnownLimits) {
        self.quota.heard(now, node);
        if now > self.since + LEARNS_FOR {
            return;
        }
        if !known.limits.is_empty() {
            let out = self.out();
            self.quota.told(now, node, None, &known.limits, out);
            if self.planted_bug != Some(PlantedBug::LearnsNothing) {
                self.learns_until = self.learns_until.max(self.since + LEARNS_QUOTA);
            }
        } else if known.none_told {
            self.quota.none_told();
        }
    }

    /// Ends a permit; `used`: a pull may have begun with it.
    fn end(&mut self, now: Duration, id: PermitId, used: bool) {
        let Some(permit) = self.permits.remove(id) else { return };
        self.late.remove(&id);
        if used && matches!(permit.stage(), Stage::Claimed) {
            self.pull_takes = (self.pull_takes * 7 + now.saturating_sub(permit.granted)) / 8;
            if !permit.is_told() {
                self.quota.ended_unheard(now);
            }
        }
    }

    /// What passes with time: silence, expiry, windows that are over.
    fn settle(&mut self, now: Duration) {
        let deaf = now.saturating_sub(self.last_step);
        self.last_step = self.last_step.max(now);
        if deaf > DEAF && self.planted_bug != Some(PlantedBug::RenewalsIgnored) {
            self.permits.excuse(deaf);
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

/// The state of finding the rate under a cap.
fn adaptive(now: Duration, policy: BudgetPolicy, planted_bug: Option<PlantedBug>) -> Option<AdaptiveRate> {
    let adapts = policy.per_second > 0.0 && planted_bug != Some(PlantedBug::NeverSlows);
    adapts.then(|| AdaptiveRate::new(now, policy.per_second))
}

/// A quarter of the slots, one at least.
fn quarter(slots: u64) -> u64 {
    (slots / 4).max(1)
}

#[cfg(test)]
mod tests {
    use clock::Random;

    use super::*;

    fn node(name: &str) -> NodeName {
        name.parse().expect("a name")
    }

    /// A leader since `first` said that it has nothing to learn; without a rate, so that slots alone bound it.
    fn leader(now: Duration, at_once: usize, first: bool) -> Leader {
        let policy = BudgetPolicy { per_second: 0.0, at_once, ..BudgetPolicy::default() };
        let term = Term { epoch: 1, first, until: Duration::from_secs(10) };
        let mut leader = Leader::new(now, node("leader"), "owner", policy, term, None);
        leader.quota.none_told();
        leader
    }

    fn ask(leader: &mut Leader, now: Duration, name: &str, random: &mut Random) -> (PermitId, BudgetAnswer) {
        let permit = PermitId::random(random);
        let ask = GrantBudget { owner: "owner".to_owned(), node: node(name), permit, known: KnownLimits::default() };
        (permit, leader.ask(now, &ask))
    }

    fn return_of(name: &str, permit: PermitId) -> ReturnBudget {
        ReturnBudget { owner: "owner".to_owned(), node: node(name), permit, used: true, told: None, served: None }
    }

    #[test]
    fn who_holds_much_is_passed_over_while_others_wait() {
        let (now, mut random) = (Duration::from_secs(1), Random::seeded(1));
        let mut leader = leader(now, 8, true);
        leader.reserve(0, 1);
        let requested: Vec<PermitId> = (0..12).map(|_| ask(&mut leader, now, "a", &mut random).0).collect();
        assert_eq!(leader.permits.held_by(&node("a")), 8, "the fleet is this node alone");
        leader.reserve(0, 2);
        ask(&mut leader, now, "b", &mut random);
        ask(&mut leader, now, "b", &mut random);
        for permit in &requested[..2] {
            leader.give_back(now, &return_of("a", *permit));
        }
        assert_eq!((leader.permits.held_by(&node("a")), leader.permits.held_by(&node("b"))), (6, 2));
    }

    #[test]
    fn a_node_that_asks_for_all_and_claims_all_leaves_permits_and_places_to_others() {
        // Slots, whether the leader is new and learns who holds what: the most that one node gets.
        let table = [(2, false, 1), (3, false, 2), (4, true, 3), (8, false, 6), (8, true, 6), (0, false, 1_000), (0, true, 1_000)];
        for (at_once, learns, most) in table {
            let (mut now, mut random) = (Duration::from_secs(1), Random::seeded(1));
            let mut leader = leader(now, at_once, !learns);
            let mut refused = 0;
            for _ in 0..5 {
                let permits = (0..BUDGET_PERMITS_PER_NODE).map(|_| PermitId::random(&mut random)).collect();
                let (known, told) = (KnownLimits::default(), Vec::new());
                leader.renew(now, &RenewBudget { owner: "owner".to_owned(), node: node("liar"), permits, told, known });
                for _ in 0..BUDGET_PERMITS_PER_NODE {
                    let (_, answer) = ask(&mut leader, now, "liar", &mut random);
                    refused += usize::from(matches!(answer, BudgetAnswer::Refused { .. }));
                }
            }
            assert_eq!(leader.permits.held_by(&node("liar")), most, "of {at_once} slots, learns: {learns}");
            assert!(leader.waiting() <= BUDGET_PERMITS_PER_NODE as u64 && refused >= 2 * BUDGET_PERMITS_PER_NODE);
            if learns {
                now += FLEET_PERMIT_LEASE;
            }
            let (permit, answer) = ask(&mut leader, now, "other", &mut random);
            assert!(matches!(answer, BudgetAnswer::Granted { .. }), "of {at_once} slots, learns: {learns}: {answer:?}");
            leader.give_back(now, &return_of("other", permit));
        }
    }

    #[test]
    fn nobody_gives_up_the_place_of_another() {
        let (now, mut random) = (Duration::from_secs(1), Random::seeded(1));
        let mut leader = leader(now, 1, true);
        ask(&mut leader, now, "a", &mut random);
        let (waits, answer) = ask(&mut leader, now, "b", &mut random);
        assert!(matches!(answer, BudgetAnswer::Queued { .. }));
        leader.give_back(now, &return_of("liar", waits));
        assert_eq!(leader.waiting(), 1);
        leader.give_back(now, &return_of("b", waits));
        assert_eq!(leader.waiting(), 0);
    }
}
