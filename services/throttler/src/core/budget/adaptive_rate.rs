//! The rate in force: what a registry turns out to be able to do, and at most the cap.
//!
//! | phase | what it means | the rate |
//! |---|---|---|
//! | `Doubling` | nothing is known yet, or nothing fails | doubles while few answers fail |
//! | `Judging` | several nodes failed, so the rate was cut to what was served | stays until enough answers show what the cut changed |
//! | `Growing` | fewer failed after the cut: the registry was overloaded | grows, the faster the longer nothing fails, until the next cut |
//! | `Chance` | as many failed after the cut: requests fail by chance | doubles again, and is not cut as long as they do |
//!
//! An overloaded registry serves in a second what it can, whatever more it is asked: so what it served while requests failed is the rate
//! to ask it at.
//!
//! One node's failures never move it: a cut wants three nodes, or all that ask. A node that failed several times in a row while others were
//! served may itself be the cause, and what it fails after that causes no cut: a rack without a network slows nobody else.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use contract::NodeName;

/// The cap divided by this is the first rate.
const START_SHARE: f64 = 20.0;
/// No first rate is lower than this, unless the cap is, in pulls a second.
const START_LEAST: f64 = 5.0;
/// The cap divided by this is the lowest rate.
const FLOOR_SHARE: f64 = 200.0;
/// No cut goes below this, in pulls a second: a lower rate takes too long to show anything, and where few of them succeed, nobody is served
/// meanwhile.
const FLOOR_LEAST: f64 = 2.0;
/// A budget that nobody asked for so long begins anew.
const IDLE: Duration = Duration::from_secs(30);
/// A registry that served nobody for so long begins anew with its first answer: whatever was found is of before.
const DOWN: Duration = Duration::from_secs(10);
/// So does one where so many of those that asked failed.
const NEARLY_ALL: f64 = 0.9;
/// How often the rate doubles.
const DOUBLES_EVERY: Duration = Duration::from_millis(400);
/// How often it grows otherwise.
const GROWS_EVERY: Duration = Duration::from_secs(1);
/// By how much at first, as a share of it; twice as much after each [`GROWS_FASTER_AFTER`] steps in a row that were clean, up to the last.
const GROWTH: f64 = 0.05;
const GROWS_FASTER_AFTER: u32 = 5;
const GROWS_FASTER_MOST: u32 = 4;
/// A cut leaves so much of what was served in the last second,
const OF_SERVED: f64 = 0.9;
/// and of the rate no more than this while it is being found, or this once it has been.
const CUT_FIRST: f64 = 0.45;
const CUT: f64 = 0.9;
/// While it is being found, so much of it is left in any case: what was served in a second may be few by chance.
const CUT_MOST: f64 = 0.25;
/// What was served in the last second is counted in so many parts.
const PARTS: usize = 4;
const PART: Duration = Duration::from_millis(250);
/// How many of the last answers are looked at, or those of [`RECENT_S`] at a higher rate: then a few that fail by chance are not many.
const RECENT: usize = 10;
const RECENT_S: f64 = 0.25;
/// None of them is older than this, or than so many take at the rate in force: a load shows within seconds, and a few probes of a registry
/// that is down say nothing of it.
const RECENT_FOR: Duration = Duration::from_secs(3);
/// So much of them must have failed,
const FAILING_SHARE: f64 = 0.35;
/// of so many nodes, or of all that ask.
const FAILING_NODES: usize = 3;
/// Where fewer nodes ask: so many answers at least.
const RECENT_LEAST: usize = 4;
/// So many failures of one node count in a row, if others were served meanwhile.
const FAILURES_IN_A_ROW: u32 = 3;
/// Nodes whose failures are counted so: as many as a fleet has. Those beyond it count each time.
const FAILING_MAX: usize = 10_000;
/// What was let go within this time after a cut does not count: a registry that counts by the second refuses the rest of that.
const SETTLES: Duration = Duration::from_secs(1);
/// From then on a cut is judged by the answers of so long, and so many, one of them served,
const JUDGED_FOR: Duration = Duration::from_millis(500);
const JUDGED_BY: u32 = 8;
/// so many if any failed,
const JUDGED_BY_IF_SOME_FAIL: u32 = 18;
/// or so many in any case.
const JUDGED_BY_AT_MOST: u32 = 24;
/// A cut that could not be judged for so long, because less than [`USED`] of the rate was asked for, is taken back.
const JUDGED_WITHIN: Duration = Duration::from_secs(10);
/// The registry was overloaded if no more than this part of the failing share is left.
const STILL_FAILING: f64 = 0.4;
/// So many cuts in a row are made before it is said to fail by chance: what a registry served in a second may be twice what it can do, where
/// it counts by the second.
const CUTS: u32 = 2;
/// One cut is enough where so many failed before it, and no more after it;
const PLAIN_SHARE: f64 = 0.42;
/// and after a cut of the first rate, which had not been doubling, if this part of the failing share is left: an overloaded registry would fail
/// far fewer.
const AS_MANY: f64 = 0.8;
/// It fails by chance if about as many fail as before: if more do, it can do less than was supposed.
const AS_BEFORE: f64 = 1.3;
const AS_BEFORE_AND: f64 = 0.1;
/// What looked like chance was none if, of so many answers at the higher rate, this part of those fail that did not before.
const CHANCE_JUDGED_BY: u32 = 30;
const MORE_FAILING: f64 = 0.6;
/// A step up is clean if no more than this share of its answers failed.
const CLEAN_SHARE: f64 = 0.17;
/// For so long at least no cut is made where requests fail by chance.
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
    /// The last answers, oldest first.
    recent: VecDeque<Recent>,
    step: Step,
    served: Served,
    granted_last: Option<Duration>,
    /// That it fails by chance has been found wrong.
    no_chance_until: Duration,
    /// When the first failure since the last success was.
    failing_since: Option<Duration>,
    served_last: Option<Duration>,
    /// Failures of each node since it was served.
    failing: BTreeMap<NodeName, Failing>,
}

