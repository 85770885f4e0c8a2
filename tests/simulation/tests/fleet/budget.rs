//! Checks that the fleet keeps to its budgets: separately for the permits of leaders and for nodes that reach no leader.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::checks::{Finding, Invariant};
use crate::plan::Act;
use crate::quota::HUB;
use crate::registry::{PermitFrom, PullRecord};
use crate::story::Story;

const SECOND: Duration = Duration::from_secs(1);
/// How long a node may still pull without a leader after its line is up again: 1 s of the line, three attempts of the bus, and the
/// lease of the last leader.
const REACHES_AGAIN: Duration = Duration::from_secs(5);

/// The additional time if a node crashed meanwhile, which may have been the new leader: its lease of 3 s, and 3 s in which the next
/// leader learns.
const LOST_AGAIN: Duration = Duration::from_secs(3 + 3);

/// How long before a pull a node may have learned how many nodes are alive.
const LEARNED_WITHIN: Duration = Duration::from_secs(60);

/// The findings about the budgets of a run.
pub fn check(story: &Story) -> Vec<Finding> {
    let mut budgets: BTreeMap<&str, Vec<&PullRecord>> = BTreeMap::new();
    for one in &story.asked {
        budgets.entry(one.budget()).or_default().push(one);
    }
    let worst = |what, at_most: f64, of: &dyn Fn(&[&PullRecord]) -> Worst| {
        let (value, at) = budgets.values().map(|asked| of(asked)).max_by_key(|(value, _)| *value).unwrap_or_default();
        Finding { invariant: Invariant::Budget, what, value: value as f64, at_most, at }
    };
    let mut findings = vec![
        worst("pulls in a second by leaders' permits", story.budget.per_second.ceil(), &|asked| in_a_second(&led(asked))),
        worst("pulls of a node without a leader that overlap another one beyond its share", 0.0, &|asked| {
            overlapping_without_leader(story, asked)
        }),
        worst("pulls without a leader of nodes that reach the bus", 0.0, &|asked| needlessly_without_leader(story, asked)),
        worst("pulls without a permit", 0.0, &|asked| counted(asked.iter().filter(|one| one.permit_from == PermitFrom::None))),
    ];
    if let Some(quota) = story.quota {
        findings.push(worst("pulls in a window of a quota by leaders' permits", quota as f64, &|asked| in_a_window(&led(asked))));
        let without = (0..story.plan.nodes).filter(|node| !story.present_since.contains_key(&(*node, HUB.to_owned()))).count();
        let what = "nodes that a quota kept from their image";
        findings.push(Finding { invariant: Invariant::Budget, what, value: without as f64, at_most: 0.0, at: None });
    }
    if story.budget.at_once > 0 {
        findings.push(worst("pulls at once by leaders' permits", story.budget.at_once as f64, &|asked| at_once(&led(asked))));
    }
    findings
}

/// The pulls with a leader's permit.
fn led<'a>(asked: &[&'a PullRecord]) -> Vec<&'a PullRecord> {
    asked.iter().filter(|one| one.permit_from == PermitFrom::Leader).copied().collect()
}

/// The highest count, and the node and time where it occurred.
type Worst = (usize, Option<(usize, Duration)>);

/// The most pulls that began in any sliding second.
fn in_a_second(asked: &[&PullRecord]) -> Worst {
    let (mut most, mut first) = ((0, None), 0);
    for (index, one) in asked.iter().enumerate() {
        while asked[first].at + SECOND <= one.at {
            first += 1;
        }
        if index - first + 1 > most.0 {
            most = (index - first + 1, Some((one.node, one.at)));
        }
    }
    most
}

/// The most pulls in one window of a quota.
fn in_a_window(asked: &[&PullRecord]) -> Worst {
    let mut windows: BTreeMap<u64, Worst> = BTreeMap::new();
    for one in asked {
        let Some(window) = one.window else { continue };
        let (count, last) = windows.entry(window).or_default();
        (*count, *last) = (*count + 1, Some((one.node, one.at)));
    }
    windows.into_values().max_by_key(|(count, _)| *count).unwrap_or_default()
}

/// The most pulls in flight at any time, without those whose permit ran out.
fn at_once(asked: &[&PullRecord]) -> Worst {
    let mut ends: Vec<(Duration, bool, usize)> = Vec::new();
    for one in asked {
        let over = one.over.into_iter().chain(one.ran_out).min();
        ends.push((one.at, true, one.node));
        ends.extend(over.map(|over| (over, false, one.node)));
    }
    // At the same instant, ends are sorted before begins: an ending pull makes room for a beginning one.
    ends.sort_unstable();
    let (mut now, mut most) = (0_usize, (0, None));
    for (at, begins, node) in ends {
        now = if begins { now + 1 } else { now.saturating_sub(1) };
        if now > most.0 {
            most = (now, Some((node, at)));
        }
    }
    most
}

/// Pulls without a leader that a node began while another of its pulls was running, before its share of the budget allowed it: beyond
/// that share a node may run one at a time. The share is computed from the nodes that are alive, as far as the node knows.
fn overlapping_without_leader(story: &Story, asked: &[&PullRecord]) -> Worst {
    let share = |at: Duration| Duration::from_secs_f64(fewest_alive(story, at) as f64 / story.budget.per_second);
    let mut nodes: BTreeMap<usize, Vec<&&PullRecord>> = BTreeMap::new();
    for one in asked.iter().filter(|one| one.permit_from == PermitFrom::NoLeader) {
        nodes.entry(one.node).or_default().push(one);
    }
    let early = |pair: &&[&&PullRecord]| pair[0].over.is_none_or(|over| over > pair[1].at) && pair[1].at < pair[0].at + share(pair[0].at);
    counted(nodes.values().flat_map(|asked| asked.windows(2).filter(early).map(|pair| pair[1])))
}

/// The fewest nodes alive at any time in [`LEARNED_WITHIN`] before `at`: half of them at most, because some may have started late.
fn fewest_alive(story: &Story, at: Duration) -> usize {
    let (from, nodes) = (at.saturating_sub(LEARNED_WITHIN), story.plan.nodes);
    let away = |when: Duration| {
        let away = story.plan.away.iter().filter(|(_, began, ended)| *began <= when && when < *ended);
        away.map(|(node, ..)| *node).collect::<BTreeSet<_>>().len()
    };
    let changes = story.plan.away.iter().map(|(_, began, _)| *began).filter(|began| (from..=at).contains(began));
    let most = changes.chain([from]).map(away).max().unwrap_or_default();
    nodes.saturating_sub(most).clamp(1, nodes / 2)
}

/// Pulls without a leader's permit of nodes whose line was up long enough to reach a leader.
fn needlessly_without_leader(story: &Story, asked: &[&PullRecord]) -> Worst {
    let crashes: Vec<Duration> = story.plan.acts.iter().filter(|(_, act)| matches!(act, Act::Crash(_))).map(|(at, _)| *at).collect();
    let reaches = |back: Duration| {
        let by = back + REACHES_AGAIN;
        if crashes.iter().any(|at| (back..=by).contains(at)) { by + LOST_AGAIN } else { by }
    };
    let cut = |one: &&PullRecord| story.plan.away.iter().any(|(of, from, to)| *of == one.node && *from <= one.at && one.at <= reaches(*to));
    counted(asked.iter().filter(|one| one.permit_from == PermitFrom::NoLeader && !cut(one)))
}

fn counted<'a>(asked: impl Iterator<Item = &'a &'a PullRecord>) -> Worst {
    let all: Vec<_> = asked.collect();
    (all.len(), all.first().map(|one| (one.node, one.at)))
}
