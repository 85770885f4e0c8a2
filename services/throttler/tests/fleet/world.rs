//! A small fleet in simulated time: nodes, a bus that loses, doubles, delays and cuts off messages, leases by compare-and-set, and a
//! registry that counts.

mod server;
mod troubles;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use clock::{Now, Random};
use contract::messages::throttler::{BudgetTurn, RegistryLimit};
use contract::policy::{Caps, FleetPolicy};
use contract::{NodeName, PermitId};
use server::Lease;
use throttler::core::budget::{BudgetPolicy, BudgetReply, BudgetRequest, Budgets, Effect, FLEET_PERMIT_LEASE, Input, PlantedBug, Term};

/// The owner of all requests.
pub(crate) const OWNER: &str = "default/registry.example/anonymous";

/// What goes wrong, and what is requested.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) nodes: usize,
    pub(crate) policy: BudgetPolicy,
    /// The fleet policy sets `policy`, and each node's settings differ from it.
    pub(crate) by_policy: bool,
    /// Pulls in a window, and the length of the window.
    pub(crate) quota: Option<(u64, Duration)>,
    /// The number of addresses by which the registry knows the fleet. It counts each apart, and names them if there are several.
    pub(crate) sources: usize,
    pub(crate) requests_per_node: usize,
    /// The time over which the requests come.
    pub(crate) requested_within: Duration,
    pub(crate) pull_takes: Duration,
    pub(crate) loss: f64,
    pub(crate) doubling: f64,
    pub(crate) delay_most: Duration,
    /// The least time that each message of a far node takes, its messages to itself included, because they use the bus.
    pub(crate) one_way: Duration,
    /// How many nodes, counted from the last, are far from the server.
    pub(crate) far_nodes: usize,
    /// How many crashes, partitions and stalls there are in the first minute.
    pub(crate) troubles: usize,
    /// How long the first node is cut off from the beginning.
    pub(crate) first_cut_for: Duration,
    /// When the bucket of leases is wiped, so that revisions start over.
    pub(crate) wiped_at: Option<Duration>,
    /// How often the leader's lease is taken away in the first minute, so that there are two leaders.
    pub(crate) thefts: usize,
    /// How often a clock jumps by five minutes in the first minute.
    pub(crate) jumps: usize,
    pub(crate) lasts: Duration,
    pub(crate) planted_bug: Option<PlantedBug>,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            nodes: 8,
            policy: BudgetPolicy::default(),
            by_policy: false,
            quota: None,
            sources: 1,
            requests_per_node: 1,
            requested_within: Duration::from_millis(500),
            pull_takes: Duration::from_millis(50),
            loss: 0.0,
            doubling: 0.0,
            delay_most: Duration::from_millis(2),
            one_way: Duration::ZERO,
            far_nodes: 0,
            troubles: 0,
            first_cut_for: Duration::ZERO,
            wiped_at: None,
            thefts: 0,
            jumps: 0,
            lasts: Duration::from_secs(120),
            planted_bug: None,
        }
    }
}

/// The observations of a run.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// When each pull of a node that reaches a leader began.
    pub(crate) begun: Vec<Duration>,
    pub(crate) alone: usize,
    pub(crate) served: usize,
    /// Pulls that ran on a node when it crashed, stalled or was cut off.
    pub(crate) struck: usize,
    /// Pulls with a permit that the registry refused.
    pub(crate) over_quota: usize,
    /// The most pulls at once whose permits had not run out.
    pub(crate) most_at_once: usize,
    pub(crate) refused: usize,
    pub(crate) leaders: usize,
    /// Troubles that happened.
    pub(crate) troubles: usize,
    /// Leases that were taken away from their leaders.
    pub(crate) thefts: usize,
    /// The longest wait that was stated.
    pub(crate) longest_stated: Duration,
}

#[derive(Clone, Debug)]
enum Event {
    Request(usize),
    Deliver(usize, u64, Box<Letter>),
    Wake(usize, u64),
    WantAgain(usize, u64, PermitId),
    PullEnds(usize, u64, PermitId),
    Trouble,
    Heal(usize),
    Restart(usize),
    Wipe,
    Theft,
    Jump,
}

#[derive(Clone, Debug)]
enum Letter {
    Call { from: usize, asked: Duration, call: BudgetRequest },
    Reply { asked: Duration, call: BudgetRequest, reply: BudgetReply },
    Turn(BudgetTurn),
    Lead(Option<(NodeName, u64)>),
    Elected(Term),
    Kept(u64, Duration),
    Lost(u64),
}

