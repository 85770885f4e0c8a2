//! The same storm with the real cores: what each node knows, who goes ahead, who waits.

mod budget;
mod liar;
mod node;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use backoff_tracker::core::knowledge::{Effect, Fault, Input, LeaseAnswer, LeaseName, Verdict};
use clock::{Now, Random};
use contract::{AttemptId, NodeName, PermitId};
use throttler::core as throttle;
use throttler::core::budget as fleet_budget;

use self::budget::Word;
use self::node::{Node, Tried, WISH, key, outcome, refused, served, target};
pub use crate::bus::RoundTrip;
use crate::bus::{Bus, Letter, Spread, Upward};
use crate::kubelet::ASKED_WITHIN;
use crate::policy::Policy;
use crate::queue::Queue;
use crate::registry::{Registry, Reply};
use crate::scenario::{Answer, Scenario};

/// Who waits for a permit or uses one says so again this often: three times within the time after which it lapses.
const RENEW_EVERY: Duration = Duration::from_secs(10);

/// How a run differs from the plain storm.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// How each node behaves.
    pub policy: Policy,
    /// A rule of every core broken on purpose.
    pub fault: Option<Fault>,
    /// The last node says all the time what is not so: see [`liar`].
    pub liar: bool,
    /// So many of the last nodes report one after the other, all the time, that they do not reach the registry.
    pub sick_rack: usize,
    /// Nobody asks for a permit of the fleet's budget.
    pub without_budget: bool,
    /// How quick the bus is.
    pub round_trip: RoundTrip,
    /// When nodes first ask, if not all at the start: nodes of even number at the start, the others then.
    pub second_wave: Option<Duration>,
    /// Nodes that are well first ask within this, one by one, so that the registry is idle for each.
    pub one_by_one: Option<Duration>,
    /// No message gets through in this time, and what was said meanwhile is caught up with at its end.
    pub bus_gone: Option<(Duration, Duration)>,
}

/// A run that is over.
#[derive(Debug)]
pub struct Run {
    /// What the registry saw.
    pub registry: Registry,
    /// Of everything that happened, in order: two runs of one seed have the same.
    pub hash: u64,
    /// The most resolutions that hung at the same time.
    pub most_hanging: usize,
    /// Reports written.
    pub reports: u64,
    /// Leases asked for.
    pub questions: u64,
    /// Leases given.
    pub leases: u64,
    /// Everything that happened, counted.
    pub events: u64,
    /// Nodes that wait for the budget at the end and were told how long that takes, and those that were not.
    pub stated: (usize, usize),
}

enum Event {
    Ask(usize),
    Tick(usize),
    Throttle(usize),
    Budget(usize),
    Letter(usize, Box<Letter>),
    AtServer(usize, Upward),
    Reply(usize, LeaseName, LeaseAnswer),
    At(usize, Spread),
    Answered(usize, AttemptId, Reply),
    Lie(u64),
    Complain(u64),
    BusBack,
}

struct Simulation {
    now: Duration,
    queue: Queue<Event>,
    random: Random,
    scenario: Scenario,
    registry: Registry,
    bus: Bus,
    nodes: Vec<Node>,
    by_name: BTreeMap<NodeName, usize>,
    options: Options,
    /// What was written, for whoever has to catch up.
    written: Vec<Spread>,
    hash: u64,
    questions: u64,
    events: u64,
    hanging: BTreeSet<AttemptId>,
    most_hanging: usize,
}

/// Runs the scenario until `end`.
#[must_use]
pub fn run(scenario: Scenario, nodes: usize, end: Duration, seed: u64, options: Options) -> Run {
    let mut simulation = Simulation::new(scenario, nodes, seed, options);
    while let Some((now, event)) = simulation.queue.next(end) {
        simulation.now = now;
        simulation.events += 1;
        simulation.happen(event);
    }
    Run {
        stated: simulation.stated(),
        registry: simulation.registry,
        hash: simulation.hash,
        most_hanging: simulation.most_hanging,
        reports: simulation.written.len() as u64,
        questions: simulation.questions,
        leases: simulation.bus.granted,
        events: simulation.events,
    }
}

