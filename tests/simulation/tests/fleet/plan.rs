//! The events of a run, drawn from its seed only.

use std::time::Duration;

use clock::Random;
use throttler::core::budget::BudgetPolicy;

use crate::faulty_network::{Line, Odds};
use crate::latency::{Latency, ONE_WAY};
use crate::registry::Behaviour;

/// The simulated length of a run: an outage, the healing, and a calm time with sick and lying nodes.
pub const ENDS: Duration = Duration::from_secs(905);
/// From this second on all nodes are up and want their first image.
const FIRST_STANDING_PULL: f64 = 20.0;
/// When the registry serves again.
pub const HEALS_AT: Duration = Duration::from_secs(420);
/// When the bus works again, so that all nodes learn of the healing at [`HEALS_AT`].
pub const BUS_HEALS_AT: Duration = Duration::from_secs(380);
/// From this time on the registry is healthy; some nodes may be sick, and one may lie.
pub const CALM_FROM: Duration = Duration::from_secs(660);
/// The seconds between two lies of a lying node.
const LIES_EVERY: f64 = 7.0;
/// The seconds that the restart of a node takes.
const RESTART_TAKES: f64 = 2.0;
/// The largest drift of a clock in millionths, and the most seconds by which a clock is set.
const MOST_DRIFT: f64 = 200.0;
const SET_BY: f64 = 600.0;
/// In a larger fleet only this many nodes can be in trouble, and messages are lost only for [`LOSSES_OF_LARGE`] seconds, because every
/// event of one node is sent to all others.
const MOST_NODES_IN_TROUBLE: usize = 50;
const LOSSES_OF_LARGE: f64 = 60.0;

/// An image that all nodes want before the faults begin; nodes with a wrong login never get it.
pub const BASE: &str = "r.example/private/base:1";
/// An image that healthy nodes want one after the other in the calm time.
pub const TOOL: &str = "r.example/team/tool:1";
/// An image whose pull takes seconds. If the pulls at once are limited, all nodes of some fleets want it at the same time, and have it
/// before the faults begin.
pub const LARGE: &str = "r.example/team/large:1";
pub const LARGE_WANTED_AT: Duration = Duration::from_secs(50);

/// Images of plans in which all nodes want several.
pub const IMAGES: [&str; 6] = [
    "r.example/team/one:1",
    "r.example/team/two:1",
    "r.example/team/three:1",
    "r.example/team/four:1",
    "r.example/team/five:1",
    "r.example/team/six:1",
];

/// Images that do not exist; in the calm time one node wants each of them.
pub const MISSPELT: [&str; 4] = ["r.example/misspelt/a:1", "r.example/misspelt/b:1", "r.example/misspelt/c:1", "r.example/misspelt/d:1"];

