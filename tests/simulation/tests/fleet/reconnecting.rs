//! A bus that is gone for minutes while a registry is down: what nodes publish when it is back.

use std::collections::BTreeMap;
use std::time::Duration;

use throttler::core::budget::BudgetPolicy;

use super::faulty_bus::Line;
use super::plan::{Act, Plan};
use super::registry::Mood;
use super::world::Story;

const APP: &str = "r.example/team/app:1";
const FAILS_AT: Duration = Duration::from_secs(30);
const GONE_FROM: Duration = Duration::from_secs(60);
/// Ten minutes later.
pub const BACK_AT: Duration = Duration::from_secs(660);

/// All nodes want one image of a registry that is down from before the bus is lost until `heals_at`.
pub fn plan(seed: u64, nodes: usize, outage: Mood, heals_at: Duration) -> Plan {
    let second = Duration::from_secs(1);
    let mut acts: Vec<(Duration, Act)> = (0..nodes).map(|node| (second, Act::Start(node))).collect();
    acts.push((FAILS_AT, Act::Registry("r.example", outage)));
    acts.extend((0..nodes).map(|node| (FAILS_AT + second, Act::Want(node, APP))));
    acts.extend((0..nodes).map(|node| (GONE_FROM, Act::Line(node, Line::Cut))));
    acts.extend((0..nodes).map(|node| (BACK_AT, Act::Line(node, Line::Up))));
    acts.push((heals_at, Act::Registry("r.example", Mood::Well)));
    acts.sort_by_key(|(at, _)| *at);
    let (sick, rotated, away, skews, drifts) = (vec![], vec![], vec![], vec![0; nodes], vec![0; nodes]);
    Plan {
        seed,
        nodes,
        per_second: BudgetPolicy::default().per_second,
        outage,
        fails_at: FAILS_AT,
        app: APP,
        sick,
        rotated,
        liar: 0,
        skews,
        drifts,
        away,
        acts,
    }
}

/// The most reports that were published on one back-off key in this time.
pub fn most_reports_on_a_key(story: &Story, from: Duration, to: Duration) -> usize {
    let mut reports: BTreeMap<&str, usize> = BTreeMap::new();
    for (_, key) in story.reports.iter().filter(|(at, _)| (from..to).contains(at)) {
        // After the node's own token.
        *reports.entry(key.split_once('.').map_or("", |(_, key)| key)).or_default() += 1;
    }
    reports.into_values().max().unwrap_or_default()
}

/// How long after healing the last node began the attempt by which it has the image.
pub fn served(story: &Story, heals_at: Duration) -> Option<Duration> {
    let served: Option<Vec<Duration>> = (0..story.plan.nodes).map(|node| story.served_at(node, APP)).collect();
    served?.into_iter().max().map(|last| last.saturating_sub(heals_at))
}
