//! Runs a scenario with the real cores of every node.

mod attempt;
mod budget;
mod interest;
mod liar;
mod node;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use backoff_tracker::core::knowledge::{Decision, Effect, Input, LeaseAnswer, LeaseName, PlantedBug, Report};
use clock::Random;
use contract::{AttemptId, DEADLINES, NodeName, PermitId, Stage, Target};
use throttler::core::budget as fleet_budget;

use self::interest::Interest;
pub use self::liar::{Lies, SickRack};
use self::node::{Node, key, target};
use crate::bus::{Broadcast, Bus, PeerMessage, ToServer};
use crate::kubelet::ASKED_WITHIN;
use crate::policy::Policy;
use crate::queue::Queue;
use crate::registry::{Registry, Reply};
use crate::scenario::Scenario;

/// How a run differs from the plain storm.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The policies of every node.
    pub policy: Policy,
    /// A rule that is broken on purpose in every core.
    pub planted_bug: Option<PlantedBug>,
    /// Which lies the last node publishes all the time, if any.
    pub lies: Option<Lies>,
    /// How many of the last nodes reach no registry, and report it one after the other all the time.
    pub sick_rack: Option<SickRack>,
    /// If set, only nodes of even number want their image at the start, and the others from this time on.
    pub second_wave: Option<Duration>,
    /// If set, healthy nodes begin one by one within this time, so that each finds the registry idle.
    pub one_by_one: Option<Duration>,
    /// If set, the bus is down in this time; at its end all nodes catch up.
    pub bus_down: Option<(Duration, Duration)>,
    /// When the registry's trouble begins, instead of the scenario's time.
    pub breaks_at: Option<Duration>,
    /// How many images the nodes want, one each, instead of the scenario's number.
    pub images: Option<usize>,
    /// If set, a node receives the success and the lead lease of an image only if it wants that image: see `fleet/interest.rs`.
    pub only_own_images: bool,
}

/// A finished run.
#[derive(Debug)]
pub struct Run {
    /// The registry with its recorded requests.
    pub registry: Registry,
    /// A hash of all events in order: two runs of one seed have the same.
    pub hash: u64,
    /// The most unanswered resolutions at any time.
    pub most_hanging: usize,
    /// The longest time in which a node that waited for its image made no request: see [`Registry::longest_pause`].
    pub longest_pause: Duration,
    /// How many reports were written.
    pub reports: u64,
    /// How many times nodes asked for a lease.
    pub lease_requests: u64,
    /// How many leases were granted.
    pub leases: u64,
    /// The number of events.
    pub events: u64,
    /// The numbers of nodes that wait for the budget at the end and know how long, and of those that do not know.
    pub known_and_unknown_waits: (usize, usize),
}

enum Event {
    Ask(usize),
    Tick(usize),
    Throttle(usize),
    Budget(usize),
    PeerMessage(usize, Box<PeerMessage>),
    AtServer(usize, ToServer),
    Reply(usize, LeaseName, LeaseAnswer),
    Broadcast(usize, Arc<Broadcast>),
    Answered(usize, AttemptId, Stage, Reply),
    /// A clearance expires; the next event ends the time for which a node keeps its permit while it asks for another clearance.
    Due(usize, PermitId),
    Patience(usize, PermitId),
    Lie(u64),
    RackReport(u64),
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
    interest: Interest,
    /// Everything that was written, for nodes that catch up.
    written: Vec<Arc<Broadcast>>,
    hash: u64,
    lease_requests: u64,
    events: u64,
    hanging: BTreeSet<AttemptId>,
    most_hanging: usize,
    /// The first reports of a liar, at most [`liar::REPEATED`], with their dates.
    lies: Vec<(Arc<Report>, Duration)>,
}