/// An event of a run.
#[derive(Clone, Debug, PartialEq)]
pub enum Act {
    Start(usize),
    Crash(usize),
    Want(usize, &'static str),
    Registry(&'static str, Behaviour),
    /// From now on the registry's answers take this long.
    Answer(Latency),
    /// The address of these nodes is limited, and that of no others.
    LimitAddress(Vec<usize>),
    Odds(Odds),
    Line(usize, Line),
    /// From now on everything takes this many times as long on a node.
    Slow(usize, f64),
    /// A node's tasks are suspended.
    Suspend(usize),
    Resume(usize),
    /// A node's wall clock is moved by this many seconds.
    SetClock(usize, i64),
    Wipe(&'static str),
    Sick(Vec<usize>),
    Rotate(Vec<usize>),
    Lie(usize, u64),
    /// A node claims that it has just succeeded at everything at which others failed.
    ClaimSuccesses(usize),
    /// The hostile node forges budget requests.
    Forge,
    /// The hostile node keeps every lease from now on.
    KeepLeases,
    /// The back-off entries of each node are recorded.
    List,
}

/// A time in which a node's line is cut, in one direction or both.
#[derive(Clone, Copy)]
struct Cut {
    node: usize,
    line: Line,
    from: f64,
    to: f64,
}

/// The plan of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    pub seed: u64,
    pub nodes: usize,
    /// The pulls per second that the fleet's budget allows.
    pub per_second: f64,
    /// The kind of the registry's outage.
    pub outage: Behaviour,
    /// When the outage begins.
    pub fails_at: Duration,
    /// The image that all nodes want in the outage.
    pub app: &'static str,
    /// Nodes that reach no registry.
    pub sick: Vec<usize>,
    pub rotated: Vec<usize>,
    pub liar: usize,
    pub skews: Vec<i64>,
    /// The drift of each node's wall clock in millionths; positive if it is fast.
    pub drifts: Vec<i64>,
    /// When a node's line was cut in a direction, or the node was down, suspended or slow.
    pub away: Vec<(usize, Duration, Duration)>,
    /// How long a message is under way between a node and the server.
    pub one_way: Latency,
    pub acts: Vec<(Duration, Act)>,
    pub ends: Duration,
}

/// A budget low enough to have an effect: all nodes pull one image within 5 s.
pub fn slow_budget(nodes: usize) -> f64 {
    nodes as f64 / 5.0
}

impl Plan {
    /// These acts on healthy nodes with the usual budget, and nothing else.
    pub fn of_acts(seed: u64, nodes: usize, acts: Vec<(Duration, Act)>) -> Self {
        Self {
            seed,
            nodes,
            per_second: BudgetPolicy::default().per_second,
            outage: Behaviour::Serves,
            fails_at: Duration::ZERO,
            app: TOOL,
            sick: vec![],
            rotated: vec![],
            liar: 0,
            skews: vec![0; nodes],
            drifts: vec![0; nodes],
            away: vec![],
            one_way: ONE_WAY,
            acts,
            ends: ENDS,
        }
    }

    /// The same with a node that crashes and starts again after 2 s.
    pub fn restarting(mut self, node: usize, crashes_at: Duration) -> Self {
        let crashes_at = crashes_at.as_secs_f64();
        self.down(node, crashes_at, crashes_at + RESTART_TAKES);
        self
    }

    pub fn draw(seed: u64, nodes: usize) -> Self {
        let mut draw = Draw(Random::seeded(seed ^ 0x5eed));
        let outages = [Behaviour::NotFound, Behaviour::Limited, Behaviour::Unavailable, Behaviour::Refused, Behaviour::Hang];
        // Early enough before the healing for the fleet to reach the longest step of its probes, and to wait it once.
        let fails_at = seconds(draw.between(210.0, 290.0));
        let sick = draw.some(nodes, (nodes / 10).clamp(3, 5));
        let mut plan = Self {
            seed,
            nodes,
            per_second: slow_budget(nodes),
            outage: outages[draw.below(outages.len())],
            fails_at,
            app: if draw.below(2) == 0 { "r.example/team/app:1" } else { "r.example/private/app:1" },
            rotated: draw.some(nodes, 4),
            liar: draw.below(nodes),
            skews: (0..nodes).map(|_| draw.between(-300.0, 300.0) as i64).collect(),
            drifts: vec![0; nodes],
            sick,
            away: Vec::new(),
            one_way: ONE_WAY,
            acts: Vec::new(),
            ends: ENDS,
        };
        plan.lives(&mut draw);
        let cuts = plan.bus_troubles(&mut draw);
        plan.calm(&mut draw);
        plan.one_way_lines(&mut draw, cuts);
        plan.clocks(&mut draw);
        plan.slow_and_suspended(&mut draw);
        plan.acts.sort_by_key(|(at, _)| *at);
        plan
    }

    /// Starts the nodes and plans their images; some nodes crash and restart.
    fn lives(&mut self, draw: &mut Draw) {
        let outage = self.fails_at.as_secs_f64();
        self.at(1.0, Act::Rotate(self.rotated.clone()));
        for node in 0..self.nodes {
            self.at(draw.between(1.0, 3.0), Act::Start(node));
            self.at(FIRST_STANDING_PULL + draw.between(0.0, 10.0), Act::Want(node, BASE));
            self.at(outage + 1.0 + draw.between(0.0, 0.5), Act::Want(node, self.app));
        }
        // Some outages concern one image, the others the whole registry.
        let where_to = if matches!(self.outage, Behaviour::NotFound | Behaviour::Unavailable) { "app" } else { "r.example" };
        self.at(outage, Act::Registry(where_to, self.outage));
        self.at(HEALS_AT.as_secs_f64(), Act::Registry(where_to, Behaviour::Serves));
        if draw.takes_part() {
            for node in draw.some(self.nodes, self.nodes.min(MOST_NODES_IN_TROUBLE) / 2) {
                let crash = draw.between(outage + 20.0, BUS_HEALS_AT.as_secs_f64() - 30.0);
                self.down(node, crash, crash + draw.between(0.5, 20.0));
            }
        }
    }

    /// Plans the faults of the bus; returns the cuts.
    fn bus_troubles(&mut self, draw: &mut Draw) -> Vec<Cut> {
        let (from, to) = self.troubled();
        if draw.takes_part() {
            let odds = Odds { loss: draw.between(0.002, 0.02), duplication: draw.between(0.002, 0.02), delay: draw.between(0.002, 0.02) };
            self.at(from, Act::Odds(odds));
            let calms = if self.nodes > MOST_NODES_IN_TROUBLE { from + LOSSES_OF_LARGE } else { to };
            self.at(calms, Act::Odds(Odds::default()));
        }
        let mut cuts: Vec<Cut> = Vec::new();
        if draw.takes_part() {
            for _ in 0..3 {
                let begins = draw.between(from, to - 50.0);
                let ends = begins + draw.between(5.0, 40.0);
                let line = if draw.below(2) == 0 { Line::Cut } else { Line::Silent };
                let some = draw.some(self.nodes, (self.nodes.min(MOST_NODES_IN_TROUBLE) / 8).max(1));
                cuts.extend(some.into_iter().map(|node| Cut { node, line, from: begins, to: ends }));
            }
        }
        // During a restart of the server all lines are cut for a few seconds, and its store may be empty afterwards.
        if draw.takes_part() {
            let restarts = draw.between(from, to - 40.0);
            let back = restarts + draw.between(2.0, 12.0);
            cuts.extend((0..self.nodes).map(|node| Cut { node, line: Line::Cut, from: restarts, to: back }));
            if draw.below(2) == 0 {
                for bucket in ["reports", "leases", "leaders"] {
                    self.at(restarts + 1.0, Act::Wipe(bucket));
                }
            }
        }
        if draw.takes_part() {
            let wiped = draw.between(from, to - 40.0);
            self.at(wiped, Act::Wipe("reports"));
        }
        cuts
    }

    /// Plans lines that are cut in one direction, in addition to those that are cut in both.
    fn one_way_lines(&mut self, draw: &mut Draw, mut cuts: Vec<Cut>) {
        let (from, to) = self.troubled();
        if draw.takes_part() {
            for line in [Line::SendOnly, Line::ReceiveOnly] {
                let begins = draw.between(from, to - 50.0);
                let ends = begins + draw.between(5.0, 40.0);
                let some = draw.some(self.nodes, (self.nodes.min(MOST_NODES_IN_TROUBLE) / 8).max(1));
                cuts.extend(some.into_iter().map(|node| Cut { node, line, from: begins, to: ends }));
            }
        }
        for cut in &cuts {
            self.at(cut.from, Act::Line(cut.node, cut.line));
            self.away.push((cut.node, seconds(cut.from), seconds(cut.to)));
            // If two cuts overlap, only the later end reconnects the line: while the server is down no line works.
            if !cuts.iter().any(|other| other.node == cut.node && other.from < cut.to && cut.to < other.to) {
                self.at(cut.to, Act::Line(cut.node, Line::Up));
            }
        }
    }

    /// Plans wall clocks that drift, and wall clocks that are set.
    fn clocks(&mut self, draw: &mut Draw) {
        if draw.takes_part() {
            self.drifts = (0..self.nodes).map(|_| draw.between(-MOST_DRIFT, MOST_DRIFT) as i64).collect();
        }
        if draw.takes_part() {
            for node in draw.some(self.nodes, (self.nodes.min(MOST_NODES_IN_TROUBLE) / 5).max(1)) {
                let at = draw.between(FIRST_STANDING_PULL, ENDS.as_secs_f64() - 10.0);
                let by = draw.between(-SET_BY, SET_BY) as i64;
                self.at(at, Act::SetClock(node, by));
            }
        }
    }

    /// Plans nodes that are slow, and nodes that are suspended for a while.
    fn slow_and_suspended(&mut self, draw: &mut Draw) {
        let (from, to) = self.troubled();
        if draw.takes_part() {
            for node in draw.some(self.nodes, (self.nodes.min(MOST_NODES_IN_TROUBLE) / 12).max(1)) {
                self.at(from, Act::Slow(node, draw.between(5.0, 30.0)));
                self.at(to, Act::Slow(node, 1.0));
                self.away.push((node, seconds(from), seconds(to)));
            }
        }
        if draw.takes_part() {
            for node in draw.some(self.nodes, (self.nodes.min(MOST_NODES_IN_TROUBLE) / 6).max(1)) {
                let lasts = draw.between(10.0, 60.0);
                let begins = draw.between(from, to - lasts);
                self.at(begins, Act::Suspend(node));
                self.at(begins + lasts, Act::Resume(node));
                self.away.push((node, seconds(begins), seconds(begins + lasts)));
            }
        }
    }

    /// When the bus and the nodes have faults: while the registry fails.
    fn troubled(&self) -> (f64, f64) {
        (self.fails_at.as_secs_f64() + 20.0, BUS_HEALS_AT.as_secs_f64())
    }

    /// Plans the calm time: the registry is healthy, and some nodes are not.
    fn calm(&mut self, draw: &mut Draw) {
        let calm = CALM_FROM.as_secs_f64();
        if !draw.takes_part() {
            self.sick.clear();
        }
        self.at(calm, Act::Sick(self.sick.clone()));
        for node in self.sick.clone() {
            self.at(calm + draw.between(0.0, 5.0), Act::Want(node, TOOL));
        }
        for node in (0..self.nodes).filter(|node| !self.sick.contains(node)).collect::<Vec<_>>() {
            self.at(calm + draw.between(10.0, 200.0), Act::Want(node, TOOL));
        }
        self.at(1.0, Act::Registry("misspelt", Behaviour::NotFound));
        // In the other fleets the registry is idle; requests for other images would show that it is healthy.
        if draw.takes_part() {
            for image in MISSPELT {
                let node = draw.below(self.nodes);
                self.at(calm + draw.between(0.0, 10.0), Act::Want(node, image));
            }
        }
        if draw.takes_part() {
            let lies = ((ENDS.as_secs_f64() - calm) / LIES_EVERY) as u64;
            for number in 0..lies {
                self.at(calm + number as f64 * LIES_EVERY, Act::Lie(self.liar, number));
            }
        }
    }

    fn down(&mut self, node: usize, from: f64, to: f64) {
        self.at(from, Act::Crash(node));
        self.at(to, Act::Start(node));
        self.away.push((node, seconds(from), seconds(to)));
    }

    fn at(&mut self, at: f64, act: Act) {
        self.acts.push((seconds(at), act));
    }
}

/// The random generator of a plan.
struct Draw(Random);

impl Draw {
    fn between(&mut self, least: f64, most: f64) -> f64 {
        least + (most - least) * self.0.fraction()
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.0.fraction() * bound as f64) as usize
    }

    /// Whether a kind of trouble is part of a run. Each is with a probability of one half, so that troubles occur alone as well as
    /// together: if all occurred in every run, the effects of one would hide those of another.
    fn takes_part(&mut self) -> bool {
        self.below(2) == 0
    }

    /// Draws `count` different nodes.
    fn some(&mut self, nodes: usize, count: usize) -> Vec<usize> {
        let mut all: Vec<usize> = (0..nodes).collect();
        for place in 0..count.min(nodes) {
            let other = place + self.below(nodes - place);
            all.swap(place, other);
        }
        all.truncate(count);
        all
    }
}

fn seconds(seconds: f64) -> Duration {
    // The resolution of timers is 1 ms.
    Duration::from_millis((seconds * 1_000.0) as u64)
}
