//! A small fleet in simulated time: nodes, a bus that loses, doubles, delays and cuts off messages, leases by compare-and-set, and a
//! registry that counts.

mod plan;
mod pulls;
mod server;
mod troubles;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use clock::{Now, Random};
use contract::messages::throttler::BudgetTurn;
use contract::policy::{Caps, FleetPolicy};
use contract::{NodeName, PermitId};
use pulls::Pull;
use server::Lease;
use throttler::core::budget::{BudgetPolicy, BudgetReply, BudgetRequest, Budgets, Effect, Input, Term};

pub(crate) use plan::Plan;

/// The owner of all requests.
pub(crate) const OWNER: &str = "default/registry.example/anonymous";

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
            Effect::Reply(_) => unreachable!("answered where it is asked"),
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
        let effects = self.nodes[at].core.step(now, Input::Called(call.clone()));
        for effect in effects {
            match effect {
                Effect::Reply(reply) => self.send(at, from, Letter::Reply { asked, call: call.clone(), reply }),
                other => self.carry_out(at, other),
            }
        }
        self.give(at, Input::Tick);
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
