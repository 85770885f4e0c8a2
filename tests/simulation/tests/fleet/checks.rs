//! The invariants of every run.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use crate::budget;
use crate::faulty_bus::Line;
use crate::floor;
use crate::leases::WITHOUT_LEASE_WITHIN;
use crate::plan::{Act, BASE, CALM_FROM, HEALS_AT, MISSPELT, Plan, TOOL};
use crate::refusals;
use crate::registry::{Behaviour, PullRecord, RETRY_AFTER};
use crate::world::Story;

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
/// 40 failures in a row (the tracker's `FAILURES_BY_CHANCE`), and six by kubelet's rule in the calm time.
const SICK_ASKS_AT_MOST: f64 = 40.0 + 6.0;
/// How long a node that was away may take until it knows what the fleet knows: a snapshot after 2 s, and one more round of the
/// registrar, which may be new.
const KNOWS_AGAIN: Duration = Duration::from_secs(20);
/// An attempt within this time of a node's start counts as "at once". It is longer than a starting node waits for what the fleet knows.
const AT_ONCE: Duration = Duration::from_millis(700);
/// The seconds in which a lead or a probe must have a result.
const PROBE_DEADLINE: f64 = 15.0;
/// The seconds until the next node asks: 1 s for its turn, 0.75 s for three answers of the bus, and 3 s if the budget's leader died, in
/// which the next leader learns which nodes pull and grants no permit.
const NEXT_NODE_ASKS_WITHIN: f64 = 1.0 + 0.75 + 3.0;
/// The seconds after the turn of the next node has come: its turn, its lease and permit, and its usual answer, for which others wait.
const TURN_TO_ANSWER: f64 = 0.1 + 0.1 + USUAL_ANSWER;
/// The seconds that a manifest and the first blob usually take.
const USUAL_ANSWER: f64 = 0.1;
/// The seconds that a pull usually takes.
const USUAL_PULL: f64 = 0.4;
const FIRST_PULLS: usize = 3;
/// How long a budget grants no permits if its leader dies or is cut off: it leads for 3 s more, and the next leader learns for 3 s.
const LOST_LEADER: Duration = Duration::from_secs(3 + 3);
/// The seconds of the longest restart of the server, and those that its nodes take to reconnect.
const NO_SERVER: f64 = 12.0 + 3.0;