impl Simulation {
    fn new(scenario: Scenario, nodes: usize, seed: u64, options: Options) -> Self {
        let mut random = Random::seeded(seed);
        let mut queue = Queue::default();
        for node in 0..nodes {
            let wave = options.second_wave.filter(|_| node % 2 == 1).unwrap_or_default();
            let within = options.one_by_one.filter(|_| !scenario.is_sick(node)).unwrap_or(ASKED_WITHIN);
            queue.plan(wave + within.mul_f64(random.fraction()), Event::Ask(node));
        }
        if options.liar {
            queue.plan(Duration::ZERO, Event::Lie(0));
        }
        if options.sick_rack > 0 {
            queue.plan(Duration::ZERO, Event::Complain(0));
        }
        if let Some((_, back)) = options.bus_gone {
            queue.plan(back, Event::BusBack);
        }
        let nodes: Vec<Node> = (0..nodes).filter_map(|rank| Node::new(rank, nodes, seed, &options)).collect();
        Self {
            now: Duration::ZERO,
            queue,
            random,
            scenario,
            registry: Registry::new(scenario, nodes.len(), options.policy.answer_time_out, seed),
            bus: Bus::new(nodes.len(), options.round_trip),
            by_name: nodes.iter().enumerate().map(|(rank, node)| (node.name.clone(), rank)).collect(),
            nodes,
            options,
            written: Vec::new(),
            hash: 0xcbf2_9ce4_8422_2325,
            questions: 0,
            events: 0,
            hanging: BTreeSet::new(),
            most_hanging: 0,
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Ask(node) => {
                self.registry.wanted(self.now, node);
                self.ask(node);
            }
            // A tick that was planned for later than the one that counts now is void.
            Event::Tick(node) => {
                if self.nodes[node].tick.take_if(|planned| *planned == self.now).is_some() {
                    self.step(node, Input::Tick);
                }
            }
            Event::Throttle(node) => {
                if self.nodes[node].throttle_tick.take_if(|planned| *planned == self.now).is_some() {
                    self.renew(node);
                }
            }
            Event::Budget(node) => {
                if self.nodes[node].budget_tick.take_if(|planned| *planned == self.now).is_some() {
                    self.budget(node, fleet_budget::Input::Tick);
                }
            }
            Event::Letter(node, letter) => self.open(node, *letter),
            Event::AtServer(node, upward) => self.at_server(node, upward),
            Event::Reply(node, name, answer) => self.step(node, Input::Lease(name, answer)),
            Event::At(node, spread) => self.hear(node, &spread),
            Event::Answered(node, attempt, reply) => self.answered(node, attempt, &reply),
            Event::Lie(number) => self.lie(number),
            Event::Complain(number) => self.complain(number),
            Event::BusBack => self.catch_up(),
        }
    }

    fn step(&mut self, node: usize, input: Input) {
        self.note(node, &input);
        for effect in self.nodes[node].core.step(self.now, input) {
            self.carry_out(node, effect);
        }
        let at = &mut self.nodes[node];
        let wake = at.core.next_wake().map(|wake| wake.max(self.now));
        if let Some(wake) = wake
            && at.tick.is_none_or(|tick| wake < tick)
        {
            at.tick = Some(wake);
            self.queue.plan(wake, Event::Tick(node));
        }
    }

    fn carry_out(&mut self, node: usize, effect: Effect) {
        match effect {
            Effect::Tell(_, Verdict::Clear { answer_by, .. }) => self.acquire(node, answer_by),
            Effect::Tell(..) | Effect::Announce(_) => {}
            Effect::Abandon(_) => {
                self.give_up(node);
                self.ask(node);
            }
            Effect::Publish(report, age) => self.send(node, Upward::Publish(report, self.now.saturating_sub(age))),
            Effect::AcquireLease(name, ttl) => self.send(node, Upward::Acquire(name, ttl)),
            Effect::ReleaseLease(name) => self.send(node, Upward::Release(name)),
        }
    }

