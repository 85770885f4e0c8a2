//! 1000 nodes on simulated time: the cores that agents run, a bus with 1 ms each way, a registry without the tag.
//!
//! The same registry also meets nodes that follow kubelet's rule. `cargo xtask bench storm` has more: other failures, budgets, plots.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;
use std::time::Duration;

use backoff_tracker::core::knowledge::{Decision, Effect, Input, Knowledge, LeaseAnswer, LeaseName, Outcome, Report, RequestId};
use backoff_tracker::core::{BackoffPolicy, Delay};
use clock::Random;
use contract::messages::backoff_tracker::{AttemptFailure, LocalKey};
use contract::{AttemptId, DEADLINES, FailureClass, NodeName, Target, View};

/// Nodes that pull the image.
pub(super) const NODES: usize = 1_000;
/// The simulated time.
pub(super) const LASTS: Duration = Duration::from_secs(30 * 60);
/// The first requests spread over this time.
const ASKED_WITHIN: Duration = Duration::from_millis(500);
/// How long the registry takes to answer that the tag does not exist.
const ANSWER_TAKES: Duration = Duration::from_millis(50);
/// The delay between a node and the bus server, one way.
const ONE_WAY: Duration = Duration::from_millis(1);
/// Kubelet syncs a pod again after this time multiplied by a number in `[1, 1.5)`.
const LOOK_AGAIN: Duration = Duration::from_secs(10);
/// A fixed seed, so that every run gives the same figures.
const SEED: u64 = 1;
/// The only request of each node.
const REQUEST: RequestId = RequestId(1);

/// The number of failing requests on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Failing {
    pub(super) kubelet: u64,
    pub(super) fleetpull: u64,
}

/// Runs both sides. It takes 1 to 2 s on one core.
pub(super) fn run() -> Failing {
    Failing { kubelet: kubelet(), fleetpull: Fleet::new().run() }
}

/// Events by time. Events of the same instant keep the order in which they were planned.
struct Queue<E> {
    order: BinaryHeap<Reverse<(Duration, u64)>>,
    events: BTreeMap<u64, E>,
    planned: u64,
}

impl<E> Queue<E> {
    fn new() -> Self {
        Self { order: BinaryHeap::new(), events: BTreeMap::new(), planned: 0 }
    }

    fn plan(&mut self, at: Duration, event: E) {
        self.planned += 1;
        self.order.push(Reverse((at, self.planned)));
        self.events.insert(self.planned, event);
    }

    fn next(&mut self) -> Option<(Duration, E)> {
        let Reverse((at, number)) = self.order.pop()?;
        if at >= LASTS { None } else { Some((at, self.events.remove(&number)?)) }
    }
}

/// Each node follows kubelet's rule alone: it pulls, is refused, and pulls again at the first sync after its delay.
fn kubelet() -> u64 {
    let mut random = Random::seeded(SEED);
    let policy = BackoffPolicy::default();
    let mut delays: Vec<Option<Delay>> = vec![None; NODES];
    let mut queue = Queue::new();
    for node in 0..NODES {
        queue.plan(ASKED_WITHIN.mul_f64(random.fraction()), node);
    }
    let mut failing = 0;
    while let Some((now, node)) = queue.next() {
        let Some(delay) = delays.get_mut(node) else { continue };
        if policy.held(*delay, now).is_none() {
            failing += 1;
            *delay = Some(policy.next(*delay, now + ANSWER_TAKES));
        }
        queue.plan(now + LOOK_AGAIN.mul_f64(1.0 + random.fraction() / 2.0), node);
    }
    failing
}

/// An event on a node, or between nodes.
enum Event {
    Ask,
    Tick,
    Answered(AttemptId),
    ReportReceived { report: Arc<Report>, date: Duration },
    Lease(LeaseName, LeaseAnswer),
    Taken { name: LeaseName, holder: usize, until: Duration },
    Freed(LeaseName),
}

/// A node.
struct Node {
    name: NodeName,
    core: Knowledge,
    /// When the node's core is due to be called. Earlier planned ticks are ignored.
    tick: Option<Duration>,
}

/// All nodes together.
struct Fleet {
    now: Duration,
    queue: Queue<(usize, Event)>,
    nodes: Vec<Node>,
    /// The holder of each lease, and until when.
    leases: BTreeMap<LeaseName, (usize, Duration)>,
    random: Random,
    failing: u64,
}

impl Fleet {
    fn new() -> Self {
        let mut random = Random::seeded(SEED);
        let mut queue = Queue::new();
        let node = |rank: usize| {
            let name: NodeName = format!("n{rank}").parse().ok()?;
            let mut core = Knowledge::new(name.clone(), BackoffPolicy::default());
            core.step(Duration::ZERO, Input::Fleet { alive: NODES, rank: Some(rank), in_zone: None });
            Some(Node { name, core, tick: None })
        };
        let nodes: Vec<Node> = (0..NODES).filter_map(node).collect();
        for node in 0..nodes.len() {
            queue.plan(ASKED_WITHIN.mul_f64(random.fraction()), (node, Event::Ask));
        }
        Self { now: Duration::ZERO, queue, nodes, leases: BTreeMap::new(), random, failing: 0 }
    }

