//! All budgets of one node: those in which it is a client, and those that it leads.

mod fleet_size;
mod following;
mod forgetting;
mod invariants;
mod leading;
mod listing;
mod queries;
mod stated_caps;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use clock::{Now, Random};
use contract::messages::throttler::{BudgetAnswer, BudgetRenewed, BudgetReturned};
use contract::{DEADLINES, NodeName, PermitId};
use lease::{Lease, Terms};

use self::stated_caps::StatedCaps;
use super::client::{BudgetClient, Membership};
use super::leader::Leader;
use super::planted_bug::PlantedBug;
use super::policies::Policies;
use super::rate::{RateCause, ReportedRate};
use super::step::{BudgetReply, BudgetRequest, Effect, Input};
use super::{BudgetPolicy, OWNERS_MAX};

/// A leader gives the lease back if nobody has asked it for this long and no quota of its registry is known.
const IDLE_LEADER_KEPT: Duration = Duration::from_secs(60);
/// A renewal that failed is repeated after this, because it fails at once without a connection and the lease ends within seconds.
const RENEWED_AGAIN: Duration = Duration::from_millis(250);
/// The times of a budget leader's lease.
const TERMS: Terms = Terms {
    term: DEADLINES.leader_lease,
    renew_every: DEADLINES.leader_lease_renewed_every,
    renew_again: RENEWED_AGAIN,
    answer_within: DEADLINES.campaign,
};

/// A budget that this node leads.
#[derive(Debug)]
struct Lead {
    core: Leader,
    /// When a node called last. This node's own calls count only if they ask for a permit.
    used: Duration,
    reported: ReportedRate,
    /// Why the rate is not higher, and since when.
    cause: (RateCause, Duration),
    stated_caps: StatedCaps,
}

/// All that this node has of one budget. It is a client of each budget that it knows. Of some it requests or holds the lease, and a lease
/// that it has won makes it their leader.
#[derive(Debug)]
struct Budget {
    /// When the client had something to do last.
    used: Duration,
    client: BudgetClient,
    lease: Lease,
    /// None while this node does not lead. It leads for as long as it holds the lease, in the lease's epoch.
    lead: Option<Lead>,
}

impl Budget {
    /// The epoch in which this node holds the lease.
    fn epoch_held(&self, now: Duration) -> Option<u64> {
        self.lease.epoch(now)
    }
}

/// The budgets of one node: the state machine of this module.
#[derive(Debug)]
pub struct Budgets {
    node: NodeName,
    policies: Policies,
    random: Random,
    /// By owner.
    budgets: BTreeMap<String, Budget>,
    owners: BTreeMap<PermitId, String>,
    /// The number of live nodes and when it was reported, falling: the first is the highest within `DEADLINES.known_for`.
    alive: VecDeque<(Duration, u64)>,
    bus_lost: Option<Duration>,
    /// How long a node waits without a leader before it continues alone, by the present state of the bus.
    alone_after: Duration,
    forgotten_total: u64,
    slots: usize,
    planted_bug: Option<PlantedBug>,
}

impl Budgets {
    /// A node without budgets. `random` only spreads requests over time.
    #[must_use]
    pub fn new(node: NodeName, policy: BudgetPolicy, random: Random) -> Self {
        Self {
            node,
            policies: Policies::new(policy),
            random,
            budgets: BTreeMap::new(),
            owners: BTreeMap::new(),
            alive: VecDeque::new(),
            bus_lost: None,
            alone_after: DEADLINES.alone_after,
            forgotten_total: 0,
            slots: 0,
            planted_bug: None,
        }
    }

    /// Sets how many pulls the node runs at once; 0 for no limit. The node asks for no more permits of a budget than it has slots.
    #[must_use]
    pub fn with_slots(mut self, slots: usize) -> Self {
        self.slots = slots;
        self
    }

    /// Sets how to find the registry of an owner's budget, because the fleet policy names registries only.
    #[must_use]
    pub fn with_registries(mut self, registry_of: fn(&str) -> String) -> Self {
        self.policies.registry_of = registry_of;
        self
    }

    /// Plants a bug, to test the checkers.
    #[must_use]
    pub fn with_planted_bug(mut self, planted_bug: Option<PlantedBug>) -> Self {
        self.planted_bug = planted_bug;
        self
    }

