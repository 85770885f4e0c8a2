//! The rate in force: what a registry turns out to be able to do, and at most the cap.
//!
//! | phase | what it means | the rate |
//! |---|---|---|
//! | `Doubling` | nothing is known yet, or nothing fails | doubles while no answer fails |
//! | `Judging` | several nodes failed, so the rate was cut | stays until enough answers show what the cut changed |
//! | `Growing` | fewer failed after the cut: the registry was overloaded | grows slowly, is cut again when it is too much |
//! | `Chance` | cuts changed nothing: requests fail by chance | doubles again, and is not cut for a minute |
//!
//! One node's failures never move it: a cut wants three nodes, or all that ask.

use std::collections::VecDeque;
use std::time::Duration;

use contract::NodeName;

/// The cap divided by this is the first rate.
const START_SHARE: f64 = 20.0;
/// No first rate is lower than this, unless the cap is, in pulls a second.
const START_LEAST: f64 = 1.0;
/// The cap divided by this is the lowest rate.
const FLOOR_SHARE: f64 = 200.0;
/// No cut goes below this, in pulls a second.
const FLOOR_LEAST: f64 = 0.5;
/// A budget that nobody asked for so long begins anew.
const IDLE: Duration = Duration::from_secs(30);
/// A registry that served nobody for so long begins anew with its first answer: whatever was found is of before.
const DOWN: Duration = Duration::from_secs(10);
/// How often the rate doubles.
const DOUBLES_EVERY: Duration = Duration::from_millis(400);
/// How often it grows otherwise.
const GROWS_EVERY: Duration = Duration::from_secs(1);
/// By how much.
const GROWTH: f64 = 1.05;
/// Without a cut for so long, what was found is old: it doubles again.
const FOUND_FOR: Duration = Duration::from_secs(20);
/// What is left of the rate by a cut.
const CUT: f64 = 0.45;
/// How many of the last answers are looked at.
const RECENT: usize = 10;
/// So many nodes among them must have failed, or all that ask.
const FAILING_NODES: usize = 3;
/// Where fewer nodes ask: so many answers at least.
const RECENT_LEAST: usize = 4;
/// A cut is judged after so long and so many answers to what was granted since.
const JUDGED_AFTER: Duration = Duration::from_secs(1);
const JUDGED_BY: u32 = 8;
/// The registry was overloaded if no more than this part of the failing share is left.
const STILL_FAILING: f64 = 0.6;
/// Cuts in a row that change nothing.
const CUTS: u32 = 2;
/// Chance lets a tenth through: where less is served, the rate stays low.
const CHANCE_MOST: f64 = 0.9;
/// How long no cut is made where requests fail by chance.
const CHANCE_FOR: Duration = Duration::from_secs(60);
/// A step up needs that so much of the rate was used: else it shows nothing.
const USED: f64 = 0.5;

/// How a registry answered a pull, as far as the rate is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegistryAnswer {
    /// It gave what was asked for, or said that there is no such thing.
    Served,
    /// It refused because of its load (429, 5xx), or did not answer.
    Failed,
}

/// Finds the rate of one budget.
#[derive(Clone, Debug)]
pub struct AdaptiveRate {
    cap: f64,
    rate: f64,
    phase: Phase,
    /// The last answers, oldest first: whose, and whether it failed.
    recent: VecDeque<(NodeName, bool)>,
    step: Step,
    granted_last: Option<Duration>,
    /// When the first failure since the last success was.
    failing_since: Option<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    Doubling { served: bool },
    Judging(Judgement),
    Growing { since: Duration },
    Chance { until: Duration },
}

/// A cut and what came of it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Judgement {
    /// Of the last cut.
    since: Duration,
    /// The rate before the first cut.
    before: f64,
    /// The failing share before the first cut.
    share: f64,
    cuts: u32,
    served: u32,
    failed: u32,
}

/// What happened since the rate was looked at last.
#[derive(Clone, Copy, Debug, Default)]
struct Step {
    since: Duration,
    granted: u32,
    failed: u32,
}

impl AdaptiveRate {
    /// A cap above 0, in pulls a second.
    #[must_use]
    pub fn new(now: Duration, cap: f64) -> Self {
        let step = Step { since: now, ..Step::default() };
        let phase = Phase::Doubling { served: false };
        Self { cap, rate: start(cap), phase, recent: VecDeque::with_capacity(RECENT), step, granted_last: None, failing_since: None }
    }

    /// The rate in force, in pulls a second.
    #[must_use]
    pub fn in_force(&self) -> f64 {
        self.rate
    }

