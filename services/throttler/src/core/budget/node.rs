//! All budgets of one node: those in which it is a client, and those that it leads.

mod following;
mod leading;
mod listing;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use clock::{Now, Random};
use contract::messages::throttler::{BudgetAnswer, BudgetRenewed, BudgetReturned, BudgetTurn, PermitCounts, RegistryLimit};
use contract::{NodeName, PermitId};
use lease::{Lease, Terms};

use super::claim::{BudgetWait, Wanted};
use super::client::{BudgetClient, Membership};
use super::leader::Leader;
use super::planted_bug::PlantedBug;
use super::policies::Policies;
use super::rate::ReportedRate;
use super::step::{BudgetReply, BudgetRequest, Effect, Input};
use super::{ALONE_AFTER, ALONE_AFTER_UNUSABLE, BudgetPolicy, CAMPAIGN_WITHIN, KNOWN_FOR, LEAD_RENEWED_EVERY, LEADER_LEASE};

/// The most budget owners that a node remembers: registries times logins in use on one node. The least recently used one is forgotten.
const OWNERS_MAX: usize = 1_000;
/// A leader gives the lease back if nobody has asked it for this long and no quota of its registry is known.
const IDLE_LEADER_KEPT: Duration = Duration::from_secs(60);
/// A renewal that failed is repeated after this, because it fails at once without a connection and the lease ends within seconds.
const RENEWED_AGAIN: Duration = Duration::from_millis(250);
/// The times of a budget leader's lease.
const TERMS: Terms =
    Terms { term: LEADER_LEASE, renew_every: LEAD_RENEWED_EVERY, renew_again: RENEWED_AGAIN, answer_within: CAMPAIGN_WITHIN };
/// The shortest time until the next tick, whatever is due.
const TICK_LEAST: Duration = Duration::from_micros(500);

/// A budget that this node leads.
#[derive(Debug)]
struct Lead {
    core: Leader,
    /// When a node called last. The own node's calls count only if they ask for a permit.
    used: Duration,
    reported: ReportedRate,
}

/// What remains to be done in a step.
enum Work {
    Wanted(String, Wanted),
    Turn(NodeName, BudgetTurn),
}