/// One of the last answers.
#[derive(Clone, Debug)]
struct Recent {
    at: Duration,
    node: NodeName,
    failed: bool,
}

/// Failures of one node in a row.
#[derive(Clone, Copy, Debug)]
struct Failing {
    since: Duration,
    failures: u32,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    Doubling { served: bool },
    Judging(Judgement),
    Growing { clean: u32 },
    Chance { until: Duration, share: f64, answered: u32, failed: u32 },
}

/// A cut and what came of it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Judgement {
    /// Of the last cut.
    since: Duration,
    /// The rate before the first cut.
    before: f64,
    /// The highest failing share so far.
    share: f64,
    /// Cuts one after the other, this one included.
    cuts: u32,
    served: u32,
    failed: u32,
}

/// What happened since the rate was looked at last.
#[derive(Clone, Copy, Debug, Default)]
struct Step {
    since: Duration,
    granted: u32,
    answered: u32,
    failed: u32,
}

/// What was served in the last second.
#[derive(Clone, Copy, Debug, Default)]
struct Served {
    /// The newest first.
    parts: [u32; PARTS],
    newest: u128,
}

impl Served {
    fn add(&mut self, now: Duration, count: u32) {
        let part = now.as_nanos() / PART.as_nanos();
        let passed = usize::try_from(part.saturating_sub(self.newest)).unwrap_or(PARTS).min(PARTS);
        self.parts.rotate_right(passed);
        self.parts[..passed].fill(0);
        self.newest = part.max(self.newest);
        self.parts[0] = self.parts[0].saturating_add(count);
    }

    fn in_a_second(mut self, now: Duration) -> f64 {
        self.add(now, 0);
        f64::from(self.parts.iter().sum::<u32>())
    }
}

impl Step {
    fn is_clean(self) -> bool {
        f64::from(self.failed) <= f64::from(self.answered) * CLEAN_SHARE
    }
}

impl AdaptiveRate {
    /// A cap above 0, in pulls a second.
    #[must_use]
    pub fn new(now: Duration, cap: f64) -> Self {
        let step = Step { since: now, ..Step::default() };
        let phase = Phase::Doubling { served: false };
        Self {
            cap,
            rate: start(cap),
            phase,
            recent: VecDeque::with_capacity(RECENT),
            step,
            served: Served::default(),
            granted_last: None,
            no_chance_until: Duration::ZERO,
            failing_since: None,
            served_last: None,
            failing: BTreeMap::new(),
        }
    }