/// All findings about a run.
pub fn check(story: &Story) -> Vec<Finding> {
    let mut findings = budget::check(story);
    findings.extend(one_lease(story));
    findings.push(next_attempt(story));
    findings.extend(healing(story));
    findings.push(others_unharmed(story));
    findings.push(kept_at_restart(story));
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

/// Requests that failed because of the outage, of nodes that are connected and know what the fleet knows.
fn failing(story: &Story) -> impl Iterator<Item = &PullRecord> {
    let of_outage = |one: &&PullRecord| one.image == story.plan.app && one.got == story.plan.outage && !is_sick(story, one);
    story.asked.iter().filter(of_outage).filter(|one| !away(story, one.node, one.at))
}

/// Whether a request came from a node that reached nothing, while the registry was healthy.
fn is_sick(story: &Story, one: &PullRecord) -> bool {
    one.at >= CALM_FROM && story.plan.sick.contains(&one.node)
}

/// Checks how often a sick node asks for one image: until it has failed this often, it cannot tell its own fault from chance; then it uses
/// kubelet's rule.
fn of_sick(story: &Story) -> Finding {
    let mut failed: BTreeMap<(usize, &str), Vec<Duration>> = BTreeMap::new();
    for one in story.asked.iter().filter(|one| is_sick(story, one)) {
        failed.entry((one.node, &one.image)).or_default().push(one.at);
    }
    let most = failed.into_iter().max_by_key(|(_, asked)| asked.len());
    let (value, at) = most.map_or((0, None), |((node, _), asked)| (asked.len(), asked.last().map(|at| (node, *at))));
    let what = "requests of one sick node for one image";
    Finding { invariant: Invariant::OneLease, what, value: value as f64, at_most: SICK_ASKS_AT_MOST, at }
}

fn one_lease(story: &Story) -> [Finding; 4] {
    let lasts = HEALS_AT.saturating_sub(story.plan.fails_at).as_secs_f64();
    // One for each round; while messages are lost, a few more nodes go ahead without an answer of the bus, and a wiped store starts empty.
    let most = 20.0 + 2.0 * lasts / shortest_round(story.plan.outage);
    let (count, twice) = (failing(story).count(), story.leases.held_twice());
    let without = failing(story)
        .filter(|one| !story.leases.may_attempt(one.node, one.at) && !held_by_retry_after(story, one))
        .filter(|one| !held_by_lost_leader(story, one) && !held_by_full_budget(story, one));
    let without: Vec<_> = without.map(|one| (one.node, one.at)).collect();
    let found = |what, value: usize, at_most, at| Finding { invariant: Invariant::OneLease, what, value: value as f64, at_most, at };
    [
        found("failing requests", count, most, None),
        found("leases held by two nodes at once", twice.len(), 0.0, twice.first().copied()),
        found("failing requests without a lease", without.len(), 0.0, without.first().copied()),
        of_sick(story),
    ]
}

/// Whether a node that went ahead without an answer of the bus had to wait for its permit because of a registry's Retry-After.
fn held_by_retry_after(story: &Story, one: &PullRecord) -> bool {
    let limited = story.asked.iter().filter(|other| other.got == Behaviour::Limited && other.budget() == one.budget() && other.at < one.at);
    limited
        .map(|other| (other.at, other.at + RETRY_AFTER))
        .any(|(from, to)| one.at <= to + WITHOUT_LEASE_WITHIN && story.leases.was_unanswered(one.node, from, to))
}

/// Whether such a node had to wait because its budget had lost the leader.
fn held_by_lost_leader(story: &Story, one: &PullRecord) -> bool {
    let from = one.at.saturating_sub(WITHOUT_LEASE_WITHIN + LOST_LEADER);
    let lost = |(_, began, _): &(usize, Duration, Duration)| (from..=one.at).contains(began);
    story.leases.was_unanswered(one.node, from, one.at) && story.plan.away.iter().any(lost)
}

/// Whether such a node had to wait because as many pulls were running as the budget allows at once; they end after 10 s if the registry
/// does not answer. While any node is silent, one permit fewer is granted.
fn held_by_full_budget(story: &Story, one: &PullRecord) -> bool {
    let Some(asked) = story.leases.last_unanswered(one.node, one.at) else { return false };
    let same = |other: &&PullRecord| other.budget() == one.budget();
    one.at <= asked + WITHOUT_LEASE_WITHIN + full(story.budget.at_once.saturating_sub(1), asked, one.at, story.asked.iter().filter(same))
}

/// The longest time between two attempts of the fleet, without the time in which there was no server: then no leases could be granted. Nodes
/// that can send and do not receive take a lease without knowing it, so after the first term such a node may take the next one; nodes wait
/// for no more than two terms (invariant 4).
fn next_attempt(story: &Story) -> Finding {
    let whole = matches!(story.plan.outage, Behaviour::Limited | Behaviour::Refused | Behaviour::Hang);
    let of_outage = |one: &&PullRecord| (whole || one.image == story.plan.app) && one.got != Behaviour::Denied;
    let down = no_server(story);
    let heals = HEALS_AT + Duration::from_secs_f64(longest_round(story.plan.outage) + PROBE_DEADLINE);
    let attempts: Vec<&PullRecord> =
        story.asked.iter().filter(of_outage).filter(|one| one.at >= story.plan.fails_at && one.at <= heals).collect();
    // The time after the last attempt counts too, because a fleet that gave up would not attempt again.
    let ends = attempts.iter().skip(1).map(|next| (next.at, next.node)).chain(attempts.last().map(|last| (heals, last.node)));
    let waits = attempts.iter().zip(ends).map(|(one, (until, node))| {
        let one_way = story.plan.acts.iter().any(|(at, act)| matches!(act, Act::Line(_, Line::SendOnly)) && (one.at..until).contains(at));
        let without = if down.is_some_and(|(from, to)| one.at < to && from < until) { NO_SERVER } else { 0.0 };
        let without = without + if one_way { PROBE_DEADLINE } else { 0.0 };
        ((until - one.at).as_secs_f64() - without, node, one.at)
    });
    let (value, node, since) = waits.max_by(|one, other| one.0.total_cmp(&other.0)).unwrap_or_default();
    let at_most = longest_round(story.plan.outage) + PROBE_DEADLINE + NEXT_NODE_ASKS_WITHIN;
    Finding { invariant: Invariant::NextAttempt, what: "seconds without an attempt", value, at_most, at: Some((node, since)) }
}

/// The attempt of each node that delivered an image. Checks use the time when it began, because the duration of answers and layers
/// depends only on the registry.
fn served_attempts<'a>(story: &'a Story, image: &str) -> BTreeMap<usize, &'a PullRecord> {
    let served = story.asked.iter().filter(|one| one.image == image && one.got == Behaviour::Serves);
    served.filter(|one| story.present_since.contains_key(&(one.node, image.to_owned()))).map(|one| (one.node, one)).collect()
}

/// When the server restarted, if it did: all lines were cut at the same time.
fn no_server(story: &Story) -> Option<(Duration, Duration)> {
    let all = |from: Duration, to: Duration| story.plan.away.iter().filter(|(_, began, ended)| (*began, *ended) == (from, to)).count();
    story.plan.away.iter().map(|(_, from, to)| (*from, *to)).find(|(from, to)| all(*from, *to) == story.plan.nodes)
}

