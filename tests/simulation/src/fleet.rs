//! The same storm with the real cores: what each node knows, who goes ahead, who waits.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use backoff_tracker::core::BackoffPolicy;
use backoff_tracker::core::knowledge::{
    About, Effect, Failure, Fault, Finding, Input, Knowledge, LeaseAnswer, LeaseName, Outcome, Report, Target, Topic, Trouble, Verdict,
    View, WishId,
};
use clock::Random;
use contract::messages::backoff_tracker::BackoffKey;
use contract::{AttemptId, FailureClass, NodeName};

use crate::bus::{Bus, Spread, Upward};
use crate::kubelet::ASKED_WITHIN;
use crate::queue::Queue;
use crate::registry::Registry;
use crate::scenario::{Answer, Scenario};

const REGISTRY: &str = "registry.example";
/// One wish a node.
const WISH: WishId = WishId(1);
/// How often a liar says that the image is not there, not to be had, and not now.
const LIES_EVERY: Duration = Duration::from_secs(3);

/// How a run differs from the plain storm.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// A rule of every core broken on purpose.
    pub fault: Option<Fault>,
    /// The last node forges failures of the image all the time.
    pub liar: bool,
    /// When nodes first ask, if not all at the start: nodes of even number at the start, the others then.
    pub second_wave: Option<Duration>,
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
}

enum Event {
    Ask(usize),
    Tick(usize),
    AtServer(usize, Upward),
    Reply(usize, LeaseName, LeaseAnswer),
    At(usize, Spread),
    Answered(usize, AttemptId, Answer),
    Lie(u64),
    BusBack,
}

struct Simulation {
    now: Duration,
    queue: Queue<Event>,
    random: Random,
    registry: Registry,
    bus: Bus,
    nodes: Vec<Node>,
    options: Options,
    /// What was written, for whoever has to catch up.
    written: Vec<Spread>,
    hash: u64,
    questions: u64,
    events: u64,
    hanging: BTreeSet<AttemptId>,
    most_hanging: usize,
}