struct Node {
    core: Budgets,
    incarnation: u64,
    up: bool,
    cut: bool,
    stalled_until: Duration,
    /// How far its monotonic clock has jumped.
    ahead: Duration,
    wake: u64,
    wants: BTreeSet<PermitId>,
    todo: usize,
}

struct Pull {
    until: Duration,
    alone: bool,
    /// The permit ran out while the pull continued.
    ran_out: bool,
    stated: Option<RegistryLimit>,
}

pub(crate) struct World {
    plan: Plan,
    now: Duration,
    random: Random,
    queue: BTreeMap<(Duration, u64), Event>,
    numbers: u64,
    nodes: Vec<Node>,
    lease: Lease,
    pulls: BTreeMap<(usize, PermitId), Pull>,
    /// For each source, when its window began and how many pulls it has.
    windows: BTreeMap<usize, (Duration, u64)>,
    seen: Seen,
    events: u64,
    /// How many events happened at the same time.
    same: u64,
}

impl World {
    pub(crate) fn run(plan: Plan, seed: u64) -> Seen {
        let mut random = Random::seeded(seed);
        let node = |at: usize, random: &mut Random| Node {
            core: core(&plan, at, random),
            incarnation: 0,
            up: true,
            cut: false,
            stalled_until: Duration::ZERO,
            ahead: Duration::ZERO,
            wake: 0,
            wants: BTreeSet::new(),
            todo: plan.requests_per_node,
        };
        let nodes = (0..plan.nodes).map(|at| node(at, &mut random)).collect();
        let mut world = Self {
            plan,
            now: Duration::from_secs(1),
            random,
            queue: BTreeMap::new(),
            numbers: 0,
            nodes,
            lease: Lease::of_old(),
            pulls: BTreeMap::new(),
            windows: BTreeMap::new(),
            seen: Seen::default(),
            events: 0,
            same: 0,
        };
        world.begin();
        while let Some(((at, _), event)) = world.queue.pop_first() {
            if at > world.plan.lasts {
                break;
            }
            assert!(
                world.events < 20_000_000
                    && (at > world.now || {
                        world.same += 1;
                        world.same < 200_000
                    }),
                "time stands still at {at:?}: {event:?}"
            );
            if at > world.now {
                world.same = 0;
            }
            world.events += 1;
            world.now = at;
            world.happen(event);
        }
        world.seen
    }

    fn begin(&mut self) {
        for at in 0..self.nodes.len() {
            self.report_fleet(at);
            for _ in 0..self.plan.requests_per_node {
                let after = self.plan.requested_within.mul_f64(self.random.fraction());
                self.later(after, Event::Request(at));
            }
        }
        let (troubles, thefts, jumps) = (self.plan.troubles, self.plan.thefts, self.plan.jumps);
        for (event, count) in [(Event::Trouble, troubles), (Event::Theft, thefts), (Event::Jump, jumps)] {
            for _ in 0..count {
                let after = Duration::from_secs_f64(2.0 + 58.0 * self.random.fraction());
                self.later(after, event.clone());
            }
        }
        self.nodes[0].cut = !self.plan.first_cut_for.is_zero();
        self.later(self.plan.first_cut_for, Event::Heal(0));
        if let Some(after) = self.plan.wiped_at {
            self.later(after, Event::Wipe);
        }
    }

    /// Tells a node what it learns when it has found the bus.
    fn report_fleet(&mut self, at: usize) {
        let alive = self.plan.nodes as u64;
        self.give(at, Input::Fleet { alive });
        if self.plan.by_policy {
            let BudgetPolicy { per_second, at_once, .. } = self.plan.policy;
            let budget = Caps { pulls_per_second: Some(per_second), pulls_at_once: (at_once > 0).then_some(at_once as u64) };
            self.give(at, Input::Policy { policy: FleetPolicy { budget, ..FleetPolicy::default() }, revision: 1 });
        }
    }