    /// Another cap, above 0. What was found by the cap before is looked for anew, from no higher than where it stands.
    pub fn set_cap(&mut self, now: Duration, cap: f64) {
        let rate = self.rate;
        self.cap = cap;
        self.begin_anew(now);
        self.rate = rate.clamp(start(cap), cap);
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
        } else if self.failing_since.take().is_some_and(|since| now >= since + DOWN) || self.nothing_was_served() {
            self.begin_anew(now);
        }
        let fails_alone = failed && self.fails_alone(now, node);
        if !failed {
            self.failing.remove(node);
            self.served_last = Some(now);
        }
        if let Phase::Judging(Judgement { since, .. }) = self.phase
            && granted.is_some_and(|granted| granted < since + SETTLES)
        {
            self.served.add(now, u32::from(!failed));
            return;
        }
        if !fails_alone {
            self.recent.push_back(Recent { at: now, node: node.clone(), failed });
            self.forget_old(now);
        }
        self.served.add(now, u32::from(!failed));
        self.step.answered += 1;
        self.step.failed += u32::from(failed);
        match &mut self.phase {
            Phase::Doubling { served } => *served |= !failed,
            Phase::Judging(judgement) if failed => judgement.failed += 1,
            Phase::Judging(judgement) => judgement.served += 1,
            Phase::Growing { .. } => {}
            Phase::Chance { answered, failed: failures, .. } => (*answered, *failures) = (*answered + 1, *failures + u32::from(failed)),
        }
        if failed
            && !fails_alone
            && matches!(self.phase, Phase::Doubling { .. } | Phase::Growing { .. })
            && let Some(share) = self.failing_share()
        {
            let left = if matches!(self.phase, Phase::Doubling { .. }) { CUT_FIRST } else { CUT };
            self.cut(now, left, Judgement { since: now, before: self.rate, share, cuts: 0, served: 0, failed: 0 });
        }
        self.pass(now);
    }

    /// Time has passed.
    pub fn pass(&mut self, now: Duration) {
        match self.phase {
            Phase::Judging(judgement) => self.judge(now, judgement),
            Phase::Doubling { served } => drop(self.step_up(now, DOUBLES_EVERY, 2.0, |step| served && step.is_clean())),
            Phase::Growing { clean } => {
                let faster = 1_u32 << (clean / GROWS_FASTER_AFTER).min(GROWS_FASTER_MOST);
                if let Some(is_clean) = self.step_up(now, GROWS_EVERY, 1.0 + GROWTH * f64::from(faster), |step| step.is_clean()) {
                    self.phase = Phase::Growing { clean: if is_clean { clean + 1 } else { clean / 2 } };
                }
            }
            Phase::Chance { until, share, answered, failed } if now >= until => {
                let is_over = answered < CHANCE_JUDGED_BY || f64::from(failed) < f64::from(answered) * FAILING_SHARE;
                let goes_on = Phase::Chance { until: now + CHANCE_FOR, share, answered: 0, failed: 0 };
                self.enter(now, if is_over { Phase::Doubling { served: true } } else { goes_on });
            }
            Phase::Chance { share, answered, failed, .. } => {
                let failing = f64::from(failed) / f64::from(answered.max(1));
                if answered >= CHANCE_JUDGED_BY && failing > share + (1.0 - share) * MORE_FAILING {
                    self.no_chance_until = now + CHANCE_FOR;
                    return self.cut(
                        now,
                        CUT_FIRST,
                        Judgement { since: now, before: self.rate, share: failing, cuts: 0, served: 0, failed: 0 },
                    );
                }
                self.step_up(now, DOUBLES_EVERY, 2.0, |_| true);
            }
        }
    }

    fn forget_old(&mut self, now: Duration) {
        let most = RECENT.max((self.rate * RECENT_S) as usize);
        let oldest = now.saturating_sub(RECENT_FOR.max(Duration::from_secs_f64(RECENT as f64 / self.rate)));
        while self.recent.len() > most || self.recent.front().is_some_and(|recent| recent.at < oldest) {
            self.recent.pop_front();
        }
    }

    /// Counts a failure; whether the node has failed often in a row, while others were served.
    fn fails_alone(&mut self, now: Duration, node: &NodeName) -> bool {
        if self.failing.len() >= FAILING_MAX && !self.failing.contains_key(node) {
            return false;
        }
        let failing = self.failing.entry(node.clone()).or_insert(Failing { since: now, failures: 0 });
        failing.failures = failing.failures.saturating_add(1);
        failing.failures > FAILURES_IN_A_ROW && self.served_last.is_some_and(|served| served >= failing.since)
    }

    /// The rate was cut because all that asked failed, and nothing was served since: nodes that are sick say nothing of what it can do.
    fn nothing_was_served(&self) -> bool {
        matches!(self.phase, Phase::Judging(Judgement { share, served: 0, .. }) if share >= NEARLY_ALL)
    }

    fn begin_anew(&mut self, now: Duration) {
        let failing = std::mem::take(&mut self.failing);
        *self = Self { granted_last: self.granted_last, served_last: self.served_last, failing, ..Self::new(now, self.cap) };
    }

    fn enter(&mut self, now: Duration, phase: Phase) {
        tracing::debug!(pulls_per_second = self.rate, was = ?self.phase, is = ?phase, "the rate of a budget is adapted");
        self.phase = phase;
        self.step = Step { since: now, ..Step::default() };
    }

    /// The failing share of the last answers, if it is large, and of several nodes or of all that ask.
    fn failing_share(&self) -> Option<f64> {
        let nodes = |failed: bool| {
            let of = self.recent.iter().filter(|recent| recent.failed || !failed);
            of.map(|recent| &recent.node).collect::<BTreeSet<_>>().len()
        };
        let (asking, failing) = (nodes(false), nodes(true));
        let all_fail = asking > 1 && failing == asking;
        // A few answers may by chance be those of nodes that are sick.
        let least = if asking < FAILING_NODES { RECENT_LEAST } else { RECENT };
        let share = self.recent.iter().filter(|recent| recent.failed).count() as f64 / self.recent.len().max(least) as f64;
        (share >= FAILING_SHARE && (failing >= FAILING_NODES || (all_fail && self.recent.len() >= RECENT_LEAST))).then_some(share)
    }

    /// Leaves what was served in the last second, and no more of the rate than `left`.
    fn cut(&mut self, now: Duration, left: f64, judgement: Judgement) {
        let served = self.served.in_a_second(now);
        // At the first rate little was served so far, whatever the registry can do.
        let goodput = if self.rate <= start(self.cap) { served.max(self.rate * (1.0 - judgement.share)) } else { served };
        let least = if left == CUT_FIRST { self.rate * CUT_MOST } else { 0.0 };
        self.rate = (goodput * OF_SERVED).min(self.rate * left).max(floor(self.cap)).max(least).min(self.rate);
        self.recent.clear();
        self.enter(now, Phase::Judging(Judgement { since: now, cuts: judgement.cuts + 1, served: 0, failed: 0, ..judgement }));
    }

    fn judge(&mut self, now: Duration, judgement: Judgement) {
        let Judgement { since, share: before, served, failed, .. } = judgement;
        if now >= since + JUDGED_WITHIN && !self.is_used(now) {
            return self.begin_anew(now);
        }
        let answers = served + failed;
        let shows = (answers >= if failed == 0 { JUDGED_BY } else { JUDGED_BY_IF_SOME_FAIL } && served > 0) || answers >= JUDGED_BY_AT_MOST;
        if now < since + SETTLES + JUDGED_FOR || !shows {
            return;
        }
        let share = f64::from(failed) / f64::from(answers);
        if share <= before * STILL_FAILING {
            self.recent.clear();
            self.enter(now, Phase::Growing { clean: 0 });
        } else if (judgement.cuts >= CUTS || (before >= PLAIN_SHARE && share <= before) || self.is_plain_at_first(judgement, share))
            && served > 0
            && share <= before * AS_BEFORE + AS_BEFORE_AND
            && now >= self.no_chance_until
        {
            self.rate = judgement.before;
            self.enter(now, Phase::Chance { until: now + CHANCE_FOR, share: share.max(before), answered: 0, failed: 0 });
        } else {
            self.cut(now, CUT_FIRST, Judgement { share: share.max(before), ..judgement });
        }
    }

    /// Whether so much of the rate was asked for in this step that it shows something.
    fn is_used(&self, now: Duration) -> bool {
        let lasted = now.saturating_sub(self.step.since).as_secs_f64();
        f64::from(self.step.granted) >= self.rate * lasted * USED
    }

    /// Whether one cut is enough to see that as many fail at less than half of the first rate.
    fn is_plain_at_first(&self, judgement: Judgement, share: f64) -> bool {
        judgement.before <= start(self.cap) && share >= judgement.share * AS_MANY
    }

    /// Raises the rate if enough of it was used and the step was good; whether it was, once a step is over.
    fn step_up(&mut self, now: Duration, every: Duration, by: f64, is_good: impl FnOnce(Step) -> bool) -> Option<bool> {
        let lasted = now.saturating_sub(self.step.since);
        if lasted < every {
            return None;
        }
        let used = self.is_used(now);
        let step = std::mem::replace(&mut self.step, Step { since: now, ..Step::default() });
        let is_good = is_good(step);
        if used && is_good {
            self.rate = (self.rate * by).min(self.cap);
        }
        Some(is_good)
    }
}

fn start(cap: f64) -> f64 {
    (cap / START_SHARE).max(START_LEAST).min(cap)
}

fn floor(cap: f64) -> f64 {
    (cap / FLOOR_SHARE).max(FLOOR_LEAST).min(cap)
}
