//! The invariants of every run.

mod attempts;
mod healing;
mod restarts;

use std::collections::BTreeMap;
use std::time::Duration;

use crate::budget;
use crate::floor;
use crate::plan::{BASE, CALM_FROM, MISSPELT, Plan, TOOL};
use crate::refusals;
use crate::registry::{Behaviour, PullRecord, RETRY_AFTER};
use crate::story::Story;

/// An invariant that a finding belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Invariant {
    /// Among nodes that reach a leader, no sliding second sees more pulls than the budget allows.
    Budget,
    /// A lease has one holder for an entry and epoch, and no node asks without one: failing requests do not grow with the fleet.
    OneLease,
    /// Without a newer failure, refusals end after the next attempt and one probe deadline.
    NextAttempt,
    /// After healing every wanted image arrives; once one node has it, only the budget delays the others.
    Healing,
    /// Sick and lying nodes do not block others.
    OthersUnharmed,
    /// A restarted node knows what the fleet knows.
    KeptAtRestart,
    /// An attempt that was neither elected nor released comes no sooner than by kubelet's rule.
    Floor,
    /// Nodes with another or a wrong login neither block others nor stop them from sharing.
    Logins,
    /// Each refusal names the attempt that failed.
    Explained,
}

/// A figure of a run, and its upper bound.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    pub invariant: Invariant,
    pub what: &'static str,
    pub value: f64,
    pub at_most: f64,
    /// The node and time to look at.
    pub at: Option<(usize, Duration)>,
}

impl Finding {
    pub fn is_broken(&self) -> bool {
        self.value > self.at_most
    }
}

/// How many seconds sick and lying nodes may delay others. In addition, nodes that are sick or want a missing image are released with the
/// others, and use permits too.
const OTHERS_WAIT_AT_MOST: f64 = 10.0;
/// How long a node that was away may take until it knows what the fleet knows: a snapshot after 2 s, and one more round of the
/// registrar, which may be new.
const KNOWS_AGAIN: Duration = Duration::from_secs(20);
/// The seconds in which a lead or a probe must have a result.
const PROBE_DEADLINE: f64 = 15.0;
/// The seconds after the turn of the next node has come: its turn, its lease and permit, and its usual answer, for which others wait.
const TURN_TO_ANSWER: f64 = 0.1 + 0.1 + USUAL_ANSWER;
/// The seconds that a manifest and the first blob usually take.
const USUAL_ANSWER: f64 = 0.1;
/// The seconds that a pull usually takes.
const USUAL_PULL: f64 = 0.4;
const FIRST_PULLS: usize = 3;

/// All findings about a run.
pub fn check(story: &Story) -> Vec<Finding> {
    let mut findings = budget::check(story);
    findings.extend(attempts::one_lease(story));
    findings.push(attempts::next_attempt(story));
    findings.extend(healing::healing(story));
    findings.push(others_unharmed(story));
    findings.push(restarts::kept_at_restart(story));
    findings.extend(logins(story));
    findings.push(floor(story));
    findings.push(explained(story));
    findings
}

/// The finding about kubelet's rule, which holds for every plan.
pub fn floor(story: &Story) -> Finding {
    let too_soon = floor::too_soon(story);
    let what = "attempts quicker than kubelet's rule";
    Finding { invariant: Invariant::Floor, what, value: too_soon.len() as f64, at_most: 0.0, at: too_soon.first().copied() }
}

fn explained(story: &Story) -> Finding {
    let unexplained = refusals::unexplained(story);
    let (at, what) = (unexplained.first().map(|refusal| (refusal.node, refusal.at)), "refusals that name no attempt that failed");
    Finding { invariant: Invariant::Explained, what, value: unexplained.len() as f64, at_most: 0.0, at }
}

/// The attempt of each node that delivered an image. Checks use the time when it began, because the duration of answers and layers
/// depends only on the registry.
fn served_attempts<'a>(story: &'a Story, image: &str) -> BTreeMap<usize, &'a PullRecord> {
    let served = story.asked.iter().filter(|one| one.image == image && one.got == Behaviour::Serves);
    served.filter(|one| story.present_since.contains_key(&(one.node, image.to_owned()))).map(|one| (one.node, one)).collect()
}

/// The seconds that a budget takes to reach its cap: it begins at a twentieth of it, at least at 5 a second, and doubles every 0.4 s once
/// the registry has answered, which usually takes less than 2 s.
fn begins_low(story: &Story) -> f64 {
    let cap = story.budget.per_second;
    let first = (cap / 20.0).max(5.0).min(cap);
    if first < cap { 2.0 + (cap / first).log2().ceil() * 0.4 } else { 0.0 }
}

/// The seconds by which the first pulls took longer than usual: until three pulls have shown no limits, a budget's leader grants one at a
/// time.
fn slow_first_pulls(story: &Story, image: &str, from: Duration) -> f64 {
    let served = story.asked.iter().filter(|one| one.at >= from && one.image == image && one.got == Behaviour::Serves);
    let took = served.take(FIRST_PULLS).filter_map(|one| Some(one.over?.saturating_sub(one.at).as_secs_f64()));
    (took.sum::<f64>() - FIRST_PULLS as f64 * USUAL_PULL).max(0.0)
}