    fn run(mut self) -> u64 {
        while let Some((now, (node, event))) = self.queue.next() {
            self.now = now;
            let Some(input) = self.input(node, event) else { continue };
            self.step(node, input);
        }
        self.failing
    }

    fn input(&mut self, node: usize, event: Event) -> Option<Input> {
        Some(match event {
            Event::Ask => Input::Request { request: REQUEST, key: LocalKey { pod: None, image: image() }, target: target() },
            Event::Tick => {
                self.nodes.get_mut(node)?.tick.take_if(|planned| *planned == self.now)?;
                Input::Tick
            }
            Event::Answered(attempt) => {
                self.failing += 1;
                let cause = "ErrImagePull: manifest unknown".to_owned();
                let failure = AttemptFailure { class: FailureClass::NotFound, authoritative: true, cause, ..AttemptFailure::default() };
                Input::AttemptResolved { request: REQUEST, attempt, outcome: Outcome::Failed(failure) }
            }
            Event::ReportReceived { report, date } => Input::ReportReceived { report, age: self.now.saturating_sub(date) },
            Event::Lease(name, answer) => Input::Lease(name, answer),
            Event::Taken { name, holder, until } => {
                Input::LeaseTaken { name, holder: self.nodes.get(holder)?.name.clone(), left: until.saturating_sub(self.now) }
            }
            Event::Freed(name) => Input::LeaseFreed(name),
        })
    }

    fn step(&mut self, node: usize, input: Input) {
        let Some(at) = self.nodes.get_mut(node) else { return };
        let effects = at.core.step(self.now, input);
        let wake = at.core.next_wake().map(|wake| wake.max(self.now)).filter(|wake| at.tick.is_none_or(|tick| *wake < tick));
        if let Some(wake) = wake {
            at.tick = Some(wake);
            self.queue.plan(wake, (node, Event::Tick));
        }
        for effect in effects {
            self.carry_out(node, effect);
        }
    }

    fn carry_out(&mut self, node: usize, effect: Effect) {
        match effect {
            Effect::Answer(_, Decision::Granted { .. }) => {
                let attempt = AttemptId::random(&mut self.random);
                self.step(node, Input::AttemptPlanned { request: REQUEST, attempt, trace: None });
                self.queue.plan(self.now + ANSWER_TAKES, (node, Event::Answered(attempt)));
            }
            Effect::Answer(..) | Effect::Abandon(_) | Effect::Announce(_) | Effect::Reply(_) => {}
            Effect::Publish(report, age) => {
                let date = self.now.saturating_sub(age);
                self.send_to_all(|| Event::ReportReceived { report: Arc::clone(&report), date });
            }
            Effect::AcquireLease(name) => self.acquire(node, name),
            Effect::ReleaseLease(name) => {
                if self.leases.get(&name).is_some_and(|(holder, _)| *holder == node) {
                    self.leases.remove(&name);
                    self.send_to_all(|| Event::Freed(name));
                }
            }
        }
    }

    /// The server grants a lease to one node, and informs all nodes.
    fn acquire(&mut self, node: usize, name: LeaseName) {
        let answer = match self.leases.get(&name) {
            Some((holder, until)) if self.now < *until && *holder != node => LeaseAnswer::Lost(*until - self.now),
            _ => LeaseAnswer::Won,
        };
        self.queue.plan(self.now + ONE_WAY * 2, (node, Event::Lease(name, answer)));
        if answer == LeaseAnswer::Won {
            let until = self.now + DEADLINES.attempt_lease;
            self.leases.insert(name, (node, until));
            self.send_to_all(|| Event::Taken { name, holder: node, until });
        }
    }

    /// Sends an event from the server to every node.
    fn send_to_all(&mut self, event: impl Fn() -> Event) {
        for node in 0..self.nodes.len() {
            self.queue.plan(self.now + ONE_WAY * 2, (node, event()));
        }
    }
}

fn image() -> String {
    "registry.example/shop/web:v2".to_owned()
}

fn target() -> Target {
    Target {
        view: View {
            scope: "default".to_owned(),
            registry: "registry.example".to_owned(),
            route: "direct".to_owned(),
            boot: String::new(),
        },
        endpoint: "registry.example:443".to_owned(),
        zone: "default".to_owned(),
        repository: "registry.example/shop/web".to_owned(),
        reference: image(),
        platform: "linux/amd64".to_owned(),
        scope: "anonymous".to_owned(),
        budget_owner: "anonymous".to_owned(),
        ..Target::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thousand_nodes_ask_no_more_than_a_few() {
        let failing = run();
        assert!((9_000..=12_000).contains(&failing.kubelet), "{failing:?}");
        assert!((10..=40).contains(&failing.fleetpull), "{failing:?}");
    }
}