    /// Whether the registry is known or supposed to be unable to do what the cap allows.
    #[must_use]
    pub fn is_found(&self) -> bool {
        self.rate < self.cap && matches!(self.phase, Phase::Judging(_) | Phase::Growing { .. })
    }

    /// A pull was let go.
    pub fn granted(&mut self, now: Duration) {
        if self.granted_last.is_some_and(|last| now > last + IDLE) {
            self.begin_anew(now);
        }
        self.granted_last = Some(now);
        self.step.granted = self.step.granted.saturating_add(1);
    }

    /// The registry answered a pull of `node` that was let go at `granted`, if that is known.
    pub fn answered(&mut self, now: Duration, node: &NodeName, granted: Option<Duration>, answer: RegistryAnswer) {
        let failed = answer == RegistryAnswer::Failed;
        if failed {
            self.failing_since.get_or_insert(now);
        } else if self.failing_since.take().is_some_and(|since| now >= since + DOWN) {
            self.begin_anew(now);
        }
        if let Phase::Judging(Judgement { since, .. }) = self.phase
            && granted.is_some_and(|granted| granted < since)
        {
            // It was let go by the rate of before.
            return;
        }
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back((node.clone(), failed));
        self.step.failed += u32::from(failed);
        match &mut self.phase {
            Phase::Doubling { served } => *served |= !failed,
            Phase::Judging(judgement) if failed => judgement.failed += 1,
            Phase::Judging(judgement) => judgement.served += 1,
            Phase::Growing { .. } | Phase::Chance { .. } => {}
        }
        if failed && matches!(self.phase, Phase::Doubling { .. } | Phase::Growing { .. }) && self.several_fail() {
            let failing = self.recent.iter().filter(|(_, failed)| *failed).count();
            let share = failing as f64 / self.recent.len() as f64;
            self.cut(now, Judgement { since: now, before: self.rate, share, cuts: 0, served: 0, failed: 0 });
        }
        self.pass(now);
    }

    /// Time has passed.
    pub fn pass(&mut self, now: Duration) {
        match self.phase {
            Phase::Judging(judgement) => self.judge(now, judgement),
            Phase::Doubling { served } => self.step_up(now, DOUBLES_EVERY, 2.0, |step| served && step.failed == 0),
            Phase::Growing { since } if now >= since + FOUND_FOR => self.enter(now, Phase::Doubling { served: true }),
            Phase::Growing { .. } => self.step_up(now, GROWS_EVERY, GROWTH, |step| step.failed == 0),
            Phase::Chance { until } if now >= until => self.enter(now, Phase::Doubling { served: true }),
            Phase::Chance { .. } => self.step_up(now, DOUBLES_EVERY, 2.0, |_| true),
        }
    }

    fn begin_anew(&mut self, now: Duration) {
        *self = Self { granted_last: self.granted_last, ..Self::new(now, self.cap) };
    }

    fn enter(&mut self, now: Duration, phase: Phase) {
        self.phase = phase;
        self.step = Step { since: now, ..Step::default() };
    }

    /// Three nodes among the last answers failed, or all that ask.
    fn several_fail(&self) -> bool {
        let (mut asking, mut failing): (Vec<&NodeName>, Vec<&NodeName>) = (Vec::new(), Vec::new());
        for (node, failed) in &self.recent {
            if !asking.contains(&node) {
                asking.push(node);
            }
            if *failed && !failing.contains(&node) {
                failing.push(node);
            }
        }
        failing.len() >= FAILING_NODES || (asking.len() > 1 && failing.len() == asking.len() && self.recent.len() >= RECENT_LEAST)
    }

    fn cut(&mut self, now: Duration, judgement: Judgement) {
        self.rate = (self.rate * CUT).max(floor(self.cap)).min(self.rate);
        self.recent.clear();
        self.enter(now, Phase::Judging(Judgement { since: now, cuts: judgement.cuts + 1, ..judgement }));
    }

    fn judge(&mut self, now: Duration, judgement: Judgement) {
        let answers = judgement.served + judgement.failed;
        if now < judgement.since + JUDGED_AFTER || answers < JUDGED_BY * judgement.cuts.min(CUTS) {
            return;
        }
        let share = f64::from(judgement.failed) / f64::from(answers);
        if share <= judgement.share * STILL_FAILING || (self.rate <= floor(self.cap) && share > CHANCE_MOST) {
            self.recent.clear();
            self.enter(now, Phase::Growing { since: now });
        } else if judgement.cuts < CUTS || share > CHANCE_MOST {
            self.cut(now, judgement);
        } else {
            self.rate = (judgement.before * 2.0).min(self.cap);
            self.enter(now, Phase::Chance { until: now + CHANCE_FOR });
        }
    }

