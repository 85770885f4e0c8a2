//! A bus that is gone for ten minutes while the registry is down: each node fails by itself, and then all of them come back.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use throttler::core::budget::BudgetPolicy;

use crate::faulty_bus::Line;
use crate::plan::{Act, ENDS, Plan};
use crate::registry::Mood;
use crate::republished::Told;
use crate::world::Story;

/// The image that all nodes want.
const APP: &str = "r.example/team/app:1";
const FAILS_AT: Duration = Duration::from_secs(100);
/// The bus is gone for ten minutes.
const GONE: Duration = Duration::from_secs(130);
const BACK: Duration = Duration::from_secs(730);
/// When the first node wants the image, and over how long the others begin to: as long as the longest step of kubelet's rule, so that at any
/// time as many nodes try.
const WANTED_FROM: Duration = Duration::from_secs(140);
const WANTED_WITHIN: Duration = Duration::from_secs(300);
/// All nodes know the same by then.
const CONVERGED: Duration = Duration::from_secs(60);

/// Nodes that tell of what they found out without the bus, of each back-off key.
const TELL_AT_MOST: usize = 3;
/// How long after the bus, or the registry if it heals later, the last node is served: a round, its lease, and the turns of all, at a rate that
/// begins anew and of which a share is kept for nodes that have not been heard yet.
const SERVED_WITHIN: Duration = Duration::from_secs(20);
/// The same of what is asked for again within a minute.
const SERVED_WITHIN_A_MINUTE: Duration = Duration::from_secs(65);

/// When the registry is well again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heals {
    BeforeTheBus,
    AfterTheBus,
}

impl Heals {
    fn at(self) -> Duration {
        match self {
            // By kubelet's rule few nodes have tried since then.
            Self::BeforeTheBus => BACK.saturating_sub(Duration::from_secs(15)),
            // Longer than the longest step after the bus is back.
            Self::AfterTheBus => BACK + CONVERGED + Duration::from_secs(5),
        }
    }
}

/// One such outage.
pub fn plan(seed: u64, nodes: usize, outage: Mood, heals: Heals) -> Plan {
    let each = |at: Duration, act: fn(usize) -> Act| (0..nodes).map(move |node| (at, act(node)));
    let mut acts: Vec<(Duration, Act)> = each(Duration::from_secs(1), Act::Start).collect();
    acts.push((FAILS_AT, Act::Registry("r.example", outage)));
    let apart = WANTED_WITHIN / nodes as u32;
    acts.extend((0..nodes).map(|node| (WANTED_FROM + apart * node as u32, Act::Want(node, APP))));
    acts.extend(each(GONE, |node| Act::Line(node, Line::Cut)));
    acts.extend(each(BACK, |node| Act::Line(node, Line::Up)));
    acts.push((BACK + CONVERGED, Act::List));
    acts.push((heals.at(), Act::Registry("r.example", Mood::Well)));
    acts.sort_by_key(|(at, _)| *at);
    let away = (0..nodes).map(|node| (node, GONE, BACK)).collect();
    let (sick, rotated, skews, drifts) = (vec![], vec![], vec![0; nodes], vec![0; nodes]);
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

/// What came of it.
#[derive(Debug)]
pub struct Seen {
    /// The most nodes that told, of one back-off key, of a failure that they had met without the bus.
    failures: usize,
    /// The same of a success.
    successes: usize,
    /// Reports of attempts that began when the bus was back: of the back-off key with the most, failures, and successes.
    since: (usize, usize),
    /// All reports since the bus was back.
    reports: usize,
    /// Requests that failed since then.
    failing: usize,
    /// In how many different ways nodes know what fails.
    views: usize,
    /// How long after all was there the last node was served.
    served: Option<Duration>,
    served_within: Duration,
    /// Most that may be told of failures since: rounds of probes, and who was asking already.
    since_at_most: usize,
}

impl Seen {
    pub fn broken(&self) -> impl Iterator<Item = String> {
        let served = self.served.is_some_and(|served| served <= self.served_within);
        let rules = [
            (self.failures <= TELL_AT_MOST, format!("{} nodes told of a failure", self.failures)),
            (self.successes <= TELL_AT_MOST, format!("{} nodes told of a success", self.successes)),
            (self.since.0 <= self.since_at_most, format!("{} nodes told of a failure since", self.since.0)),
            // Who told of a failure tells of its success.
            (self.since.1 <= TELL_AT_MOST + self.since_at_most, format!("{} nodes told of a success since", self.since.1)),
            (self.failing <= 2 * self.since_at_most, format!("{} requests failed", self.failing)),
            (self.reports <= 12 * self.since_at_most, format!("{} reports", self.reports)),
            (self.views <= 1, format!("nodes know {} different things", self.views)),
            (served, format!("served after {:?}", self.served)),
        ];
        rules.into_iter().filter(|(kept, _)| !kept).map(|(_, what)| what)
    }
}

pub fn seen(story: &Story, heals: Heals) -> Seen {
    let told: Vec<&Told> = story.told.iter().filter(|one| one.at >= BACK).collect();
    let before = |one: &&&Told| one.at.saturating_sub(one.age) < BACK;
    let most = |which: &dyn Fn(&&&Told) -> bool| {
        let mut nodes: BTreeMap<u128, BTreeSet<&str>> = BTreeMap::new();
        for one in told.iter().filter(which) {
            nodes.entry(one.backoff_key).or_default().insert(&one.node);
        }
        nodes.values().map(BTreeSet::len).max().unwrap_or_default()
    };
    let views: BTreeSet<Vec<_>> = story
        .listed
        .iter()
        .map(|entries| entries.iter().map(|entry| (entry.key.clone(), entry.binds.clone(), entry.step)).collect())
        .collect();
    let all_there = heals.at().max(BACK);
    let last = (0..story.plan.nodes).map(|node| story.served_at(node, APP)).max_by_key(|at| at.unwrap_or(ENDS)).flatten();
    let failing = story.asked.iter().filter(|one| one.at >= BACK && one.got != Mood::Well).count();
    Seen {
        failures: most(&|one| one.failed && before(one)),
        successes: most(&|one| !one.failed && before(one)),
        since: (most(&|one| one.failed && !before(one)), most(&|one| !one.failed && !before(one))),
        reports: told.len(),
        failing,
        views: views.len(),
        served: last.map(|last| last.saturating_sub(all_there)),
        served_within: if story.plan.outage == Mood::NotFound { SERVED_WITHIN_A_MINUTE } else { SERVED_WITHIN },
        // Each step of 8 s one, three at first, and one more for each step that is shorter.
        since_at_most: TELL_AT_MOST + CONVERGED.as_secs() as usize / 8 + 4,
    }
}