/// Runs the scenario until `end`.
#[must_use]
pub fn run(scenario: Scenario, nodes: usize, end: Duration, seed: u64, options: Options) -> Run {
    let mut simulation = Simulation::new(scenario, nodes, seed, options);
    while let Some((now, event)) = simulation.queue.next(end) {
        simulation.now = now;
        simulation.events += 1;
        simulation.handle(event);
    }
    Run {
        known_and_unknown_waits: simulation.known_and_unknown_waits(),
        longest_pause: simulation.registry.longest_pause(end),
        registry: simulation.registry,
        hash: simulation.hash,
        most_hanging: simulation.most_hanging,
        reports: simulation.written.len() as u64,
        lease_requests: simulation.lease_requests,
        leases: simulation.bus.granted,
        events: simulation.events,
    }
}

impl Simulation {
    fn new(scenario: Scenario, nodes: usize, seed: u64, options: Options) -> Self {
        let mut random = Random::seeded(seed);
        let mut queue = Queue::default();
        // A liar makes no requests, because it would follow its own lies.
        let asking = nodes - usize::from(options.lies.is_some());
        for node in 0..asking {
            let wave = options.second_wave.filter(|_| node % 2 == 1).unwrap_or_default();
            let within = options.one_by_one.filter(|_| !scenario.is_sick(node)).unwrap_or(ASKED_WITHIN);
            queue.plan(wave + within.mul_f64(random.fraction()), Event::Ask(node));
        }
        if options.lies.is_some() {
            queue.plan(Duration::ZERO, Event::Lie(0));
        }
        if options.sick_rack.is_some() {
            queue.plan(Duration::ZERO, Event::RackReport(0));
        }
        if let Some((_, back)) = options.bus_down {
            queue.plan(back, Event::BusBack);
        }
        let interest = Interest::of((0..nodes).map(|node| image_of(scenario, &options, node)));
        let nodes: Vec<Node> = (0..nodes).filter_map(|rank| Node::new(rank, nodes, seed, &options)).collect();
        Self {
            now: Duration::ZERO,
            queue,
            random,
            scenario,
            registry: Registry::new(scenario, nodes.len(), options.policy.answer_time_out, seed)
                .that_breaks_at(options.breaks_at.unwrap_or_else(|| scenario.breaks_at())),
            bus: Bus::new(nodes.len()),
            by_name: nodes.iter().enumerate().map(|(rank, node)| (node.name.clone(), rank)).collect(),
            nodes,
            options,
            interest,
            written: Vec::new(),
            hash: 0xcbf2_9ce4_8422_2325,
            lease_requests: 0,
            events: 0,
            hanging: BTreeSet::new(),
            most_hanging: 0,
            lies: Vec::new(),
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Ask(node) => {
                self.registry.wanted(self.now, node);
                self.nodes[node].asked_at = self.now;
                self.ask(node);
            }
            // A later tick than the planned one was replaced and is ignored.
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
            Event::PeerMessage(node, message) => self.on_peer_message(node, *message),
            Event::AtServer(node, message) => self.at_server(node, message),
            Event::Reply(node, name, answer) => self.step(node, Input::Lease(name, answer)),
            Event::Broadcast(node, broadcast) => self.receive(node, &broadcast),
            Event::Answered(node, attempt, stage, reply) => self.answered(node, attempt, stage, &reply),
            Event::Due(node, permit) => self.due(node, permit),
            Event::Patience(node, permit) => self.patience_over(node, permit),
            Event::Lie(number) => self.lie(number),
            Event::RackReport(number) => self.report_of_rack(number),
            Event::BusBack => self.catch_up(),
        }
    }

    fn step(&mut self, node: usize, input: Input) {
        self.add_to_hash(node, &input);
        let effects = self.nodes[node].core.step(self.now, input);
        self.apply(node, effects);
    }

    fn apply(&mut self, node: usize, effects: Vec<Effect>) {
        for effect in effects {
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
            Effect::Answer(_, Decision::Granted { answer_by, until, .. }) => self.cleared(node, answer_by, until),
            Effect::Answer(..) | Effect::Announce(_) | Effect::Reply(_) => {}
            Effect::Abandon(_) => {
                self.give_up(node);
                self.ask(node);
            }
            Effect::Publish(report, age) => self.send(node, ToServer::Publish(report, self.now.saturating_sub(age))),
            Effect::AcquireLease(name) => self.send(node, ToServer::Acquire(name)),
            Effect::ReleaseLease(name) => self.send(node, ToServer::Release(name)),
        }
    }

