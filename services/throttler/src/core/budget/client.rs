//! A node's side of one budget: asks the leader, holds, renews and returns permits, and decides what to do without a leader.

mod calls;
mod caps;
mod replies;
mod returning;
mod time;

use std::time::Duration;

use clock::RoundTrips;
use contract::messages::throttler::RegistryLimit;
use contract::policy::Caps;
use contract::{DEADLINES, NodeName, PermitId};

use super::claim::{BudgetWait, Claim, Stage};
use super::claims::Claims;
use super::planted_bug::PlantedBug;
use super::policies::lower_than;
use super::rate_limiter::RateLimiter;
use super::remembered::Remembered;
use super::step::Effect;
use super::{BudgetPolicy, LEADERS_PERMITS_LAST};

/// The most returned permits that wait to be sent. Further ones expire.
const RETURNS_MAX: usize = 1_000;
/// How soon an answer is expected of a leader that has not answered yet.
const ANSWER_EXPECTED: Duration = Duration::from_millis(50);
/// After this many missing answers since it answered last, the leader counts as lost.
const MISSES_TO_LOSE_LEADER: u32 = 3;
/// How often a node that finds no leader asks for the lease.
const CAMPAIGN_EVERY: Duration = Duration::from_secs(1);

/// One node's part in one budget.
#[derive(Debug)]
pub(super) struct BudgetClient {
    pub(super) membership: Membership,
    /// The fleet's caps in force, as the leader stated them last; before that, as this node's settings and the fleet policy say.
    pub(super) in_force: Caps,
    pub(super) leader: Option<(NodeName, u64)>,
    /// Since when. Requests from before were sent to another leader, or to this one in an earlier term.
    followed_at: Duration,
    /// The highest epoch of a leader, and when that leader answered last.
    fence: (u64, Duration),
    /// When a leader answered last; initially, when one was first looked for.
    leader_seen: Duration,
    missed: Option<Duration>,
    /// How many answers are missing since the leader of this epoch answered. From [`MISSES_TO_LOSE_LEADER`] on, each loses the leader, and
    /// if the lease still names it, the next request is sent later.
    unanswered: (u64, u32),
    /// How long a leader's answers take.
    round_trips: RoundTrips,
    claims: Claims,
    pub(super) remembered: Remembered,
    /// When a pull of this node stated limits last, or a leader confirmed that it had received them.
    limits_stated_at: Option<Duration>,
    /// The epoch of the leader that `remembered` was sent to.
    informed_epoch: u64,
    /// Until then the node sends any leader what it knows of a quota, even without claims.
    check_leader_until: Option<Duration>,
    renew_at: Duration,
    renew_asked: Option<Duration>,
    campaign_at: Option<Duration>,
    rate_alone: RateLimiter,
    /// Applies the lower cap of the node's own file. Without one it holds nothing back.
    own_rate_limiter: RateLimiter,
    went_alone: bool,
    /// When it last looked for a leader before going alone because the bus came back.
    looked_first: Option<Duration>,
    last_step: Duration,
    numbers: u64,
    pub(super) alone_total: u64,
    pub(super) overrun_total: u64,
}

/// A node, a budget, and what applies to them.
#[derive(Clone, Debug)]
pub(super) struct Membership {
    pub(super) owner: String,
    pub(super) node: NodeName,
    /// The caps by this node's settings, for the leader.
    pub(super) settings: Caps,
    pub(super) policy: BudgetPolicy,
    /// Nodes that share the budget; 0: unknown.
    pub(super) alive: u64,
    /// In `[0, 1)`, so that nodes do not all act at the same time.
    pub(super) stagger: f64,
    /// Pulls that the node runs at once; 0 for no limit.
    pub(super) slots: usize,
    /// How long it waits without a leader before it continues alone.
    pub(super) alone_after: Duration,
    pub(super) planted_bug: Option<PlantedBug>,
}

impl BudgetClient {
    /// `since`: when the bus answered last, so that a node without a bus does not have to find that out for each owner.
    pub(super) fn new(now: Duration, since: Duration, membership: Membership) -> Self {
        let policy = membership.policy;
        Self {
            membership,
            in_force: policy.caps(),
            leader: None,
            followed_at: now,
            fence: (0, now),
            leader_seen: since.min(now),
            missed: None,
            unanswered: (0, 0),
            round_trips: RoundTrips::expected(ANSWER_EXPECTED),
            claims: Claims::default(),
            remembered: Remembered::default(),
            limits_stated_at: None,
            informed_epoch: 0,
            check_leader_until: None,
            renew_at: now,
            renew_asked: None,
            campaign_at: None,
            rate_alone: RateLimiter::new(policy.per_second),
            own_rate_limiter: RateLimiter::new(lower_than(policy.own, policy.caps()).pulls_per_second.unwrap_or_default()),
            went_alone: false,
            looked_first: None,
            last_step: now,
            numbers: 0,
            alone_total: 0,
            overrun_total: 0,
        }
    }