    fn later(&mut self, after: Duration, event: Event) {
        self.numbers += 1;
        self.queue.insert((self.now + after, self.numbers), event);
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Request(at) => self.request(at),
            Event::Deliver(to, incarnation, letter) => self.deliver(to, incarnation, *letter),
            Event::Wake(at, number) => {
                if self.nodes[at].wake == number {
                    self.unless_stalled(at, Event::Wake(at, number), |world| world.give(at, Input::Tick));
                }
            }
            Event::WantAgain(at, incarnation, permit) => {
                let node = &self.nodes[at];
                let pulls = self.pulls.contains_key(&(at, permit));
                if node.up && node.incarnation == incarnation && (pulls || node.wants.contains(&permit)) {
                    self.give(at, Input::Want { owner: OWNER.to_owned(), permit });
                    self.later(Duration::from_secs(5), Event::WantAgain(at, incarnation, permit));
                }
            }
            Event::PullEnds(at, incarnation, permit) => self.pull_ends(at, incarnation, permit),
            Event::Trouble => self.trouble(),
            Event::Heal(at) => self.nodes[at].cut = false,
            Event::Restart(at) => self.restart(at),
            Event::Wipe => self.lease = Lease::lost(self.now),
            Event::Theft => self.steal(),
            Event::Jump => self.jump(),
        }
    }

    fn unless_stalled(&mut self, at: usize, event: Event, act: impl FnOnce(&mut Self)) {
        let until = self.nodes[at].stalled_until;
        if until > self.now { self.later(until - self.now, event) } else { act(self) }
    }

    fn request(&mut self, at: usize) {
        let permit = PermitId::random(&mut self.random);
        if self.nodes[at].up {
            self.nodes[at].wants.insert(permit);
            let incarnation = self.nodes[at].incarnation;
            self.later(Duration::ZERO, Event::WantAgain(at, incarnation, permit));
        }
    }

    /// The time by a node's clock.
    fn clock(&self, at: usize) -> Now {
        Now { monotonic: self.now + self.nodes[at].ahead, wall: self.now }
    }

    fn give(&mut self, at: usize, input: Input) {
        if !self.nodes[at].up {
            return;
        }
        let now = self.clock(at);
        for effect in self.nodes[at].core.step(now, input) {
            self.carry_out(at, effect);
        }
        let waits = self.nodes[at].wants.iter().filter_map(|permit| self.nodes[at].core.wait_of(now, *permit)?.wait).max();
        self.seen.longest_stated = self.seen.longest_stated.max(waits.unwrap_or_default());
        if let Some(after) = self.nodes[at].core.wake_in(now) {
            self.numbers += 1;
            self.nodes[at].wake = self.numbers;
            // Timers have whole milliseconds.
            let after = Duration::from_millis(after.as_nanos().div_ceil(1_000_000) as u64);
            self.queue.insert((self.now + after, self.numbers), Event::Wake(at, self.numbers));
        }
    }

    fn carry_out(&mut self, at: usize, effect: Effect) {
        match effect {
            Effect::Call { to, asked, call } => {
                let to = index(&to);
                self.send(at, to, Letter::Call { from: at, asked, call });
            }
            Effect::Reply { .. } => unreachable!("answered where it is asked"),
            Effect::Turn { to, turn } => self.send(at, index(&to), Letter::Turn(turn)),
            Effect::Campaign { .. } => self.campaign(at),
            Effect::KeepLease { epoch, .. } => self.keep(at, epoch),
            Effect::DropLease { epoch, .. } => {
                self.lease.drop_of(at, epoch);
            }
            Effect::Granted { permit, alone, .. } => self.granted(at, permit, alone),
            Effect::RanOut { permit, .. } => {
                if let Some(pull) = self.pulls.get_mut(&(at, permit)) {
                    pull.ran_out = true;
                }
            }
            Effect::RateChanged { .. } | Effect::Lapsed { .. } => {}
            Effect::Refused { permit, .. } => {
                self.nodes[at].wants.remove(&permit);
                self.seen.refused += 1;
            }
        }
    }

    /// Sends a message from a node, or from the server (`usize::MAX`).
    fn send(&mut self, from: usize, to: usize, letter: Letter) {
        let cut = |at: usize| at != usize::MAX && self.nodes[at].cut;
        if cut(from) || cut(to) || self.random.fraction() < self.plan.loss {
            return;
        }
        let copies = if self.random.fraction() < self.plan.doubling { 2 } else { 1 };
        for copy in 0..copies {
            let most = self.plan.delay_most * if copy == 0 { 1 } else { 1_000 };
            let far = (self.plan.nodes - self.plan.far_nodes)..self.plan.nodes;
            let way = if far.contains(&from) || far.contains(&to) { self.plan.one_way } else { Duration::ZERO };
            let after = way + most.mul_f64(self.random.fraction());
            let incarnation = self.nodes[to].incarnation;
            self.later(after, Event::Deliver(to, incarnation, Box::new(letter.clone())));
        }
    }

    fn deliver(&mut self, to: usize, incarnation: u64, letter: Letter) {
        if !self.nodes[to].up || self.nodes[to].incarnation != incarnation {
            return;
        }
        if self.nodes[to].stalled_until > self.now {
            let event = Event::Deliver(to, incarnation, Box::new(letter));
            return self.later(self.nodes[to].stalled_until - self.now, event);
        }
        let owner = OWNER.to_owned();
        match letter {
            Letter::Call { from, asked, call } => self.serve(to, from, asked, call),
            Letter::Reply { asked, call, reply } => self.give(to, Input::Replied { asked, call, reply }),
            Letter::Turn(turn) => self.give(to, Input::Turn(turn)),
            Letter::Lead(leader) => self.give(to, Input::Lead { owner, leader }),
            Letter::Elected(term) => self.give(to, Input::Elected { owner, term }),
            Letter::Kept(epoch, until) => self.give(to, Input::LeaseKept { owner, epoch, until }),
            Letter::Lost(epoch) => self.give(to, Input::LeaseLost { owner, epoch }),
        }
    }

    fn serve(&mut self, at: usize, from: usize, asked: Duration, call: BudgetRequest) {
        let now = self.clock(at);
        let effects = self.nodes[at].core.step(now, Input::Called { token: 7, call: call.clone() });
        for effect in effects {
            match effect {
                Effect::Reply { token: 7, reply } => self.send(at, from, Letter::Reply { asked, call: call.clone(), reply }),
                other => self.carry_out(at, other),
            }
        }
        self.give(at, Input::Tick);
    }

    fn granted(&mut self, at: usize, permit: PermitId, alone: bool) {
        if !self.nodes[at].wants.remove(&permit) {
            return;
        }
        let incarnation = self.nodes[at].incarnation;
        let stated = self.registry_asked(at);
        if alone {
            self.seen.alone += 1;
        } else {
            self.seen.begun.push(self.now);
            self.seen.over_quota += usize::from(stated.as_ref().is_some_and(|limit| limit.limit == 0));
        }
        let takes = self.plan.pull_takes.mul_f64(0.5 + self.random.fraction());
        self.pulls.insert((at, permit), Pull { until: self.now + takes, alone, ran_out: false, stated });
        let now = self.now;
        let counted = self.pulls.iter().filter(|((node, _), pull)| !pull.alone && !pull.ran_out && now < pull.until && !self.lapsed(*node));
        self.seen.most_at_once = self.seen.most_at_once.max(counted.count());
        self.later(takes, Event::PullEnds(at, incarnation, permit));
    }

    /// Whether a node's permits may have run out, because it is cut off, down, or was stalled lately. Its pulls are counted apart.
    fn lapsed(&self, at: usize) -> bool {
        let node = &self.nodes[at];
        !node.up || node.cut || node.stalled_until + FLEET_PERMIT_LEASE > self.now
    }

    fn registry_asked(&mut self, at: usize) -> Option<RegistryLimit> {
        let (limit, length) = self.plan.quota?;
        let number = at % self.plan.sources;
        let source = (self.plan.sources > 1).then(|| format!("192.0.2.{number}"));
        let (began, used) = match self.windows.get(&number).copied() {
            Some((began, used)) if self.now < began + length => (began, used),
            _ => (self.now, 0),
        };
        self.windows.insert(number, (began, used + 1));
        let window_ms = length.as_millis() as u64;
        if used >= limit {
            let reset_ms = Some((began + length - self.now).as_millis() as u64);
            return Some(RegistryLimit { source, reset_ms, ..RegistryLimit::default() });
        }
        Some(RegistryLimit { source, limit, remaining: limit - used - 1, window_ms, reset_ms: None })
    }

    fn pull_ends(&mut self, at: usize, incarnation: u64, permit: PermitId) {
        let Some(pull) = self.pulls.remove(&(at, permit)) else { return };
        if self.nodes[at].incarnation != incarnation || !self.nodes[at].up {
            return;
        }
        let refused = pull.stated.as_ref().is_some_and(|limit| limit.limit == 0);
        if refused {
            self.later(Duration::from_secs(10), Event::Request(at));
        } else {
            self.seen.served += 1;
            self.nodes[at].todo = self.nodes[at].todo.saturating_sub(1);
        }
        self.give(at, Input::Release { permit, limits: pull.stated.into_iter().collect(), served: Some(true) });
    }
}

fn core(plan: &Plan, at: usize, random: &mut Random) -> Budgets {
    let (per_second, at_once) = ([1.0, 500.0, 0.0, 20.0][at % 4], [0, 1, 50][at % 3].min(plan.policy.at_once * 10));
    let others = BudgetPolicy { per_second, at_once, ..plan.policy };
    let settings = if plan.by_policy { others } else { plan.policy };
    Budgets::new(name(at), settings, Random::seeded(random.word())).with_planted_bug(plan.planted_bug)
}

fn name(at: usize) -> NodeName {
    format!("n{at}").parse().unwrap()
}

fn index(name: &NodeName) -> usize {
    name.as_str()[1..].parse().unwrap()
}