    fn image_of(&self, node: usize) -> usize {
        image_of(self.scenario, &self.options, node)
    }

    /// Asks for clearance, for the first time or again.
    fn ask(&mut self, node: usize) {
        let image = self.image_of(node);
        let shows_blobs = self.scenario.stages().contains(&Stage::Blob);
        let target = Target { shows_blobs, ..target(image) };
        self.step(node, Input::Request { request: self.nodes[node].request, key: key(image), target });
    }

    fn send(&mut self, node: usize, message: ToServer) {
        if !self.bus_is_down() {
            let at = self.bus.arrives_up(self.now, node, &mut self.random);
            self.queue.plan(at, Event::AtServer(node, message));
        }
    }

    fn at_server(&mut self, node: usize, message: ToServer) {
        match message {
            ToServer::Publish(report, date) => self.broadcast(Broadcast::Report { report, date }),
            ToServer::Acquire(name) => {
                self.lease_requests += 1;
                let answer = self.bus.acquire(self.now, node, name);
                let at = self.bus.arrives_down(self.now, node, &mut self.random);
                self.queue.plan(at, Event::Reply(node, name, answer));
                if answer == LeaseAnswer::Won {
                    self.broadcast(Broadcast::Taken { name, holder: node, until: self.now + DEADLINES.attempt_lease });
                }
            }
            ToServer::Release(name) => {
                if self.bus.release(node, name) {
                    self.broadcast(Broadcast::Freed(name));
                }
            }
            other => self.at_server_budget(node, other),
        }
    }

    fn broadcast(&mut self, broadcast: Broadcast) {
        let broadcast = Arc::new(broadcast);
        if matches!(*broadcast, Broadcast::Report { .. }) {
            self.written.push(Arc::clone(&broadcast));
        }
        if self.bus_is_down() {
            return;
        }
        let image = self.interest.image_of(&broadcast).filter(|_| self.options.only_own_images);
        for node in 0..self.nodes.len() {
            // Drawn for each node, so that what is left out changes no other time.
            let at = self.bus.arrives_down(self.now, node, &mut self.random);
            if image.is_none_or(|image| image == self.image_of(node)) {
                self.queue.plan(at, Event::Broadcast(node, Arc::clone(&broadcast)));
            }
        }
    }

    fn receive(&mut self, node: usize, broadcast: &Broadcast) {
        let input = match broadcast {
            Broadcast::Report { report, date } => Input::ReportReceived { report: Arc::clone(report), age: self.now.saturating_sub(*date) },
            Broadcast::Taken { name, holder, until } => {
                Input::LeaseTaken { name: *name, holder: self.nodes[*holder].name.clone(), left: until.saturating_sub(self.now) }
            }
            Broadcast::Freed(name) => Input::LeaseFreed(*name),
            Broadcast::Leads { owner, leader, epoch } => {
                let leader = (self.nodes[*leader].name.clone(), *epoch);
                return self.on_leader_changed(node, owner, leader);
            }
        };
        self.step(node, input);
    }

    fn bus_is_down(&self) -> bool {
        !self.options.policy.shares || self.options.bus_down.is_some_and(|(from, back)| self.now >= from && self.now < back)
    }

    /// Makes every node read everything that was written, as a replica does after a gap.
    fn catch_up(&mut self) {
        for node in 0..self.nodes.len() {
            for broadcast in self.written.clone() {
                self.receive(node, &broadcast);
            }
            self.step(node, Input::BusBack);
        }
    }

    /// Adds an input of a node and its time to the FNV-1a hash.
    fn add_to_hash(&mut self, node: usize, input: &Input) {
        let kind = match input {
            Input::Request { .. } => 1,
            Input::AttemptResolved { .. } => 2,
            Input::ReportReceived { report, .. } => report.backoff_key.id().0 as u64,
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

fn image_of(scenario: Scenario, options: &Options, node: usize) -> usize {
    options.images.map_or_else(|| scenario.image_of(node), |images| node % images)
}
