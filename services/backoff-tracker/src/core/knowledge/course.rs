//! When an entry is tried next: counted from its last probe.
//!
//! Whoever fails for itself says that a topic fails, and puts nothing off: neither a rack that is cut off and reports one by one, nor one
//! node that says the same again and again. What counts is an attempt that was made for all, by a lease, when the entry was due.

use std::time::Duration;

use contract::NodeName;

use super::cadence;
use super::entry::{Eyes, Heard, OUTLIVES, PROBE_DEADLINE};
use super::topic::{Reach, Topic};

/// A planted fault doubles delays so often: to hours.
const LAST_DOUBLING: u32 = 12;
/// Dates of other nodes differ by what their messages took: a probe that began so much before its time is one.
const INEXACT: Duration = Duration::from_secs(1);
/// The latest that a probe begins which others want, if nothing else is under way: who reported sits back, asks for the lease, and waits
/// for a permit. By what one node says alone, nothing is put off for longer.
const LATEST: Duration = Duration::from_secs(5);
/// One node's success makes an entry due once in so long.
const EARLY_ONCE_IN: Duration = Duration::from_secs(60);

/// How an entry went on.
#[derive(Debug)]
pub(super) struct Course<'a> {
    /// The last probe, or what opened the entry.
    pub(super) from: &'a Heard,
    pub(super) step: u32,
    pub(super) next_try: Duration,
    began: Duration,
    /// When somebody last tried before the time.
    early_at: Option<Duration>,
}

/// An attempt for all, or the first failure of a node: when it began.
#[derive(Clone, Copy)]
struct Try<'a> {
    at: Duration,
    by: &'a Heard,
    step: u32,
}

impl<'a> Course<'a> {
    /// Goes through the failures that stand, at least one.
    pub(super) fn of(topic: &Topic, standing: &[&'a Heard], eyes: Eyes<'_>) -> Self {
        let rests = Rests { topic, standing, vouched: step(standing), endless: eyes.endless };
        let opening = rests.opening();
        let probe = |heard: &&'a Heard| rests.probe(heard, eyes.postponed_by_anybody).filter(|probe| probe.at > opening.at);
        let mut probes: Vec<Try<'_>> = standing.iter().filter_map(probe).collect();
        probes.sort_unstable_by_key(|one| (one.at, &one.by.report.reporter));
        let (mut last, mut latest_known) = (opening, None);
        for probe in probes {
            let next = rests.until(&last);
            if eyes.postponed_by_anybody || probe.at + INEXACT.min((next - last.at) / 2) >= next || is_early(probe.by) {
                let forgotten = probe.at > next + OUTLIVES;
                // Who probed before may hold a slot of a registry that does not answer for as long as its lease lasts.
                let latest = (next + LATEST).max(last.at + PROBE_DEADLINE + INEXACT);
                (last, latest_known) = (probe, (!forgotten).then_some(latest));
            }
        }
        // What one node says alone is not put off by it for ever; what this node did it knows.
        let is_own = last.by.report.reporter == *eyes.node;
        let at = latest_known.filter(|_| !is_own && !eyes.postponed_by_anybody).map_or(last.at, |latest| last.at.min(latest));
        let counted = Try { at, ..last };
        let early = standing.iter().filter(|heard| is_early(heard)).filter_map(|heard| heard.elected_at).max();
        Self { from: last.by, step: rests.step_of(&last), next_try: rests.until(&counted), began: last.at, early_at: early }
    }

    /// Whether what one node has seen makes the entry due at once.
    pub(super) fn may_be_early(&self, success: Duration) -> bool {
        success > self.began && self.early_at.is_none_or(|early| success >= early + EARLY_ONCE_IN)
    }

    /// The last two tries of different nodes, by which a wait begins anew: those for all, where there are any.
    pub(super) fn tries(&self, standing: &[&Heard]) -> Vec<(Duration, NodeName)> {
        let mut tries: Vec<(Duration, &NodeName)> =
            standing.iter().filter_map(|heard| Some((heard.elected_at?, &heard.report.reporter))).collect();
        if tries.is_empty() {
            tries.push((self.from.date, &self.from.report.reporter));
        }
        tries.sort_unstable();
        tries.into_iter().rev().take(2).map(|(at, by)| (at, by.clone())).collect()
    }
}

fn is_early(heard: &Heard) -> bool {
    heard.claim.is_some_and(|claim| claim.early)
}

/// How long a topic rests, by what all say together.
struct Rests<'s, 'a> {
    topic: &'s Topic,
    standing: &'s [&'a Heard],
    vouched: u32,
    endless: bool,
}

impl<'a> Rests<'_, 'a> {
    /// What made it an entry: the failure that was one too many, or the first one where one is enough.
    fn opening(&self) -> Try<'a> {
        let mut firsts: Vec<&'a Heard> = self.standing.to_vec();
        firsts.sort_unstable_by_key(|heard| (heard.failing_since, &heard.report.reporter));
        let needed = if let Reach::Nodes(needed) = self.topic.about().reach() { needed } else { 1 };
        let by = firsts[needed.clamp(1, firsts.len()) - 1];
        // Who tried for all knew what step that was.
        let step = by.claim.filter(|_| by.elected_at == Some(by.failing_since)).map_or(1, |claim| claim.step);
        Try { at: by.failing_since, by, step }
    }

    fn probe(&self, heard: &'a Heard, by_anybody: bool) -> Option<Try<'a>> {
        let at = if by_anybody { heard.date } else { heard.elected_at? };
        Some(Try { at, by: heard, step: heard.claim.map_or(1, |claim| claim.step) })
    }

    fn step_of(&self, last: &Try<'_>) -> u32 {
        last.step.min(self.vouched)
    }

    /// Until when the topic rests after this: as the registry asked when two nodes say so, and as this one alone says as far as that is no
    /// longer than without.
    fn until(&self, last: &Try<'_>) -> Duration {
        let step = self.step_of(last);
        let unasked = cadence::delay(self.topic, step, None);
        let asked = |asked| cadence::delay(self.topic, step, Some(asked));
        let vouched = self.retry_after(last).map(asked);
        let alone = last.by.claim.and_then(|claim| claim.retry_after).map(|after| asked(after).min(unasked));
        let doubled = if self.endless { 1 << step.min(LAST_DOUBLING) } else { 1 };
        last.at + vouched.max(alone).unwrap_or(unasked) * doubled
    }

    /// What the registry asked for, if it said so to two nodes or if only one has asked it: counted from this attempt.
    fn retry_after(&self, last: &Try<'_>) -> Option<Duration> {
        let until = |heard: &&Heard| heard.claim?.retry_after.map(|asked| heard.date + asked.min(cadence::LONGEST_RETRY_AFTER));
        let mut until: Vec<Duration> = self.standing.iter().filter_map(until).collect();
        until.sort_unstable();
        let vouched = if self.standing.len() > 1 { until.iter().rev().nth(1) } else { until.last() };
        vouched.map(|until| until.saturating_sub(last.at)).filter(|left| !left.is_zero())
    }
}

/// The highest step that two nodes vouch for, or one more: a single node's claim moves it by one at most.
fn step(standing: &[&Heard]) -> u32 {
    let (mut highest, mut second) = (0, 0);
    for claim in standing.iter().filter_map(|heard| heard.claim).map(|claim| claim.step) {
        second = second.max(claim.min(highest));
        highest = highest.max(claim);
    }
    if standing.len() > 1 { highest.min(second.saturating_add(1)) } else { highest }
}
