//! After healing every wanted image arrives, and soon.

use super::{Finding, Invariant, PROBE_DEADLINE, begins_low, full, longest_round, served_attempts, slow_first_pulls};
use crate::plan::{CALM_FROM, HEALS_AT};
use crate::story::Story;

pub(super) fn healing(story: &Story) -> Vec<Finding> {
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

/// The seconds in which all permits were in use while the fleet healed, so that none could be granted.
fn all_permits_out(story: &Story) -> f64 {
    let healing = story.asked.iter().filter(|one| one.at >= HEALS_AT && one.at < CALM_FROM && one.image == story.plan.app);
    full(story.budget.at_once, HEALS_AT, CALM_FROM, healing).as_secs_f64()
}
