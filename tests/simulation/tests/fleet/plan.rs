//! What happens in a run: drawn from its seed alone.

use std::time::Duration;

use clock::Random;

use crate::faulty_bus::{Line, Odds};
use crate::registry::Mood;

/// How long a run lasts, in seconds of its own time: an outage, a healing, and a calm time with sick and lying nodes.
pub const ENDS: Duration = Duration::from_secs(905);
/// All nodes are up, and want their first image, from here on.
const FIRST_STANDING_PULL: f64 = 20.0;
/// The registry is well again.
pub const HEALS_AT: Duration = Duration::from_secs(420);
/// The bus is well again, so that what heals at [`HEALS_AT`] is told to all.
pub const BUS_HEALS_AT: Duration = Duration::from_secs(380);
/// From here on the registry is well; some nodes may be sick, and one may lie.
pub const CALM_FROM: Duration = Duration::from_secs(660);
/// How often a liar lies.
const LIES_EVERY: f64 = 7.0;
/// So many millionths a bad oscillator is off, and so many seconds clocks are set by.
const MOST_DRIFT: f64 = 200.0;
const SET_BY: f64 = 600.0;
/// Of so many some are in trouble, and in a larger fleet messages are lost only for a minute: whatever happens to one is told to all
/// others.
const IN_TROUBLE: usize = 50;
const LOSSES_OF_LARGE: f64 = 60.0;

/// All want it before anything happens; whose login is wrong never gets it.
pub const BASE: &str = "r.example/private/base:1";
/// Healthy nodes want it one after the other when all is calm.
pub const TOOL: &str = "r.example/team/tool:1";
/// Where few may pull at once, all nodes of some fleets want it at the same time, and each pull takes seconds. All have it before anything
/// happens.
pub const LARGE: &str = "r.example/team/large:1";
pub const LARGE_WANTED_AT: Duration = Duration::from_secs(50);

/// Each wanted by one node in the calm time, and never there.
pub const MISSPELT: [&str; 4] = ["r.example/misspelt/a:1", "r.example/misspelt/b:1", "r.example/misspelt/c:1", "r.example/misspelt/d:1"];

