//! The rate in force: what a registry turns out to sustain, and at most the cap.
//!
//! | phase | what it means | the rate |
//! |---|---|---|
//! | `Doubling` | nothing is known yet, or nothing fails | doubles while few answers fail |
//! | `Judging` | several nodes failed, so the rate was cut to what was served | stays until enough answers show what the cut changed |
//! | `Growing` | fewer failed after the cut: the registry was overloaded | grows, the faster the longer nothing fails, until the next cut |
//! | `Chance` | as many failed after the cut: requests fail by chance | doubles again, and is not cut as long as they do |
//!
//! An overloaded registry serves in a second what it can, however much more it is asked. So what it served while requests failed is the
//! rate at which to ask it.
//!
//! One node's failures never change the rate: a cut needs three failing nodes, or all nodes that ask. A node that failed several times in a
//! row while others were served may itself be the cause, so its further failures cause no cut: a rack without a network slows no other
//! node.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use contract::NodeName;

/// The cap divided by this is the first rate.
const START_SHARE: f64 = 20.0;
/// The lowest first rate in pulls a second, unless the cap is lower.
const START_LEAST: f64 = 5.0;
/// The cap divided by this is the lowest rate.
const FLOOR_SHARE: f64 = 200.0;
/// No cut goes below this rate, in pulls a second. A lower rate takes too long to show anything, and if few requests succeed, nobody is
/// served meanwhile.
const FLOOR_LEAST: f64 = 2.0;
/// A budget that nobody asked for this long begins anew.
const IDLE: Duration = Duration::from_secs(30);
/// A registry that served nobody for this long begins anew with its first answer, because what was found is out of date.
const DOWN: Duration = Duration::from_secs(10);
/// A registry also begins anew with its first answer if this share of the answers failed before a cut and none was served since.
const NEARLY_ALL: f64 = 0.9;
/// How often the rate doubles.
const DOUBLES_EVERY: Duration = Duration::from_millis(400);
/// How often the rate grows otherwise.
const GROWS_EVERY: Duration = Duration::from_secs(1);
/// The share by which the rate grows. It doubles after each [`GROWS_FASTER_AFTER`] clean steps, at most [`GROWS_FASTER_MOST`] times.
const GROWTH: f64 = 0.05;
const GROWS_FASTER_AFTER: u32 = 5;
const GROWS_FASTER_MOST: u32 = 4;
/// A cut leaves at most this share of what was served in the last second.
const OF_SERVED: f64 = 0.9;
/// A cut also leaves at most this share of the rate: the first while the rate is being found, the second once it was found.
const CUT_FIRST: f64 = 0.45;
const CUT: f64 = 0.9;
/// While the rate is being found, a cut leaves at least this share of it, because few may be served in a second by chance.
const CUT_MOST: f64 = 0.25;
/// What was served in the last second is counted in this many parts.
const PARTS: usize = 4;
const PART: Duration = Duration::from_millis(250);
/// How many of the last answers are looked at. At a higher rate it is those of [`RECENT_S`], so that a few chance failures are not many.
const RECENT: usize = 10;
const RECENT_S: f64 = 0.25;
/// No answer that is looked at is older than this, or than the time of [`RECENT`] answers at the rate in force if that is longer. A load
/// shows within seconds, and a few probes of a registry that is down do not show one.
const RECENT_FOR: Duration = Duration::from_secs(3);
/// A cut needs this share of the recent answers to have failed.
const FAILING_SHARE: f64 = 0.35;
/// A cut needs this many failing nodes, or that all nodes that ask fail.
const FAILING_NODES: usize = 3;
/// If fewer nodes ask, a cut needs at least this many answers.
const RECENT_LEAST: usize = 4;
/// Further failures of a node cause no cut after this many in a row, if others were served meanwhile.
const FAILURES_IN_A_ROW: u32 = 3;
/// The most nodes whose failures in a row are counted: a large fleet. Failures of further nodes always count.
const FAILING_MAX: usize = 10_000;
/// Answers to pulls granted within this time after a cut do not count, because a registry that counts by the second refuses the rest of it.
const SETTLES: Duration = Duration::from_secs(1);
/// A cut is judged after this time beyond [`SETTLES`], by [`JUDGED_BY`] answers if none failed.
const JUDGED_FOR: Duration = Duration::from_millis(500);
const JUDGED_BY: u32 = 8;
/// If any failed, a cut is judged by this many answers, at least one of them served.
const JUDGED_BY_IF_SOME_FAIL: u32 = 18;
/// A cut is judged by this many answers in any case.
const JUDGED_BY_AT_MOST: u32 = 24;
/// A cut that could not be judged within this time, because less than [`USED`] of the rate was asked for, is taken back.
const JUDGED_WITHIN: Duration = Duration::from_secs(10);
/// The registry was overloaded if at most this part of the failing share is left.
const STILL_FAILING: f64 = 0.4;
/// This many cuts in a row are made before failures count as chance: a registry that counts by the second may have served twice what it can
/// sustain.
const CUTS: u32 = 2;
/// One cut is enough if this share failed before it and no larger share after it.
const PLAIN_SHARE: f64 = 0.42;
/// One cut of the first rate is also enough if at least this part of the failing share is left, because an overloaded registry would fail
/// far fewer.
const AS_MANY: f64 = 0.8;
/// Requests fail by chance if about as many fail as before. If more fail, the registry can do less than was assumed.
const AS_BEFORE: f64 = 1.3;
const AS_BEFORE_AND: f64 = 0.1;
/// A chance is withdrawn if, after this many answers at the higher rate, [`MORE_FAILING`] of the share that succeeded before fails.
const CHANCE_JUDGED_BY: u32 = 30;
const MORE_FAILING: f64 = 0.6;
/// A step up is clean if no more than this share of its answers failed.
const CLEAN_SHARE: f64 = 0.17;
/// Where requests fail by chance, no cut is made for at least this long.
const CHANCE_FOR: Duration = Duration::from_secs(60);
/// The rate is raised only if this share of it was used, because otherwise the step shows nothing.
const USED: f64 = 0.5;