    /// `since`: when the bus became silent; now, if it did not.
    pub(super) fn want(&mut self, now: Duration, since: Duration, permit: PermitId) -> Vec<Effect> {
        if self.is_idle() && !self.went_alone {
            // The node had nothing to ask, so the lack of contact with a leader shows nothing.
            self.leader_seen = self.leader_seen.max(since);
        } else if self.is_idle() && since == now {
            self.look_first(now);
        }
        self.numbers += 1;
        let known = self.claims.get(permit).map(|claim| claim.stage).filter(|stage| !stage.is_returned());
        if known.is_some() {
            self.claims.change(permit, |claim| claim.wanted = now);
        } else {
            self.claims.remove(permit);
            self.claims.insert(permit, Claim::new(self.numbers, now));
        }
        match known {
            Some(stage) if stage.is_in_flight() => vec![self.granted(permit, stage == Stage::Alone)],
            _ => self.tick(now),
        }
    }

    pub(super) fn report(&mut self, now: Duration, permit: PermitId, limits: Vec<RegistryLimit>) -> Vec<Effect> {
        self.learn_first_hand(now, &limits);
        let known = self.claims.change(permit, |claim| (claim.limits, claim.limits_sent) = (Some(limits), false));
        if known.is_none() {
            return Vec::new();
        }
        self.renew_at = now;
        self.tick(now)
    }

    fn granted(&self, permit: PermitId, alone: bool) -> Effect {
        Effect::Granted { owner: self.membership.owner.clone(), permit, alone }
    }

    /// The bus can be reached again.
    pub(super) fn bus_back(&mut self, now: Duration) -> Vec<Effect> {
        // A bus that comes and goes must not keep the node from pulling for ever.
        if self.looked_first.is_none_or(|at| now >= at + DEADLINES.alone_after) {
            self.looked_first = Some(now);
            self.look_first(now);
        }
        let from = now + self.spread();
        self.campaign_at = self.campaign_at.map(|at| at.min(from));
        // A leader elected meanwhile may know of no quota.
        self.check_that_leader_knows_quota(now);
        self.tick(now)
    }

    /// How long an answer is awaited before the request is repeated.
    fn within(&self) -> Duration {
        self.round_trips.within(DEADLINES.leader_answer.least, DEADLINES.leader_answer.most)
    }

    /// How long after the request an answer still counts.
    fn counts(&self) -> Duration {
        (self.within() * 2).min(DEADLINES.leader_answer_counts)
    }

    /// No leader has answered for long. There may be one again, so the node looks for it before it goes alone.
    fn look_first(&mut self, now: Duration) {
        self.leader_seen = self.leader_seen.max((now + DEADLINES.leader_looked_for).saturating_sub(DEADLINES.alone_after));
    }

    /// The lease names this leader; none if there is no leader.
    pub(super) fn led_by(&mut self, now: Duration, leader: Option<(NodeName, u64)>) -> Vec<Effect> {
        match leader {
            Some((node, epoch)) if self.is_past(now, epoch) => {
                tracing::debug!(owner = self.membership.owner, %node, epoch, "ignored a leader whose epoch is past");
            }
            Some((node, epoch)) => {
                if self.leader.as_ref() != Some(&(node.clone(), epoch)) {
                    self.follow_leader(now, node, epoch);
                }
            }
            None => {
                self.leader = None;
                let from = now + self.spread();
                self.campaign_at = Some(self.campaign_at.map_or(from, |at| at.min(from)));
            }
        }
        self.tick(now)
    }

    /// This node leads, whatever epochs it knew, because revisions start over in a bucket that was emptied.
    pub(super) fn elected(&mut self, now: Duration, epoch: u64) -> Vec<Effect> {
        self.fence = (epoch, now);
        self.follow_leader(now, self.membership.node.clone(), epoch);
        self.tick(now)
    }

    /// The leader has called this request: ask now.
    pub(super) fn turn(&mut self, now: Duration, permit: PermitId) -> Vec<Effect> {
        if self.claims.get(permit).is_some() {
            self.claims.change_waiting(permit, |claim| (claim.ask_at, claim.asked) = (now, None));
        } else {
            // The permit is not wanted any more. The return is sent to the leader again, because the first message was lost.
            self.give_back(now, permit, false, None, None);
        }
        self.tick(now)
    }

