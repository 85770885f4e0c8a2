//! Who attempts, and how often: no node without a lease during an outage, and always some node before long.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Finding, Invariant, PROBE_DEADLINE, away, full, longest_round, shortest_round};
use crate::faulty_network::Line;
use crate::leases::WITHOUT_LEASE_WITHIN;
use crate::plan::{Act, CALM_FROM, HEALS_AT};
use crate::registry::{Behaviour, PullRecord, RETRY_AFTER};
use crate::story::Story;

/// 40 failures in a row (the tracker's `FAILURES_BY_CHANCE`), and six by kubelet's rule in the calm time.
const SICK_ASKS_AT_MOST: f64 = 40.0 + 6.0;
/// The seconds until the next node asks: 1 s for its turn, 0.75 s for three answers of the bus, and 3 s if the budget's leader died, in
/// which the next leader learns which nodes pull and grants no permit.
const NEXT_NODE_ASKS_WITHIN: f64 = 1.0 + 0.75 + 3.0;
/// How long a budget grants no permits if its leader dies or is cut off: it leads for 3 s more, and the next leader learns for 3 s.
const LOST_LEADER: Duration = Duration::from_secs(3 + 3);
/// The seconds of the longest restart of the server, and those that its nodes take to reconnect.
const NO_SERVER: f64 = 12.0 + 3.0;

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

pub(super) fn one_lease(story: &Story) -> [Finding; 4] {
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

/// The longest time between two attempts of the fleet, without the time in which there was no server: then no leases could be granted.
/// Nodes that can send and do not receive take a lease without knowing it, so after the first term such a node may take the next one; nodes
/// wait for no more than two terms (invariant 4).
pub(super) fn next_attempt(story: &Story) -> Finding {
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
    // Without any attempt, the whole time counts.
    let none = ((heals - story.plan.fails_at).as_secs_f64(), 0, story.plan.fails_at);
    let (value, node, since) = waits.max_by(|one, other| one.0.total_cmp(&other.0)).unwrap_or(none);
    let at_most = longest_round(story.plan.outage) + PROBE_DEADLINE + NEXT_NODE_ASKS_WITHIN;
    Finding { invariant: Invariant::NextAttempt, what: "seconds without an attempt", value, at_most, at: Some((node, since)) }
}

/// When the server restarted, if it did: all lines were cut at the same time.
fn no_server(story: &Story) -> Option<(Duration, Duration)> {
    let all = |from: Duration, to: Duration| story.plan.away.iter().filter(|(_, began, ended)| (*began, *ended) == (from, to)).count();
    story.plan.away.iter().map(|(_, from, to)| (*from, *to)).find(|(from, to)| all(*from, *to) == story.plan.nodes)
}