/// How a registry answered a pull, as far as the rate is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegistryAnswer {
    /// It gave what was asked for, or answered that there is no such thing.
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
    /// Until then, no failures count as chance, because that was found wrong.
    no_chance_until: Duration,
    /// When the first failure since the last success came.
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

/// A cut and its results.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Judgement {
    /// When the last cut was made.
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

/// Counts since the rate was last checked.
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
    /// `cap`: above 0, in pulls a second.
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

    /// Sets another cap, above 0. The search begins anew from the present rate, raised to the first rate of the new cap if it is lower.
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

    /// Whether the registry is known or assumed to sustain less than the cap.
    #[must_use]
    pub fn is_found(&self) -> bool {
        self.rate < self.cap && matches!(self.phase, Phase::Judging(_) | Phase::Growing { .. })
    }

    /// A pull was granted.
    pub fn granted(&mut self, now: Duration) {
        if self.granted_last.is_some_and(|last| now > last + IDLE) {
            self.begin_anew(now);
        }
        self.granted_last = Some(now);
        self.step.granted = self.step.granted.saturating_add(1);
    }

    /// The registry answered a pull of `node` that was granted at `granted`, if that is known.
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

    /// Counts a failure. Returns whether the node has failed often in a row while others were served.
    fn fails_alone(&mut self, now: Duration, node: &NodeName) -> bool {
        if self.failing.len() >= FAILING_MAX && !self.failing.contains_key(node) {
            return false;
        }
        let failing = self.failing.entry(node.clone()).or_insert(Failing { since: now, failures: 0 });
        failing.failures = failing.failures.saturating_add(1);
        failing.failures > FAILURES_IN_A_ROW && self.served_last.is_some_and(|served| served >= failing.since)
    }

    /// Whether the rate was cut because nearly all requests failed, and nothing was served since. Sick nodes do not show what a registry
    /// sustains.
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

    /// The failing share of the last answers, if it is large and several nodes fail, or all that ask.
    fn failing_share(&self) -> Option<f64> {
        let nodes = |failed: bool| {
            let of = self.recent.iter().filter(|recent| recent.failed || !failed);
            of.map(|recent| &recent.node).collect::<BTreeSet<_>>().len()
        };
        let (asking, failing) = (nodes(false), nodes(true));
        let all_fail = asking > 1 && failing == asking;
        // A few answers may by chance be those of sick nodes.
        let least = if asking < FAILING_NODES { RECENT_LEAST } else { RECENT };
        let share = self.recent.iter().filter(|recent| recent.failed).count() as f64 / self.recent.len().max(least) as f64;
        (share >= FAILING_SHARE && (failing >= FAILING_NODES || (all_fail && self.recent.len() >= RECENT_LEAST))).then_some(share)
    }

    /// Cuts the rate to what was served in the last second, and to at most the share `left` of itself.
    fn cut(&mut self, now: Duration, left: f64, judgement: Judgement) {
        let served = self.served.in_a_second(now);
        // At the first rate, little was served so far, whatever the registry can do.
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

    /// Whether enough of the rate was asked for in this step to show something.
    fn is_used(&self, now: Duration) -> bool {
        let lasted = now.saturating_sub(self.step.since).as_secs_f64();
        f64::from(self.step.granted) >= self.rate * lasted * USED
    }

    /// Whether one cut is enough to see that as many fail at less than half of the first rate.
    fn is_plain_at_first(&self, judgement: Judgement, share: f64) -> bool {
        judgement.before <= start(self.cap) && share >= judgement.share * AS_MANY
    }

    /// Raises the rate if enough of it was used and the step was good. When a step is over, returns whether it was good.
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