    /// Handles one input and returns the resulting effects.
    pub fn step(&mut self, now: Now, input: Input) -> Vec<Effect> {
        let now = now.monotonic;
        let (mut effects, mut work) = (Vec::new(), VecDeque::new());
        self.step_down(now, &mut work);
        match input {
            Input::Want { owner, permit } => self.want(now, owner, permit, &mut work, &mut effects),
            Input::Report { permit, limits } => self.pass_to_client(now, permit, |client| client.report(now, permit, limits), &mut work),
            Input::Release { permit, limits, served } => {
                self.pass_to_client(now, permit, |client| client.release(now, permit, limits, served), &mut work);
                self.owners.remove(&permit);
            }
            Input::Called(call) => effects.push(Effect::Reply(self.serve(now, &call, true, &mut work))),
            Input::Replied { asked, call, reply } => {
                self.client(now, call.owner(), |client| client.replied(now, asked, &call, reply), &mut work);
            }
            Input::Turn(turn) => work.push_back(Effect::Turn { to: self.node.clone(), turn }),
            Input::Lead { owner, leader } => self.led_by(now, &owner, leader, &mut work),
            Input::Elected { owner, term } => self.elected(now, owner, term, &mut work, &mut effects),
            Input::LeaseKept { owner, epoch, until } => self.lease_kept(now, &owner, epoch, until, &mut effects),
            Input::LeaseLost { owner, epoch } => self.lease_lost(now, &owner, epoch, &mut work),
            Input::LeaseUnknown { owner, asked } => self.lease_unknown(now, &owner, asked, &mut effects),
            Input::Fleet { alive } => self.fleet(now, alive),
            Input::Policy { policy, revision } => self.follow(now, policy, revision, &mut work),
            Input::ForgetQuota { owner } => self.forget_quota(now, &owner, &mut work),
            Input::BusLost => self.bus_lost = self.bus_lost.or(Some(now)),
            Input::BusUnusable => {
                self.bus_lost = self.bus_lost.or(Some(now));
                self.set_alone_after(DEADLINES.alone_after_unusable_bus);
                self.tick(now, &mut work, &mut effects);
            }
            Input::BusBack => self.bus_back(now, &mut work),
            Input::Tick => self.tick(now, &mut work, &mut effects),
        }
        self.carry_out(now, work, &mut effects);
        for (owner, Budget { lead, .. }) in &mut self.budgets {
            let Some(lead) = lead else { continue };
            let (rate, cause) = (lead.core.rate(), lead.core.cause());
            if lead.cause.0 != cause {
                lead.cause = (cause, now);
            }
            let changed = lead.reported.report(now, rate).map(|before| Effect::RateChanged { owner: owner.clone(), rate, before });
            effects.extend(changed);
        }
        self.assert_invariants();
        effects
    }

    fn bus_back(&mut self, now: Duration, work: &mut VecDeque<Effect>) {
        if self.bus_lost.take().is_none() {
            return;
        }
        self.set_alone_after(DEADLINES.alone_after);
        for budget in self.budgets.values_mut() {
            work.extend(budget.client.bus_back(now));
        }
    }

    fn set_alone_after(&mut self, alone_after: Duration) {
        self.alone_after = alone_after;
        self.budgets.values_mut().for_each(|budget| budget.client.membership.alone_after = alone_after);
    }

    fn want(&mut self, now: Duration, owner: String, permit: PermitId, work: &mut VecDeque<Effect>, effects: &mut Vec<Effect>) {
        let owner = self.owners.get(&permit).cloned().unwrap_or(owner);
        let since = self.bus_lost.unwrap_or(now);
        if !self.budgets.contains_key(&owner) {
            if !self.make_room() {
                let text = format!("pulls of this node are counted on {OWNERS_MAX} budgets already: try again later");
                return effects.push(Effect::Refused { permit, text });
            }
            let membership = Membership {
                owner: owner.clone(),
                node: self.node.clone(),
                settings: self.policies.settings.caps(),
                policy: self.policies.of(&owner),
                alive: self.alive.back().map_or(0, |(_, alive)| *alive),
                stagger: self.random.fraction(),
                slots: self.slots,
                alone_after: self.alone_after,
                planted_bug: self.planted_bug,
            };
            let client = BudgetClient::new(now, since, membership);
            self.budgets.insert(owner.clone(), Budget { used: now, client, lease: Lease::new(TERMS), lead: None });
        }
        self.owners.insert(permit, owner.clone());
        self.client(now, &owner, |client| client.want(now, since, permit), work);
    }

    /// Makes room for one more owner, if needed by forgetting the least recently used one; false if none can be forgotten.
    fn make_room(&mut self) -> bool {
        if self.budgets.len() < OWNERS_MAX {
            return true;
        }
        let idle = self.budgets.iter().filter(|(_, budget)| budget.client.is_idle() && budget.lead.is_none());
        let Some(oldest) = idle.min_by_key(|(_, budget)| budget.used).map(|(owner, _)| owner.clone()) else { return false };
        self.budgets.remove(&oldest);
        self.forgotten_total += 1;
        true
    }