struct Node {
    name: NodeName,
    core: Knowledge,
    tick: Option<Duration>,
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
            queue.plan(wave + ASKED_WITHIN.mul_f64(random.fraction()), Event::Ask(node));
        }
        if options.liar {
            queue.plan(Duration::ZERO, Event::Lie(0));
        }
        if let Some((_, back)) = options.bus_gone {
            queue.plan(back, Event::BusBack);
        }
        Self {
            now: Duration::ZERO,
            queue,
            random,
            registry: Registry::new(scenario, nodes),
            bus: Bus::new(nodes),
            nodes: (0..nodes).filter_map(|rank| Node::new(rank, nodes, options.fault)).collect(),
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
                self.step(node, Input::Ask { wish: WISH, key: key(), target: target() });
            }
            // A tick that was planned for later than the one that counts now is void.
            Event::Tick(node) => {
                if self.nodes[node].tick.take_if(|planned| *planned == self.now).is_some() {
                    self.step(node, Input::Tick);
                }
            }
            Event::AtServer(node, upward) => self.at_server(node, upward),
            Event::Reply(node, name, answer) => self.step(node, Input::Lease(name, answer)),
            Event::At(node, spread) => {
                let input = self.as_input(spread);
                self.step(node, input);
            }
            Event::Answered(node, attempt, answer) => {
                self.hanging.remove(&attempt);
                self.step(node, Input::Resolved { wish: WISH, attempt, outcome: outcome(answer) });
            }
            Event::Lie(number) => self.lie(number),
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
            Effect::Tell(wish, Verdict::Clear { answer_by, .. }) => self.attempt(node, wish, answer_by),
            Effect::Tell(..) | Effect::Abandon(_) => {}
            Effect::Publish(report, age) => self.send(node, Upward::Publish(report, self.now.saturating_sub(age))),
            Effect::AcquireLease(name, ttl) => self.send(node, Upward::Acquire(name, ttl)),
            Effect::ReleaseLease(name) => self.send(node, Upward::Release(name)),
        }
    }

    fn attempt(&mut self, node: usize, wish: WishId, answer_by: Option<Duration>) {
        let attempt = AttemptId::random(&mut self.random);
        let (answer, takes) = self.registry.request(self.now, node);
        if answer == Answer::Nothing {
            self.hanging.insert(attempt);
            self.most_hanging = self.most_hanging.max(self.hanging.len());
        }
        let ends = (self.now + takes).min(answer_by.unwrap_or(Duration::MAX));
        self.queue.plan(ends, Event::Answered(node, attempt, answer));
        self.step(node, Input::Begun { wish, attempt, trace: None });
    }

    fn send(&mut self, node: usize, upward: Upward) {
        if !self.bus_is_gone() {
            let at = self.bus.arrives_up(self.now, node, &mut self.random);
            self.queue.plan(at, Event::AtServer(node, upward));
        }
    }

    fn at_server(&mut self, node: usize, upward: Upward) {
        match upward {
            Upward::Publish(report, date) => self.spread(Spread::Report { report, date }),
            Upward::Acquire(name, ttl) => {
                self.questions += 1;
                let answer = self.bus.acquire(self.now, node, name, ttl);
                let at = self.bus.arrives_down(self.now, node, &mut self.random);
                self.queue.plan(at, Event::Reply(node, name, answer));
                if answer == LeaseAnswer::Won {
                    self.spread(Spread::Taken { name, holder: node, until: self.now + ttl });
                }
            }
            Upward::Release(name) => {
                if self.bus.release(node, name) {
                    self.spread(Spread::Freed(name));
                }
            }
        }
    }

    fn spread(&mut self, spread: Spread) {
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

    fn as_input(&self, spread: Spread) -> Input {
        match spread {
            Spread::Report { report, date } => Input::Heard { report, age: self.now.saturating_sub(date) },
            Spread::Taken { name, holder, until } => {
                Input::LeaseTaken { name, holder: self.nodes[holder].name.clone(), left: until.saturating_sub(self.now) }
            }
            Spread::Freed(name) => Input::LeaseFreed(name),
        }
    }

    fn bus_is_gone(&self) -> bool {
        self.options.bus_gone.is_some_and(|(from, back)| self.now >= from && self.now < back)
    }

    /// Every node reads all that was written, as a replica does after a gap.
    fn catch_up(&mut self) {
        for node in 0..self.nodes.len() {
            for spread in self.written.clone() {
                let input = self.as_input(spread);
                self.step(node, input);
            }
            self.step(node, Input::BusBack);
        }
    }

    /// The last node says whatever could keep the others from a good image.
    fn lie(&mut self, number: u64) {
        let view = target().view;
        let about = match number % 3 {
            0 => About::Reference { reference: target().reference, scope: target().scope, mirrored: false },
            1 => About::Login { repository: target().repository, fingerprint: target().scope, anonymous: true },
            _ => About::BudgetOwner(target().budget_owner),
        };
        let trouble = Trouble { message: "a lie".to_owned(), step: 1_000, retry_after: Some(Duration::MAX), ..Trouble::default() };
        let liar = self.nodes.len() - 1;
        let report = Report {
            reporter: self.nodes[liar].name.clone(),
            topic: Arc::new(Topic::new(view, about)),
            attempt: AttemptId::random(&mut self.random),
            trace: None,
            finding: Finding::Failed(trouble),
        };
        self.send(liar, Upward::Publish(Arc::new(report), self.now));
        self.queue.plan(self.now + LIES_EVERY, Event::Lie(number + 1));
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

impl Node {
    fn new(rank: usize, alive: usize, fault: Option<Fault>) -> Option<Self> {
        let name: NodeName = format!("n{rank}").parse().ok()?;
        let mut core = Knowledge::new(name.clone(), BackoffPolicy::default());
        if let Some(fault) = fault {
            core = core.with_fault(fault);
        }
        core.step(Duration::ZERO, Input::Fleet { alive, rank: Some(rank) });
        Some(Self { name, core, tick: None })
    }
}

fn outcome(answer: Answer) -> Outcome {
    let failure = |class, authoritative, cause: &str| Failure { class, authoritative, cause: cause.to_owned(), ..Failure::default() };
    match answer {
        Answer::Served => Outcome::Resolved,
        Answer::NotFound => Outcome::Failed(failure(FailureClass::NotFound, true, "ErrImagePull: manifest unknown")),
        Answer::RateLimited { retry_after } => Outcome::Failed(Failure {
            retry_after: Some(retry_after),
            ..failure(FailureClass::RateLimited, true, "ErrImagePull: too many requests")
        }),
        Answer::Refused => Outcome::Failed(failure(FailureClass::RegistryUnavailable, false, "ErrImagePull: connection refused")),
        Answer::Nothing => Outcome::Failed(failure(FailureClass::RegistryUnavailable, false, "ErrImagePull: i/o timeout")),
    }
}

fn key() -> BackoffKey {
    BackoffKey { pod: None, image: format!("{REGISTRY}/app:1") }
}

fn target() -> Target {
    Target {
        view: View { scope: "default".to_owned(), registry: REGISTRY.to_owned(), route: "direct".to_owned(), boot: String::new() },
        endpoint: format!("{REGISTRY}:443"),
        zone: "default".to_owned(),
        repository: "app".to_owned(),
        reference: format!("{REGISTRY}/app:1"),
        platform: "linux/amd64".to_owned(),
        scope: "anonymous".to_owned(),
        budget_owner: "anonymous".to_owned(),
        ..Target::default()
    }
}