    /// Asks for leave, for the first time or because an attempt was to end without a word.
    fn ask(&mut self, node: usize) {
        let image = self.scenario.image_of(node);
        self.step(node, Input::Ask { wish: WISH, key: key(image), target: target(image) });
    }

    /// Asks the node's own bucket and slots.
    fn acquire(&mut self, node: usize, answer_by: Option<Duration>) {
        self.give_up(node);
        let permit = PermitId::random(&mut self.random);
        self.nodes[node].tried = Some(Tried { permit, answer_by, throttled: false, attempt: None });
        self.throttle(node, throttle::Input::Acquire { permit, image: key(self.scenario.image_of(node)).image });
    }

    /// Who waits or pulls asks again, so that its place is kept.
    fn renew(&mut self, node: usize) {
        let image = key(self.scenario.image_of(node)).image;
        let Some((permit, throttled)) = self.nodes[node].tried.as_ref().map(|tried| (tried.permit, tried.throttled)) else {
            return self.throttle(node, throttle::Input::Tick);
        };
        self.throttle(node, throttle::Input::Acquire { permit, image });
        if throttled && self.options.policy.shares && !self.options.without_budget {
            self.want(node, permit);
        }
    }

    fn throttle(&mut self, node: usize, input: throttle::Input) {
        let now = Now { monotonic: self.now, wall: self.now };
        for effect in self.nodes[node].throttle.step(now, input) {
            match effect {
                throttle::Effect::Grant { permit } => self.granted_here(node, permit),
                throttle::Effect::Refuse { permit, text } => self.attempt(node, permit, Some(text)),
            }
        }
        let at = &mut self.nodes[node];
        let again = at.tried.is_some().then_some(RENEW_EVERY);
        let wake = at.throttle.wake_in(now).into_iter().chain(again).min().map(|wait| self.now + wait);
        if let Some(wake) = wake
            && at.throttle_tick.is_none_or(|tick| wake < tick)
        {
            at.throttle_tick = Some(wake);
            self.queue.plan(wake, Event::Throttle(node));
        }
    }

    /// The node's own bucket and slots let it go; the fleet's budget is next, where there is one.
    fn granted_here(&mut self, node: usize, permit: PermitId) {
        let Some(tried) = self.nodes[node].tried.as_mut().filter(|tried| tried.permit == permit && !tried.throttled) else { return };
        tried.throttled = true;
        let asks = self.options.policy.shares && !self.options.without_budget;
        if asks { self.want(node, permit) } else { self.attempt(node, permit, None) }
    }

    /// Begins an attempt, or ends it at once with the throttler's words.
    fn attempt(&mut self, node: usize, permit: PermitId, refusal: Option<String>) {
        let attempt = AttemptId::random(&mut self.random);
        let Some(tried) = self.nodes[node].tried.as_mut().filter(|tried| tried.permit == permit && tried.attempt.is_none()) else { return };
        tried.attempt = Some(attempt);
        let answer_by = tried.answer_by.unwrap_or(Duration::MAX);
        self.step(node, Input::Started { wish: WISH, attempt, trace: None });
        if let Some(text) = refusal {
            self.give_up(node);
            self.step(node, Input::Resolved { wish: WISH, attempt, outcome: refused(text) });
            return;
        }
        let reply = self.registry.request(self.now, node);
        if reply.answer == Answer::Nothing {
            self.hanging.insert(attempt);
            self.most_hanging = self.most_hanging.max(self.hanging.len());
        }
        let ends = (self.now + reply.takes).min(answer_by).max(self.now);
        self.queue.plan(ends, Event::Answered(node, attempt, reply));
    }