fn healing(story: &Story) -> Vec<Finding> {
    let Story { plan, budget, .. } = story;
    let attempts = served_attempts(story, plan.app);
    let wants = (0..plan.nodes).filter(|node| !(plan.app.contains("private") && plan.rotated.contains(node)));
    let served = |node: usize| attempts.get(&node).map(|one| one.at.as_secs_f64());
    let heals = HEALS_AT.as_secs_f64();
    let waits: Vec<(usize, f64)> = wants.map(|node| (node, served(node).unwrap_or(f64::INFINITY) - heals)).collect();
    let slowest = waits.iter().max_by(|one, other| one.1.total_cmp(&other.1)).map(|(node, _)| (*node, HEALS_AT));
    let late: Vec<f64> = waits.into_iter().map(|(_, wait)| wait).collect();
    let answers = attempts.values().filter_map(|one| one.answered).map(|at| at.as_secs_f64() - heals);
    let first = answers.filter(|after| *after > 0.0).fold(f64::INFINITY, f64::min);
    let last = late.iter().copied().fold(0.0, f64::max);
    let release = plan.nodes as f64 / (budget.per_second * 0.9);
    let held = (last - first).max(0.0);
    vec![
        Finding {
            invariant: Invariant::Healing,
            what: "seconds until all pull it",
            value: last,
            at_most: longest_round(plan.outage) + PROBE_DEADLINE + release + 5.0,
            at: slowest,
        },
        Finding {
            invariant: Invariant::Healing,
            what: "seconds from the first answer to the last attempt",
            value: held,
            at_most: release + all_permits_out(story) + slow_first_pulls(story, plan.app, HEALS_AT) + begins_low(story) + 0.9,
            at: slowest,
        },
    ]
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

/// The seconds in which all permits were in use while the fleet healed, so that none could be granted.
fn all_permits_out(story: &Story) -> f64 {
    let healing = story.asked.iter().filter(|one| one.at >= HEALS_AT && one.at < CALM_FROM && one.image == story.plan.app);
    full(story.budget.at_once, HEALS_AT, CALM_FROM, healing).as_secs_f64()
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

fn kept_at_restart(story: &Story) -> Finding {
    let (mut rash, mut at) = (0, None);
    for (node, came_back) in &story.restarts {
        let disturbed = was_disturbed(story, *node, *came_back..=*came_back + AT_ONCE);
        if disturbed || lately_cut(story, *node, *came_back) || lately_wiped(story, *came_back) {
            continue;
        }
        if asks_what_is_known(story, *node, *came_back) {
            (rash, at) = (rash + 1, Some((*node, *came_back)));
        }
    }
    let what = "nodes that came back and asked for a failure known to the fleet";
    Finding { invariant: Invariant::KeptAtRestart, what, value: f64::from(rash), at_most: 0.0, at }
}

/// Whether a message of this node was lost or late in this time.
fn was_disturbed(story: &Story, node: usize, meanwhile: RangeInclusive<Duration>) -> bool {
    let from = story.disturbed.partition_point(|(at, _)| at < meanwhile.start());
    story.disturbed[from..].iter().take_while(|(at, _)| meanwhile.contains(at)).any(|(_, of)| *of == node)
}

/// Whether a restarted node asks at once for an image for which another node's attempt has just failed, before the next attempt is due.
/// An attempt does not count if other nodes cannot know its result: its node has had no line to the server since, or was suspended with
/// clearance, because a node discards results that come after its lease has run out.
fn asks_what_is_known(story: &Story, node: usize, came_back: Duration) -> bool {
    let of_app = |one: &&PullRecord| one.image == story.plan.app && one.got == story.plan.outage;
    let asks = story.asked.iter().filter(of_app).find(|one| one.node == node && one.at >= came_back);
    asks.filter(|one| one.at <= came_back + AT_ONCE).is_some_and(|own| {
        let round = Duration::from_secs_f64(due_after(story.plan.outage));
        let is_unknown = |one: &PullRecord| {
            let cut = |from: Duration, to: Duration| from <= one.at && own.at <= to;
            let suspended = |to: Duration| to <= one.at && one.at <= to + AT_ONCE;
            story.plan.away.iter().any(|(of, from, to)| *of == one.node && (cut(*from, *to) || suspended(*to)))
        };
        story.asked.iter().filter(of_app).any(|one| one.at < own.at && own.at < one.at + round && !is_unknown(one))
    })
}

fn lately_cut(story: &Story, node: usize, came_back: Duration) -> bool {
    let cut = |of: usize, from: Duration, to: Duration| of == node && from < came_back && came_back < to + KNOWS_AGAIN && to != came_back;
    story.plan.away.iter().any(|(of, from, to)| cut(*of, *from, *to))
}

/// Whether the server has lost the reports so lately that the nodes have not yet been asked to publish them again.
fn lately_wiped(story: &Story, came_back: Duration) -> bool {
    let wiped = |at: Duration| at <= came_back && came_back < at + KNOWS_AGAIN;
    story.plan.acts.iter().any(|(at, act)| *act == Act::Wipe("reports") && wiped(*at))
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

/// The seconds after which the fleet may try again: jitter shortens a step by up to a tenth, but lengthens a Retry-After.
fn due_after(outage: Behaviour) -> f64 {
    if outage == Behaviour::Limited { shortest_round(outage) } else { shortest_round(outage) * 0.9 }
}

fn shortest_round(outage: Behaviour) -> f64 {
    match outage {
        Behaviour::NotFound => 40.0,
        Behaviour::Limited => 20.0,
        _ => 8.0,
    }
}