    fn tick(&mut self, now: Duration, work: &mut VecDeque<Effect>, effects: &mut Vec<Effect>) {
        for budget in self.budgets.values_mut() {
            work.extend(budget.client.tick(now));
        }
        let mut idle = Vec::new();
        for (owner, Budget { lead, .. }) in &mut self.budgets {
            let Some(lead) = lead else { continue };
            lead.core.tick(now);
            work.extend(lead.core.take_turns());
            let nothing_to_report = lead.core.known(now).limits.is_empty() && !lead.reported.is_spent();
            if lead.core.is_idle() && nothing_to_report && now >= lead.used + IDLE_LEADER_KEPT {
                idle.push((owner.clone(), lead.core.term.epoch));
            }
        }
        for (owner, epoch) in idle {
            self.lease_lost_to(now, &owner, None, work);
            effects.push(Effect::DropLease { owner, epoch, in_good_order: true });
        }
        let is_due = |budget: &Budget| budget.lease.next_due().is_some_and(|due| due <= now);
        let due: Vec<String> = self.budgets.iter().filter(|(_, budget)| is_due(budget)).map(|(owner, _)| owner.clone()).collect();
        for owner in due {
            self.lease(now, &owner, lease::Input::Tick, effects);
        }
    }

    fn pass_to_client(
        &mut self,
        now: Duration,
        permit: PermitId,
        act: impl FnOnce(&mut BudgetClient) -> Vec<Effect>,
        work: &mut VecDeque<Effect>,
    ) {
        if let Some(owner) = self.owners.get(&permit).cloned() {
            self.client(now, &owner, act, work);
        }
    }

    fn client(&mut self, now: Duration, owner: &str, act: impl FnOnce(&mut BudgetClient) -> Vec<Effect>, work: &mut VecDeque<Effect>) {
        let Some(budget) = self.budgets.get_mut(owner) else { return };
        budget.used = now;
        work.extend(act(&mut budget.client));
    }

    /// The budgets that this node leads, by owner.
    fn leads(&self) -> impl Iterator<Item = (&String, &Lead)> {
        self.budgets.iter().filter_map(|(owner, budget)| Some((owner, budget.lead.as_ref()?)))
    }

    fn lead(&self, owner: &str) -> Option<&Lead> {
        self.budgets.get(owner)?.lead.as_ref()
    }

    fn lead_mut(&mut self, owner: &str) -> Option<&mut Lead> {
        self.budgets.get_mut(owner)?.lead.as_mut()
    }

    /// Answers a call as the budget leader.
    fn serve(&mut self, now: Duration, call: &BudgetRequest, of_others: bool, work: &mut VecDeque<Effect>) -> BudgetReply {
        if let BudgetRequest::Grant(ask) = call
            && self.lead_mut(&ask.owner).is_some_and(|lead| lead.stated_caps.state(&ask.node, ask.caps))
        {
            self.set_caps(now, &ask.owner);
        }
        let Some(lead) = self.lead_mut(call.owner()) else {
            return match call {
                BudgetRequest::Grant(_) => BudgetReply::Granted(BudgetAnswer::NotLeading {}),
                BudgetRequest::Renew(_) => BudgetReply::Renewed(BudgetRenewed::default()),
                BudgetRequest::Return(_) => BudgetReply::Returned(BudgetReturned::default()),
            };
        };
        if of_others || matches!(call, BudgetRequest::Grant(_)) {
            lead.used = now;
        }
        let reply = match call {
            BudgetRequest::Grant(ask) => BudgetReply::Granted(lead.core.ask(now, ask)),
            BudgetRequest::Renew(renew) => BudgetReply::Renewed(lead.core.renew(now, renew)),
            BudgetRequest::Return(back) => {
                lead.core.give_back(now, back);
                BudgetReply::Returned(BudgetReturned { epoch: lead.core.term.epoch })
            }
        };
        work.extend(lead.core.take_turns());
        reply
    }

    /// Passes on what clients and leaders want done. What is for this node itself is done here.
    fn carry_out(&mut self, now: Duration, mut work: VecDeque<Effect>, effects: &mut Vec<Effect>) {
        while let Some(effect) = work.pop_front() {
            match effect {
                Effect::Call { to, call, .. } if to == self.node => {
                    let reply = self.serve(now, &call, false, &mut work);
                    self.client(now, call.owner(), |client| client.replied(now, now, &call, reply), &mut work);
                }
                Effect::Turn { to, turn } if to == self.node => {
                    self.client(now, &turn.owner, |client| client.turn(now, turn.permit), &mut work);
                }
                // A node that leads may only look up the leader.
                Effect::Campaign { owner } if self.lead(&owner).is_none() => {
                    self.lease(now, &owner, lease::Input::Acquire, effects);
                }
                effect => {
                    if let Effect::Lapsed { permit } | Effect::Refused { permit, .. } = &effect {
                        self.owners.remove(permit);
                    }
                    effects.push(effect);
                }
            }
        }
    }
}