    pub(super) fn tick(&mut self, now: Duration) -> Vec<Effect> {
        let mut wanted = Vec::new();
        self.lapse(now, &mut wanted);
        self.count_misses(now);
        self.go_alone(now, &mut wanted);
        let Some((leader, epoch)) = self.leader.clone() else {
            // A node that has known a leader delays its request, because the other nodes ask at the same time. A node that has known none
            // asks at once, because mostly there is a leader already.
            let from = if self.fence.0 == 0 { now } else { now + self.spread() };
            if !self.is_idle() && *self.campaign_at.get_or_insert(from) <= now {
                self.campaign_at = Some(now + CAMPAIGN_EVERY);
                wanted.push(Effect::Campaign { owner: self.membership.owner.clone() });
            }
            return wanted;
        };
        self.call_leader(now, &leader, epoch, &mut wanted);
        wanted
    }

    pub(super) fn wake_at(&self, now: Duration) -> Option<Duration> {
        if self.is_idle() {
            return None;
        }
        let within = self.within();
        let asked = |asked: Option<Duration>| asked.map(|asked| asked + within);
        let claims = self.may_go(now).into_iter().filter_map(|permit| self.claims.get(permit));
        let asks = claims.map(|claim| asked(claim.asked).unwrap_or(if self.leader.is_some() { claim.ask_at } else { now + within }));
        let returned = self.claims.returned().filter_map(|permit| self.claims.get(permit));
        let returns = returned.map(|back| asked(back.asked).unwrap_or(back.ask_at.max(now + within)));
        let renews = self.claims.in_flight_count() > 0 || self.check_leader_until.is_some();
        let renew = (self.leader.is_some() && renews).then(|| asked(self.renew_asked).unwrap_or(self.renew_at));
        let campaign = if self.leader.is_none() { self.campaign_at } else { None };
        let alone = Some(self.leader_seen + self.membership.alone_after).filter(|at| *at > now);
        let own = Some(now + self.own_rate_limiter.ready_in(now, 0)).filter(|at| *at > now && self.claims.waiting_count() > 0);
        asks.chain(returns).chain(renew).chain(campaign).chain(alone).chain(own).chain([now + CAMPAIGN_EVERY]).min()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.claims.is_empty() && self.check_leader_until.is_none()
    }

    /// How many claims were looked at since the last call.
    #[cfg(test)]
    pub(super) fn take_looked_at(&self) -> usize {
        self.claims.take_looked_at()
    }

    pub(super) fn wait_of(&self, now: Duration, permit: PermitId) -> Option<BudgetWait> {
        let claim = self.claims.get(permit).filter(|claim| claim.stage == Stage::Waiting)?;
        if claim.turn_at.is_none() && !self.may_go(now).contains(&permit) {
            return None;
        }
        Some(BudgetWait { ahead: claim.ahead, wait: claim.turn_at.map(|at| at.saturating_sub(now)) })
    }

    /// The waits of the requests whose turn the leader has stated.
    pub(super) fn known_waits(&self, now: Duration) -> impl Iterator<Item = (PermitId, BudgetWait)> {
        self.claims.placed().filter_map(move |permit| Some((permit, self.wait_of(now, permit)?)))
    }

    pub(super) fn assert_invariants(&self) {
        debug_assert!(self.claims.returned_count() <= RETURNS_MAX, "returns are bounded");
        self.claims.assert_invariants();
    }

    /// Whether no leader was reached for so long that the node uses its own share.
    pub(super) fn is_alone(&self, now: Duration) -> bool {
        now >= self.leader_seen + self.membership.alone_after
    }

    pub(super) fn in_flight(&self) -> u64 {
        self.claims.in_flight_count() as u64
    }

    pub(super) fn waiting(&self) -> u64 {
        self.claims.waiting_count() as u64
    }

    /// Forgets the limits.
    pub(super) fn forget_quota(&mut self, now: Duration) -> Vec<Effect> {
        (self.remembered, self.limits_stated_at) = (Remembered::default(), None);
        self.tick(now)
    }

    /// Delays the request for a lease, so that 1,000 nodes do not ask at once: the first one takes it and the others learn that.
    fn spread(&self) -> Duration {
        Duration::from_secs_f64(self.membership.stagger * (self.membership.alive as f64 / 1_000.0).clamp(0.001, 1.0))
    }

    /// Whether a leader has answered so lately that its permits may be out.
    pub(super) fn was_led(&self, now: Duration) -> bool {
        self.fence.0 > 0 && now < self.fence.1 + LEADERS_PERMITS_LAST
    }
}