/// The budgets of one node: the state machine of this module.
#[derive(Debug)]
pub struct Budgets {
    node: NodeName,
    policies: Policies,
    random: Random,
    clients: BTreeMap<String, (Duration, BudgetClient)>,
    leads: BTreeMap<String, Lead>,
    /// Leases that were requested or are held, by owner.
    leases: BTreeMap<String, Lease>,
    owners: BTreeMap<PermitId, String>,
    /// The number of live nodes and when it was reported, falling: the first is the highest within [`KNOWN_FOR`].
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
            clients: BTreeMap::new(),
            leads: BTreeMap::new(),
            leases: BTreeMap::new(),
            owners: BTreeMap::new(),
            alive: VecDeque::new(),
            bus_lost: None,
            alone_after: ALONE_AFTER,
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
        self.policies.set_registry_of(registry_of);
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
            Input::Release { permit, limits, served } => self.release(now, permit, limits, served, &mut work),
            Input::Called { token, call } => {
                let reply = self.serve(now, &call, true, &mut work);
                effects.push(Effect::Reply { token, reply });
            }
            Input::Replied { asked, call, reply } => {
                let owner = call.owner().to_owned();
                self.client(now, &owner, |client| client.replied(now, asked, &call, reply), &mut work);
            }
            Input::Turn(turn) => work.push_back(Work::Turn(self.node.clone(), turn)),
            Input::Lead { owner, leader } => self.led_by(now, &owner, leader, &mut work),
            Input::Elected { owner, term } => self.elected(now, owner, term, &mut work, &mut effects),
            Input::LeaseKept { owner, epoch, until } => self.lease_kept(now, owner, epoch, until, &mut effects),
            Input::LeaseLost { owner, epoch } => self.lease_lost(now, &owner, epoch, &mut work),
            Input::LeaseUnknown { owner, asked } => self.lease_unknown(now, &owner, asked),
            Input::Fleet { alive } => self.fleet(now, alive),
            Input::Policy { policy, revision } => self.follow(now, policy, revision, &mut work),
            Input::BusLost => self.bus_lost = self.bus_lost.or(Some(now)),
            Input::BusUnusable => {
                self.bus_lost = self.bus_lost.or(Some(now));
                self.set_alone_after(ALONE_AFTER_UNUSABLE);
                self.tick(now, &mut work, &mut effects);
            }
            Input::BusBack => self.bus_back(now, &mut work),
            Input::Tick => self.tick(now, &mut work, &mut effects),
        }
        self.carry_out(now, work, &mut effects);
        for (owner, lead) in &mut self.leads {
            let rate = lead.core.rate();
            let changed = lead.reported.report(now, rate).map(|before| Effect::RateChanged { owner: owner.clone(), rate, before });
            effects.extend(changed);
        }
        self.assert_invariants();
        effects
    }

    /// Checks what must hold after each step.
    fn assert_invariants(&self) {
        if !cfg!(debug_assertions) {
            return;
        }
        debug_assert!(self.clients.len() <= OWNERS_MAX, "budgets are bounded");
        debug_assert!(self.leads.keys().all(|owner| self.clients.contains_key(owner)), "a node that leads a budget is its client");
        debug_assert!(
            self.leases.keys().all(|owner| self.clients.contains_key(owner)),
            "a node that wants a lease is a client of its budget"
        );
        let has_lease = |owner: &String| self.leases.get(owner).is_some_and(|lease| lease.until().is_some());
        debug_assert!(
            self.planted_bug == Some(PlantedBug::NoFence) || self.leads.keys().all(has_lease),
            "a node that leads a budget has its lease"
        );
        debug_assert!(self.owners.values().all(|owner| self.clients.contains_key(owner)), "a permit is one of a known budget");
        let claimed = self.clients.values().map(|(_, client)| client.waiting() + client.in_flight()).sum::<u64>();
        debug_assert_eq!(self.owners.len() as u64, claimed, "each permit's budget is known, and of no other");
        debug_assert!(self.alive.iter().is_sorted_by(|(at, most), (later, less)| at <= later && most > less), "the known sizes fall");
        self.clients.values().for_each(|(_, client)| client.assert_invariants());
        self.leads.values().for_each(|lead| lead.core.assert_invariants());
    }

    /// How long until the next tick is due at the latest; none if nothing is pending.
    #[must_use]
    pub fn wake_in(&self, now: Now) -> Option<Duration> {
        let now = now.monotonic;
        let clients = self.clients.values().filter_map(|(_, client)| client.wake_at(now));
        let leads = self.leads.values().filter_map(|lead| lead.core.wake_at(now));
        let leases = self.leases.values().filter_map(Lease::next_due);
        clients.chain(leads).chain(leases).min().map(|at| at.saturating_sub(now).max(TICK_LEAST))
    }

    /// How long a request has to wait; none if it does not wait.
    #[must_use]
    pub fn wait_of(&self, now: Now, permit: PermitId) -> Option<BudgetWait> {
        let (_, client) = self.clients.get(self.owners.get(&permit)?)?;
        client.wait_of(now.monotonic, permit)
    }

    /// The waits of the requests whose turn a leader has stated.
    pub fn known_waits(&self, now: Now) -> impl Iterator<Item = (PermitId, BudgetWait)> {
        self.clients.values().flat_map(move |(_, client)| client.known_waits(now.monotonic))
    }

    /// Whether this permit is counted on a budget.
    #[must_use]
    pub fn knows(&self, permit: PermitId) -> bool {
        self.owners.contains_key(&permit)
    }

    /// Adds the counters of the budgets to those of the node's own queue.
    #[must_use]
    pub fn count(&self, own: PermitCounts) -> PermitCounts {
        let clients = || self.clients.values().map(|(_, client)| client);
        PermitCounts {
            budgets: self.clients.len() as u64,
            budgets_led: self.leads.len() as u64,
            budget_waiting: clients().map(BudgetClient::waiting).sum(),
            budget_in_flight: clients().map(BudgetClient::in_flight).sum(),
            alone_total: clients().map(|client| client.alone_total).sum(),
            overrun_total: clients().map(|client| client.overrun_total).sum(),
            forgotten_total: self.forgotten_total,
            ..own
        }
    }

    /// How many claims were looked at since the last call.
    #[cfg(test)]
    pub(super) fn take_looked_at(&self) -> usize {
        self.clients.values().map(|(_, client)| client.take_looked_at()).sum()
    }

    /// The owners of the budgets that this node leads, with the epochs of its terms.
    pub fn led(&self) -> impl Iterator<Item = (&str, u64)> {
        self.leads.iter().map(|(owner, lead)| (owner.as_str(), lead.core.term.epoch))
    }

    fn bus_back(&mut self, now: Duration, work: &mut VecDeque<Work>) {
        if self.bus_lost.take().is_none() {
            return;
        }
        self.set_alone_after(ALONE_AFTER);
        for (owner, (_, client)) in &mut self.clients {
            work.extend(client.bus_back(now).into_iter().map(|wanted| Work::Wanted(owner.clone(), wanted)));
        }
    }

    fn set_alone_after(&mut self, alone_after: Duration) {
        self.alone_after = alone_after;
        self.clients.values_mut().for_each(|(_, client)| client.alone_after = alone_after);
    }

    fn want(&mut self, now: Duration, owner: String, permit: PermitId, work: &mut VecDeque<Work>, effects: &mut Vec<Effect>) {
        let owner = self.owners.get(&permit).cloned().unwrap_or(owner);
        if !self.clients.contains_key(&owner) && !self.make_room() {
            let text = format!("pulls of this node are counted on {OWNERS_MAX} budgets already: try again later");
            return effects.push(Effect::Refused { permit, text });
        }
        let since = self.bus_lost.unwrap_or(now);
        if !self.clients.contains_key(&owner) {
            let membership = Membership {
                owner: owner.clone(),
                node: self.node.clone(),
                policy: self.policies.of(&owner),
                alive: self.alive.back().map_or(0, |(_, alive)| *alive),
                stagger: self.random.fraction(),
                slots: self.slots,
                alone_after: self.alone_after,
                planted_bug: self.planted_bug,
            };
            self.clients.insert(owner.clone(), (now, BudgetClient::new(now, since, membership)));
        }
        self.owners.insert(permit, owner.clone());
        self.client(now, &owner, |client| client.want(now, since, permit), work);
    }

    fn release(&mut self, now: Duration, permit: PermitId, limits: Vec<RegistryLimit>, served: Option<bool>, work: &mut VecDeque<Work>) {
        self.pass_to_client(now, permit, |client| client.release(now, permit, limits, served), work);
        self.owners.remove(&permit);
    }

    /// Makes room for one more owner, if needed by forgetting the least recently used one; false if none can be forgotten.
    fn make_room(&mut self) -> bool {
        if self.clients.len() < OWNERS_MAX {
            return true;
        }
        let idle = self.clients.iter().filter(|(owner, (_, client))| client.is_idle() && !self.leads.contains_key(*owner));
        let Some(oldest) = idle.min_by_key(|(_, (used, _))| *used).map(|(owner, _)| owner.clone()) else { return false };
        self.clients.remove(&oldest);
        self.leases.remove(&oldest);
        self.forgotten_total += 1;
        true
    }

    fn fleet(&mut self, now: Duration, alive: u64) {
        while self.alive.front().is_some_and(|(at, _)| *at + KNOWN_FOR <= now) {
            self.alive.pop_front();
        }
        while self.alive.back().is_some_and(|(_, less)| *less <= alive) {
            self.alive.pop_back();
        }
        self.alive.push_back((now, alive));
        self.clients.values_mut().for_each(|(_, client)| client.alive = alive);
        let (silent, known) = self.silent();
        self.leads.values_mut().for_each(|lead| lead.core.reserve(silent, known));
    }

    fn reserve(&self, core: &mut Leader) {
        let (silent, known) = self.silent();
        core.reserve(silent, known);
    }

    /// How many of the nodes known within [`KNOWN_FOR`] are silent, and how many are known; both 0 before the first report.
    fn silent(&self) -> (u64, u64) {
        let known = self.alive.front().map_or(0, |(_, most)| *most);
        let alive = self.alive.back().map_or(0, |(_, alive)| *alive);
        (known.saturating_sub(alive), known)
    }

    fn tick(&mut self, now: Duration, work: &mut VecDeque<Work>, effects: &mut Vec<Effect>) {
        for (owner, (_, client)) in &mut self.clients {
            work.extend(client.tick(now).into_iter().map(|wanted| Work::Wanted(owner.clone(), wanted)));
        }
        let mut idle = Vec::new();
        for (owner, lead) in &mut self.leads {
            lead.core.tick(now);
            work.extend(lead.core.take_turns().into_iter().map(|(node, turn)| Work::Turn(node, turn)));
            let nothing_to_report = lead.core.known(now).limits.is_empty() && !lead.reported.is_spent();
            if lead.core.is_idle() && nothing_to_report && now >= lead.used + IDLE_LEADER_KEPT {
                idle.push((owner.clone(), lead.core.term.epoch));
            }
        }
        for (owner, epoch) in idle {
            self.lease_lost_to(now, &owner, None, work);
            effects.push(Effect::DropLease { owner, epoch, in_good_order: true });
        }
        let is_due = |lease: &Lease| lease.next_due().is_some_and(|due| due <= now);
        let due: Vec<String> = self.leases.iter().filter(|(_, lease)| is_due(lease)).map(|(owner, _)| owner.clone()).collect();
        for owner in due {
            self.lease(now, &owner, lease::Input::Tick, effects);
        }
    }

    fn pass_to_client(
        &mut self,
        now: Duration,
        permit: PermitId,
        act: impl FnOnce(&mut BudgetClient) -> Vec<Wanted>,
        work: &mut VecDeque<Work>,
    ) {
        if let Some(owner) = self.owners.get(&permit).cloned() {
            self.client(now, &owner, act, work);
        }
    }

    fn client(&mut self, now: Duration, owner: &str, act: impl FnOnce(&mut BudgetClient) -> Vec<Wanted>, work: &mut VecDeque<Work>) {
        let Some((used, client)) = self.clients.get_mut(owner) else { return };
        *used = now;
        work.extend(act(client).into_iter().map(|wanted| Work::Wanted(owner.to_owned(), wanted)));
    }

    /// Answers a call as the budget leader.
    fn serve(&mut self, now: Duration, call: &BudgetRequest, of_others: bool, work: &mut VecDeque<Work>) -> BudgetReply {
        let Some(lead) = self.leads.get_mut(call.owner()) else {
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
        work.extend(lead.core.take_turns().into_iter().map(|(node, turn)| Work::Turn(node, turn)));
        reply
    }

    /// Carries out the work. A call to a leader on this node is answered here.
    fn carry_out(&mut self, now: Duration, mut work: VecDeque<Work>, effects: &mut Vec<Effect>) {
        while let Some(one) = work.pop_front() {
            match one {
                Work::Wanted(owner, Wanted::Call(to, call)) if to == self.node => {
                    let reply = self.serve(now, &call, false, &mut work);
                    self.client(now, &owner, |client| client.replied(now, now, &call, reply), &mut work);
                }
                Work::Wanted(_, Wanted::Call(to, call)) => effects.push(Effect::Call { to, asked: now, call }),
                // A node that leads may only look up the leader.
                Work::Wanted(owner, Wanted::Campaign) if self.leads.contains_key(&owner) => effects.push(Effect::Campaign { owner }),
                Work::Wanted(owner, Wanted::Campaign) => drop(self.lease(now, &owner, lease::Input::Acquire, effects)),
                Work::Wanted(owner, Wanted::Granted { permit, alone }) => effects.push(Effect::Granted { owner, permit, alone }),
                Work::Wanted(_, Wanted::RanOut { permit, at }) => effects.push(Effect::RanOut { permit, at }),
                Work::Wanted(_, Wanted::Lapsed { permit }) => {
                    self.owners.remove(&permit);
                    effects.push(Effect::Lapsed { permit });
                }
                Work::Wanted(_, Wanted::Refused { permit, text }) => {
                    self.owners.remove(&permit);
                    effects.push(Effect::Refused { permit, text });
                }
                Work::Turn(to, turn) if to == self.node => {
                    let owner = turn.owner.clone();
                    self.client(now, &owner, |client| client.turn(now, turn.permit), &mut work);
                }
                Work::Turn(to, turn) => effects.push(Effect::Turn { to, turn }),
            }
        }
    }
}
