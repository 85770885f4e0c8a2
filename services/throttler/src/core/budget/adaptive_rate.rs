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
//!
//! Where the constants come from: `config/decisions/0016-adaptive-rate.md`.

mod cuts;
mod failures;
mod served;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use contract::{DEADLINES, NodeName};

use self::cuts::{CUT, CUT_FIRST, SETTLES};
use self::failures::{FAILING_SHARE, RECENT};
use self::served::Served;

/// The cap divided by this is the first rate.
const START_SHARE: f64 = 20.0;
/// The lowest first rate in pulls a second, unless the cap is lower.
const START_LEAST: f64 = 5.0;
/// A budget that nobody asked for this long begins anew.
const IDLE: Duration = Duration::from_secs(30);
/// A registry that served nobody for this long begins anew with its first answer, because what was found is out of date.
const DOWN: Duration = DEADLINES.served_lately;
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
/// A chance is withdrawn if, after this many answers at the higher rate, [`MORE_FAILING`] of the share that succeeded before fails.
const CHANCE_JUDGED_BY: u32 = 30;
const MORE_FAILING: f64 = 0.6;
/// A step up is clean if no more than this share of its answers failed.
const CLEAN_SHARE: f64 = 0.17;
/// Where requests fail by chance, no cut is made for at least this long.
const CHANCE_FOR: Duration = Duration::from_secs(60);
/// The rate is raised only if this share of it was used, because otherwise the step shows nothing.
const USED: f64 = 0.5;

/// Finds the rate of one budget.
#[derive(Clone, Debug)]
pub(super) struct AdaptiveRate {
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

impl Judgement {
    /// Before the first cut of a rate at which this share failed.
    fn first(now: Duration, rate: f64, share: f64) -> Self {
        Self { since: now, before: rate, share, cuts: 0, served: 0, failed: 0 }
    }
}

/// Counts since the rate was last checked.
#[derive(Clone, Copy, Debug)]
struct Step {
    since: Duration,
    granted: u32,
    answered: u32,
    failed: u32,
}

impl Step {
    fn new(now: Duration) -> Self {
        Self { since: now, granted: 0, answered: 0, failed: 0 }
    }

    fn is_clean(self) -> bool {
        f64::from(self.failed) <= f64::from(self.answered) * CLEAN_SHARE
    }
}

impl AdaptiveRate {
    /// `cap`: above 0, in pulls a second.
    pub(super) fn new(now: Duration, cap: f64) -> Self {
        Self {
            cap,
            rate: start(cap),
            phase: Phase::Doubling { served: false },
            recent: VecDeque::with_capacity(RECENT),
            step: Step::new(now),
            served: Served::default(),
            granted_last: None,
            no_chance_until: Duration::ZERO,
            failing_since: None,
            served_last: None,
            failing: BTreeMap::new(),
        }
    }

    /// Sets another cap, above 0. The search begins anew from the present rate, raised to the first rate of the new cap if it is lower.
    pub(super) fn set_cap(&mut self, now: Duration, cap: f64) {
        let rate = self.rate;
        self.cap = cap;
        self.begin_anew(now);
        self.rate = rate.clamp(start(cap), cap);
    }

    /// The rate in force, in pulls a second.
    pub(super) fn in_force(&self) -> f64 {
        self.rate
    }

    /// Whether the registry is known or assumed to sustain less than the cap.
    pub(super) fn is_found(&self) -> bool {
        self.rate < self.cap && matches!(self.phase, Phase::Judging(_) | Phase::Growing { .. })
    }

    /// A pull was granted.
    pub(super) fn granted(&mut self, now: Duration) {
        if self.granted_last.is_some_and(|last| now > last + IDLE) {
            self.begin_anew(now);
        }
        self.granted_last = Some(now);
        self.step.granted = self.step.granted.saturating_add(1);
    }

    /// The end of a pull of `node`, granted at `granted` if that is known. `served`: the registry gave what was asked for, or answered that
    /// there is no such thing; otherwise it refused because of its load (429, 5xx), or did not answer.
    pub(super) fn answered(&mut self, now: Duration, node: &NodeName, granted: Option<Duration>, served: bool) {
        let failed = !served;
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
        self.served.add(now, u32::from(!failed));
        if let Phase::Judging(Judgement { since, .. }) = self.phase
            && granted.is_some_and(|granted| granted < since + SETTLES)
        {
            return;
        }
        if !fails_alone {
            self.recent.push_back(Recent { at: now, node: node.clone(), failed });
            self.forget_old(now);
        }
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
            self.cut(now, left, Judgement::first(now, self.rate, share));
        }
        self.pass(now);
    }

    /// Time has passed.
    pub(super) fn pass(&mut self, now: Duration) {
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
                    return self.cut(now, CUT_FIRST, Judgement::first(now, self.rate, failing));
                }
                self.step_up(now, DOUBLES_EVERY, 2.0, |_| true);
            }
        }
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
        self.step = Step::new(now);
    }

    /// Whether enough of the rate was asked for in this step to show something.
    fn is_used(&self, now: Duration) -> bool {
        let lasted = now.saturating_sub(self.step.since).as_secs_f64();
        f64::from(self.step.granted) >= self.rate * lasted * USED
    }

    /// Raises the rate if enough of it was used and the step was good. When a step is over, returns whether it was good.
    fn step_up(&mut self, now: Duration, every: Duration, by: f64, is_good: impl FnOnce(Step) -> bool) -> Option<bool> {
        let lasted = now.saturating_sub(self.step.since);
        if lasted < every {
            return None;
        }
        let used = self.is_used(now);
        let step = std::mem::replace(&mut self.step, Step::new(now));
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