/// Something that happens.
#[derive(Clone, Debug, PartialEq)]
pub enum Act {
    Start(usize),
    Crash(usize),
    Want(usize, &'static str),
    Registry(&'static str, Mood),
    Odds(Odds),
    Line(usize, Line),
    /// Everything takes so many times as long on a node.
    Slow(usize, f64),
    /// A node's tasks stand still, and go on.
    Suspend(usize),
    Resume(usize),
    /// A node's wall clock is set by so many seconds.
    SetClock(usize, i64),
    Wipe(&'static str),
    Sick(Vec<usize>),
    Rotate(Vec<usize>),
    Lie(usize, u64),
    /// The hostile node forges budget requests.
    Forge,
    /// The hostile node keeps every lease from now on.
    KeepLeases,
    /// What each node knows to fail is written down.
    List,
}

/// A node without a line, or with half of one.
#[derive(Clone, Copy)]
struct Cut {
    node: usize,
    line: Line,
    from: f64,
    to: f64,
}

/// A run.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    pub seed: u64,
    pub nodes: usize,
    /// Pulls a second that the fleet's budget allows.
    pub per_second: f64,
    /// How the registry fails.
    pub outage: Mood,
    /// When.
    pub fails_at: Duration,
    /// The image that all want then.
    pub app: &'static str,
    /// What is wrong with nodes, and how their wall clocks are set.
    pub sick: Vec<usize>,
    pub rotated: Vec<usize>,
    pub liar: usize,
    pub skews: Vec<i64>,
    /// How much faster each node's wall clock runs than it should, in millionths.
    pub drifts: Vec<i64>,
    /// When a node had no line or half of one, was down, suspended or slow.
    pub away: Vec<(usize, Duration, Duration)>,
    pub acts: Vec<(Duration, Act)>,
}

/// So few that the budget shows: all nodes pull one image within five seconds.
pub fn slow_budget(nodes: usize) -> f64 {
    nodes as f64 / 5.0
}

impl Plan {
    pub fn draw(seed: u64, nodes: usize) -> Self {
        let mut draw = Draw(Random::seeded(seed ^ 0x5eed));
        let outages = [Mood::NotFound, Mood::Limited, Mood::Unavailable, Mood::Refused, Mood::Hang];
        // So long before it heals that the longest step of what fails then is reached, and waited for.
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
            acts: Vec::new(),
        };
        plan.lives(&mut draw);
        let cuts = plan.bus_troubles(&mut draw);
        plan.calm(&mut draw);
        plan.half_lines(&mut draw, cuts);
        plan.clocks(&mut draw);
        plan.slow_and_suspended(&mut draw);
        plan.acts.sort_by_key(|(at, _)| *at);
        plan
    }

    /// Nodes start, want, and some crash and come back.
    fn lives(&mut self, draw: &mut Draw) {
        let outage = self.fails_at.as_secs_f64();
        self.at(1.0, Act::Rotate(self.rotated.clone()));
        for node in 0..self.nodes {
            self.at(draw.between(1.0, 3.0), Act::Start(node));
            self.at(FIRST_STANDING_PULL + draw.between(0.0, 10.0), Act::Want(node, BASE));
            self.at(outage + 1.0 + draw.between(0.0, 0.5), Act::Want(node, self.app));
        }
        // What a registry says of one image, or what happens to all that is asked of it.
        let where_to = if matches!(self.outage, Mood::NotFound | Mood::Unavailable) { "app" } else { "r.example" };
        self.at(outage, Act::Registry(where_to, self.outage));
        self.at(HEALS_AT.as_secs_f64(), Act::Registry(where_to, Mood::Well));
        if draw.takes_part() {
            for node in draw.some(self.nodes, self.nodes.min(IN_TROUBLE) / 2) {
                let crash = draw.between(outage + 20.0, BUS_HEALS_AT.as_secs_f64() - 30.0);
                self.down(node, crash, crash + draw.between(0.5, 20.0));
            }
        }
    }

    /// Returns whose line is cut when.
    fn bus_troubles(&mut self, draw: &mut Draw) -> Vec<Cut> {
        let (from, to) = self.troubled();
        if draw.takes_part() {
            let odds = Odds { loss: draw.between(0.002, 0.02), duplication: draw.between(0.002, 0.02), delay: draw.between(0.002, 0.02) };
            self.at(from, Act::Odds(odds));
            let calms = if self.nodes > IN_TROUBLE { from + LOSSES_OF_LARGE } else { to };
            self.at(calms, Act::Odds(Odds::default()));
        }
        let mut cuts: Vec<Cut> = Vec::new();
        if draw.takes_part() {
            for _ in 0..3 {
                let begins = draw.between(from, to - 50.0);
                let ends = begins + draw.between(5.0, 40.0);
                let line = if draw.below(2) == 0 { Line::Cut } else { Line::Silent };
                let some = draw.some(self.nodes, (self.nodes.min(IN_TROUBLE) / 8).max(1));
                cuts.extend(some.into_iter().map(|node| Cut { node, line, from: begins, to: ends }));
            }
        }
        // A server that restarts has nobody's line for a few seconds, and may come back with an empty store.
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

    /// Lines that are cut one way, beside those that are cut altogether.
    fn half_lines(&mut self, draw: &mut Draw, mut cuts: Vec<Cut>) {
        let (from, to) = self.troubled();
        if draw.takes_part() {
            for line in [Line::Deaf, Line::Mute] {
                let begins = draw.between(from, to - 50.0);
                let ends = begins + draw.between(5.0, 40.0);
                let some = draw.some(self.nodes, (self.nodes.min(IN_TROUBLE) / 8).max(1));
                cuts.extend(some.into_iter().map(|node| Cut { node, line, from: begins, to: ends }));
            }
        }
        for cut in &cuts {
            self.at(cut.from, Act::Line(cut.node, cut.line));
            self.away.push((cut.node, seconds(cut.from), seconds(cut.to)));
            // Of two that overlap the later end is the end: nobody has a line to a server that is down.
            if !cuts.iter().any(|other| other.node == cut.node && other.from < cut.to && cut.to < other.to) {
                self.at(cut.to, Act::Line(cut.node, Line::Up));
            }
        }
    }

    /// Wall clocks that run too fast or too slow, and such as are set.
    fn clocks(&mut self, draw: &mut Draw) {
        if draw.takes_part() {
            self.drifts = (0..self.nodes).map(|_| draw.between(-MOST_DRIFT, MOST_DRIFT) as i64).collect();
        }
        if draw.takes_part() {
            for node in draw.some(self.nodes, (self.nodes.min(IN_TROUBLE) / 5).max(1)) {
                let at = draw.between(FIRST_STANDING_PULL, ENDS.as_secs_f64() - 10.0);
                let by = draw.between(-SET_BY, SET_BY) as i64;
                self.at(at, Act::SetClock(node, by));
            }
        }
    }

    /// Nodes that are slow in all they do, and nodes that do nothing for a while.
    fn slow_and_suspended(&mut self, draw: &mut Draw) {
        let (from, to) = self.troubled();
        if draw.takes_part() {
            for node in draw.some(self.nodes, (self.nodes.min(IN_TROUBLE) / 12).max(1)) {
                self.at(from, Act::Slow(node, draw.between(5.0, 30.0)));
                self.at(to, Act::Slow(node, 1.0));
                self.away.push((node, seconds(from), seconds(to)));
            }
        }
        if draw.takes_part() {
            for node in draw.some(self.nodes, (self.nodes.min(IN_TROUBLE) / 6).max(1)) {
                let lasts = draw.between(10.0, 60.0);
                let begins = draw.between(from, to - lasts);
                self.at(begins, Act::Suspend(node));
                self.at(begins + lasts, Act::Resume(node));
                self.away.push((node, seconds(begins), seconds(begins + lasts)));
            }
        }
    }

    /// When the bus and the nodes are in trouble: while the registry fails.
    fn troubled(&self) -> (f64, f64) {
        (self.fails_at.as_secs_f64() + 20.0, BUS_HEALS_AT.as_secs_f64())
    }

    /// A registry that is well, nodes that are not.
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
        self.at(1.0, Act::Registry("misspelt", Mood::NotFound));
        // In the other fleets the registry is idle: that it is asked for anything else shows that it is well.
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

/// Chance of a plan.
struct Draw(Random);

impl Draw {
    fn between(&mut self, least: f64, most: f64) -> f64 {
        least + (most - least) * self.0.fraction()
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.0.fraction() * bound as f64) as usize
    }

    /// Whether a kind of trouble is part of a run. Half of them are, so that each is seen alone as well as beside each other: where all
    /// happens at once, one hides what another does.
    fn takes_part(&mut self) -> bool {
        self.below(2) == 0
    }

    /// So many different nodes.
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
    // Timers have whole milliseconds.
    Duration::from_millis((seconds * 1_000.0) as u64)
}