/// How long, between `from` and `to`, at least `at_once` of these attempts were running.
fn full<'a>(at_once: usize, from: Duration, to: Duration, attempts: impl Iterator<Item = &'a PullRecord>) -> Duration {
    let ends = attempts.filter_map(|one| Some([(one.at, 1_i64), (one.over?, -1)]));
    let mut ends: Vec<(Duration, i64)> = ends.flatten().collect();
    ends.sort_unstable();
    let (mut under_way, mut since, mut all_out) = (0, from, Duration::ZERO);
    for (at, change) in ends {
        let at = at.clamp(from, to);
        if at_once > 0 && under_way >= at_once as i64 {
            all_out += at - since;
        }
        (under_way, since) = (under_way + change, at);
    }
    all_out
}

fn others_unharmed(story: &Story) -> Finding {
    let well = story.wanted.iter().filter(|((node, image), _)| *image == TOOL && !story.plan.sick.contains(node));
    let attempts = served_attempts(story, TOOL);
    let waited = well.map(|((node, _), wanted)| match attempts.get(node) {
        Some(attempt) => (attempt.at.saturating_sub(*wanted).as_secs_f64(), *node, *wanted),
        None => (f64::INFINITY, *node, *wanted),
    });
    let (value, node, wanted) = waited.max_by(|one, other| one.0.total_cmp(&other.0)).unwrap_or_default();
    let what = "seconds that a healthy node waited";
    let misspelt = story.wanted.keys().filter(|(_, image)| MISSPELT.contains(image)).count();
    let at_most = OTHERS_WAIT_AT_MOST + (story.plan.sick.len() + misspelt) as f64 / story.budget.per_second + begins_low(story);
    Finding { invariant: Invariant::OthersUnharmed, what, value, at_most, at: Some((node, wanted)) }
}

fn logins(story: &Story) -> Vec<Finding> {
    let Story { plan, wanted, .. } = story;
    let served = served_attempts(story, BASE);
    let waits: BTreeMap<usize, f64> = (0..plan.nodes)
        .filter_map(|node| {
            let began = wanted.get(&(node, BASE))?;
            let attempt = served.get(&node);
            Some((node, attempt.map_or(f64::INFINITY, |one| one.at.saturating_sub(*began).as_secs_f64())))
        })
        .collect();
    let right = waits.iter().filter(|(node, _)| !plan.rotated.contains(node)).map(|(_, wait)| *wait).fold(0.0, f64::max);
    let denied = story.asked.iter().filter(|one| one.got == Behaviour::Denied && one.at < CALM_FROM).count() as f64;
    vec![
        Finding {
            invariant: Invariant::Logins,
            what: "seconds that a right login waited",
            value: right,
            at_most: right_login_waits(plan) + slowest_answer(story, BASE) + slow_first_pulls(story, BASE, Duration::ZERO),
            at: None,
        },
        // Attempts come at once, after 60 s and then every 300 s, for each image that needs a login; and once more for a restart.
        Finding {
            invariant: Invariant::Logins,
            what: "401s to wrong logins",
            value: denied,
            at_most: plan.rotated.len() as f64 * if plan.app.contains("private") { 12.0 } else { 6.0 },
            at: None,
        },
    ]
}

/// The most seconds beyond the usual answer that the registry took for manifest and first blob, or for a refusal, of an image: other
/// nodes wait as long for the node that leads.
fn slowest_answer(story: &Story, image: &str) -> f64 {
    let of_image = story.asked.iter().filter(|one| one.image == image && one.at < CALM_FROM);
    let took = of_image.filter_map(|one| Some(one.answered.or(one.over)?.saturating_sub(one.at).as_secs_f64()));
    (took.fold(0.0, f64::max) - USUAL_ANSWER).max(0.0)
}

/// The seconds that a node with a right login may wait: for a leading node with a wrong login as for one without an answer, and then for
/// the turn of the next node. Turns are longer in a larger fleet; the bound of 2 s is for 50 nodes.
fn right_login_waits(plan: &Plan) -> f64 {
    let turns = |nodes: usize| (0.002 * nodes as f64).min(0.5);
    2.0 + TURN_TO_ANSWER + (turns(plan.nodes) - turns(50)).max(0.0)
}

/// Whether a node was away, or has come back so lately that it may not know everything yet.
pub fn away(story: &Story, node: usize, at: Duration) -> bool {
    story.plan.away.iter().any(|(of, from, to)| *of == node && *from <= at && at <= *to + KNOWS_AGAIN)
}

/// The seconds of the last and longest step between two attempts.
fn longest_round(outage: Behaviour) -> f64 {
    match outage {
        Behaviour::NotFound => 60.0,
        Behaviour::Limited => RETRY_AFTER.as_secs_f64() + 2.0,
        _ => 8.0,
    }
}

fn shortest_round(outage: Behaviour) -> f64 {
    match outage {
        Behaviour::NotFound => 40.0,
        Behaviour::Limited => 20.0,
        _ => 8.0,
    }
}