    fn step_up(&mut self, now: Duration, every: Duration, by: f64, may: impl FnOnce(&Step) -> bool) {
        let lasted = now.saturating_sub(self.step.since);
        if lasted < every {
            return;
        }
        let used = f64::from(self.step.granted) >= self.rate * lasted.as_secs_f64() * USED;
        if used && may(&self.step) {
            self.rate = (self.rate * by).min(self.cap);
        }
        self.step = Step { since: now, ..Step::default() };
    }
}

fn start(cap: f64) -> f64 {
    (cap / START_SHARE).max(START_LEAST).min(cap)
}

fn floor(cap: f64) -> f64 {
    (cap / FLOOR_SHARE).max(FLOOR_LEAST).min(cap)
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;
    use std::collections::{BTreeSet, BinaryHeap};

    use clock::Random;

    use super::super::pace::Pace;
    use super::*;

    const CAP: f64 = 200.0;
    const LATENCY: Duration = Duration::from_millis(50);

    /// What becomes of pulls that all begin at once, each of a node, tried again after 1 s doubling to 4 s.
    struct Model {
        pulls: usize,
        nodes: usize,
        /// Answers a second; none: as many as there are.
        does: Option<u32>,
        /// Of what it answers, so much fails by chance.
        fails: f64,
        takes: Duration,
    }

    impl Model {
        fn new(pulls: usize, nodes: usize) -> Self {
            Self { pulls, nodes, does: None, fails: 0.0, takes: LATENCY }
        }

        /// How long all take, in seconds, and how many requests fail.
        fn run(&self, seed: u64) -> (f64, usize) {
            let mut random = Random::seeded(seed);
            let (mut rate, mut pace) = (AdaptiveRate::new(Duration::ZERO, CAP), Pace::new(CAP));
            let mut queue: VecDeque<usize> = (0..self.pulls).collect();
            let mut due = BinaryHeap::new();
            let mut answers: VecDeque<(Duration, Duration, usize, bool)> = VecDeque::new();
            let mut tries = vec![0_u32; self.pulls];
            let (mut failing, mut left, mut second) = (0, self.pulls, (0, 0));
            let mut now = Duration::ZERO;
            while left > 0 && now < Duration::from_secs(1_000) {
                while due.peek().is_some_and(|Reverse((at, _))| *at <= now) {
                    queue.extend(due.pop().map(|Reverse((_, pull))| pull));
                }
                while let Some((_, granted, pull, served)) = answers.pop_front_if(|(at, ..)| *at <= now) {
                    let name = format!("n{}", pull % self.nodes).parse().expect("a name");
                    let answer = if served { RegistryAnswer::Served } else { RegistryAnswer::Failed };
                    rate.answered(now, &name, Some(granted), answer);
                    if served {
                        left -= 1;
                    } else {
                        failing += 1;
                        tries[pull] += 1;
                        due.push(Reverse((now + Duration::from_secs((1 << (tries[pull] - 1).min(2)).min(4)), pull)));
                    }
                }
                rate.pass(now);
                pace.set(rate.in_force());
                while !queue.is_empty() && pace.take(now) {
                    let Some(pull) = queue.pop_front() else { break };
                    rate.granted(now);
                    if second.0 != now.as_secs() {
                        second = (now.as_secs(), 0);
                    }
                    let room = self.does.is_none_or(|does| second.1 < does);
                    second.1 += u32::from(room);
                    answers.push_back((now + self.takes, now, pull, room && random.fraction() >= self.fails));
                }
                now += Duration::from_millis(5);
            }
            (now.as_secs_f64(), failing)
        }
    }

    #[test]
    fn a_healthy_registry_is_asked_at_the_cap_within_seconds() {
        let (took, failing) = Model::new(1_000, 1_000).run(1);
        assert!(took <= 7.0 && failing == 0, "{took} s");
        let (took, _) = Model { takes: Duration::from_secs(3), ..Model::new(2_000, 2_000) }.run(1);
        assert!(took <= 3.0 + 3.0 + 3.0 + 2_000.0 / 180.0, "{took} s of answers that take 3 s");
    }

    #[test]
    fn an_overloaded_registry_is_asked_about_what_it_does() {
        // Pulls, nodes, what the registry does in a second; at most this many failing.
        for (pulls, nodes, does, most) in [(120, 20, 5, 30), (1_000, 1_000, 50, 250), (10_000, 10_000, 50, 2_500), (200, 3, 10, 60)] {
            for seed in 0..10 {
                let (took, failing) = Model { does: Some(does), ..Model::new(pulls, nodes) }.run(seed);
                let own = pulls as f64 / f64::from(does);
                assert!(took <= own * 1.3 && failing <= most, "{does}/s, seed {seed}: {took:.1} s of {own} s, {failing} failing");
            }
        }
    }

    #[test]
    fn chance_does_not_slow_pulls_down_for_long() {
        // Pulls, nodes, the share that fails; all within so many seconds.
        for (pulls, nodes, fails, within) in [(120, 20, 0.8, 150.0), (1_000, 1_000, 0.5, 60.0), (1_000, 1_000, 0.1, 40.0)] {
            for seed in 0..20 {
                let (took, failing) = Model { fails, ..Model::new(pulls, nodes) }.run(seed);
                let expected = pulls as f64 * fails / (1.0 - fails);
                assert!(took <= within, "{fails} fail, seed {seed}: {took:.1} s");
                assert!((failing as f64) < expected * 1.4 + 10.0, "{fails} fail, seed {seed}: {failing} failing, {expected} by chance");
            }
        }
    }

    fn node(number: usize) -> NodeName {
        format!("n{number}").parse().expect("a name")
    }

    fn at_cap() -> AdaptiveRate {
        AdaptiveRate { rate: CAP, phase: Phase::Doubling { served: true }, ..AdaptiveRate::new(Duration::ZERO, CAP) }
    }

    #[test]
    fn failures_of_one_node_move_nothing_and_those_of_three_do() {
        let now = Duration::from_secs(1);
        let mut rate = at_cap();
        for _ in 0..100 {
            rate.answered(now, &node(1), None, RegistryAnswer::Failed);
        }
        assert_eq!(rate.in_force(), CAP, "nobody else asks: it is that node's own affair");
        rate.answered(now, &node(2), None, RegistryAnswer::Served);
        rate.answered(now, &node(1), None, RegistryAnswer::Failed);
        assert_eq!(rate.in_force(), CAP);
        let mut rate = at_cap();
        let mut rates = BTreeSet::new();
        for number in 0..3 {
            rate.answered(now, &node(number), None, RegistryAnswer::Failed);
            rates.insert(rate.in_force() as u64);
        }
        assert_eq!(rates, [90, 200].into());
        assert!(rate.is_found());
    }

    #[test]
    fn what_was_let_go_before_a_cut_says_nothing_of_it() {
        let mut rate = at_cap();
        let cut_at = Duration::from_secs(1);
        for number in 0..3 {
            rate.answered(cut_at, &node(number), Some(cut_at), RegistryAnswer::Failed);
        }
        let before = rate.in_force();
        for number in 0..50 {
            let granted = Some(cut_at - Duration::from_millis(1));
            rate.answered(cut_at + Duration::from_secs(2), &node(number), granted, RegistryAnswer::Failed);
        }
        assert_eq!(rate.in_force(), before);
    }

    #[test]
    fn a_registry_that_was_down_and_a_budget_that_was_idle_begin_anew() {
        let mut rate = at_cap();
        for number in 0..100 {
            rate.answered(Duration::from_millis(number * 200), &node(number as usize % 7), None, RegistryAnswer::Failed);
        }
        assert_eq!(rate.in_force(), floor(CAP), "nothing is served: it stays at the lowest");
        rate.answered(Duration::from_secs(21), &node(1), None, RegistryAnswer::Served);
        assert_eq!((rate.in_force(), rate.is_found()), (start(CAP), false));
        let mut rate = at_cap();
        rate.granted(Duration::from_secs(1));
        rate.granted(Duration::from_secs(30));
        assert_eq!(rate.in_force(), CAP);
        rate.granted(Duration::from_secs(61));
        assert_eq!(rate.in_force(), start(CAP));
    }

    #[test]
    fn small_caps_bound_everything() {
        for cap in [0.1, 0.5, 1.0, 3.0] {
            assert!(start(cap) <= cap && floor(cap) <= start(cap), "{cap}");
            let mut rate = AdaptiveRate::new(Duration::ZERO, cap);
            for number in 0..1_000 {
                let now = Duration::from_millis(number * 100);
                rate.granted(now);
                let answer = if number % 3 == 0 { RegistryAnswer::Served } else { RegistryAnswer::Failed };
                rate.answered(now, &node(number as usize % 5), Some(now), answer);
                assert!(rate.in_force() <= cap && rate.in_force() >= floor(cap), "{cap}: {}", rate.in_force());
            }
        }
    }
}