    fn answered(&mut self, node: usize, attempt: AttemptId, reply: &Reply) {
        self.hanging.remove(&attempt);
        let permit = self.nodes[node].tried.as_ref().filter(|tried| tried.attempt == Some(attempt)).map(|tried| tried.permit);
        if let Some(permit) = permit {
            let served = served(reply);
            if served == Some(true) {
                self.told(node, permit, reply.limits.clone());
            }
            self.give_up_with(node, (reply.limits.clone(), served));
        }
        self.step(node, Input::Resolved { wish: WISH, attempt, outcome: outcome(reply.answer) });
    }

    /// Gives back what a node has of an attempt that the registry has not answered.
    fn give_up(&mut self, node: usize) {
        self.give_up_with(node, Word::default());
    }

    fn give_up_with(&mut self, node: usize, word: Word) {
        if let Some(tried) = self.nodes[node].tried.take() {
            self.throttle(node, throttle::Input::Release { permit: tried.permit });
            self.give_back(node, tried.permit, word);
        }
    }

    fn send(&mut self, node: usize, upward: Upward) {
        if !self.bus_is_gone() {
            let at = self.bus.arrives_up(self.now, node, &mut self.random);
            self.queue.plan(at, Event::AtServer(node, upward));
        }
    }

    fn at_server(&mut self, node: usize, upward: Upward) {
        match upward {
            Upward::Publish(report, date) => self.spread(&Spread::Report { report, date }),
            Upward::Acquire(name, ttl) => {
                self.questions += 1;
                let answer = self.bus.acquire(self.now, node, name, ttl);
                let at = self.bus.arrives_down(self.now, node, &mut self.random);
                self.queue.plan(at, Event::Reply(node, name, answer));
                if answer == LeaseAnswer::Won {
                    self.spread(&Spread::Taken { name, holder: node, until: self.now + ttl });
                }
            }
            Upward::Release(name) => {
                if self.bus.release(node, name) {
                    self.spread(&Spread::Freed(name));
                }
            }
            other => self.at_server_budget(node, other),
        }
    }

    fn spread(&mut self, spread: &Spread) {
        if matches!(spread, Spread::Report { .. }) {
            self.written.push(spread.clone());
        }
        if self.bus_is_gone() {
            return;
        }
        for node in 0..self.nodes.len() {
            let at = self.bus.arrives_down(self.now, node, &mut self.random);
            self.queue.plan(at, Event::At(node, spread.clone()));
        }
    }

    fn hear(&mut self, node: usize, spread: &Spread) {
        let input = match spread {
            Spread::Report { report, date } => Input::Heard { report: Arc::clone(report), age: self.now.saturating_sub(*date) },
            Spread::Taken { name, holder, until } => {
                Input::LeaseTaken { name: *name, holder: self.nodes[*holder].name.clone(), left: until.saturating_sub(self.now) }
            }
            Spread::Freed(name) => Input::LeaseFreed(*name),
            Spread::Leads { owner, leader, epoch } => {
                let leader = (self.nodes[*leader].name.clone(), *epoch);
                return self.hear_leader(node, owner, leader);
            }
        };
        self.step(node, input);
    }

    fn bus_is_gone(&self) -> bool {
        !self.options.policy.shares || self.options.bus_gone.is_some_and(|(from, back)| self.now >= from && self.now < back)
    }

    /// Every node reads all that was written, as a replica does after a gap.
    fn catch_up(&mut self) {
        for node in 0..self.nodes.len() {
            for spread in self.written.clone() {
                self.hear(node, &spread);
            }
            self.step(node, Input::BusBack);
        }
    }

    /// FNV-1a over what each node is told and when.
    fn note(&mut self, node: usize, input: &Input) {
        let kind = match input {
            Input::Ask { .. } => 1,
            Input::Resolved { .. } => 2,
            Input::Heard { report, .. } => report.topic.id().0 as u64,
            Input::Lease(_, LeaseAnswer::Won) => 3,
            Input::Lease(..) => 4,
            Input::Tick => 5,
            _ => 6,
        };
        for word in [self.now.as_nanos() as u64, node as u64, kind] {
            self.hash = (self.hash ^ word).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
}
