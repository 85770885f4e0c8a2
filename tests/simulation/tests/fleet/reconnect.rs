//! A bus that is down for ten minutes during an outage of the registry: each node fails by itself, and then all reconnect at once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::faulty_network::Line;
use crate::plan::{Act, ENDS, Plan};
use crate::registry::Behaviour;
use crate::republished::PublishedReport;
use crate::story::Story;

/// The image that all nodes want.
const APP: &str = "r.example/team/app:1";
const FAILS_AT: Duration = Duration::from_secs(100);
/// When the bus goes down, ten minutes before [`BUS_BACK_AT`].
const BUS_LOST_AT: Duration = Duration::from_secs(130);
const BUS_BACK_AT: Duration = Duration::from_secs(730);
/// When the first node wants the image, and the time over which the others begin to want it: the longest step of kubelet's rule, so that
/// attempts are spread evenly over time.
const WANTED_FROM: Duration = Duration::from_secs(140);
const WANTED_WITHIN: Duration = Duration::from_secs(300);
/// How long after the bus is back all nodes must know the same.
const CONVERGED: Duration = Duration::from_secs(60);

/// The most nodes that publish, for one back-off key, a finding that they made without the bus.
const PUBLISH_AT_MOST: usize = 3;
/// How long after both bus and registry are back the last node is served: one round, its lease, and the turns of all nodes. The rate of the
/// budget starts low, and a share of it is reserved for nodes that the leader does not know yet.
const SERVED_WITHIN: Duration = Duration::from_secs(20);
/// The same for an image whose next attempt is within 60 s.
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
            // Late enough that few nodes have tried since then by kubelet's rule.
            Self::BeforeTheBus => BUS_BACK_AT.saturating_sub(Duration::from_secs(15)),
            // Later than the longest step after the return of the bus.
            Self::AfterTheBus => BUS_BACK_AT + CONVERGED + Duration::from_secs(5),
        }
    }
}

/// The plan of such an outage.
pub fn plan(seed: u64, nodes: usize, outage: Behaviour, heals: Heals) -> Plan {
    let each = |at: Duration, act: fn(usize) -> Act| (0..nodes).map(move |node| (at, act(node)));
    let mut acts: Vec<(Duration, Act)> = each(Duration::from_secs(1), Act::Start).collect();
    acts.push((FAILS_AT, Act::Registry("r.example", outage)));
    let apart = WANTED_WITHIN / nodes as u32;
    acts.extend((0..nodes).map(|node| (WANTED_FROM + apart * node as u32, Act::Want(node, APP))));
    acts.extend(each(BUS_LOST_AT, |node| Act::Line(node, Line::Cut)));
    acts.extend(each(BUS_BACK_AT, |node| Act::Line(node, Line::Up)));
    acts.push((BUS_BACK_AT + CONVERGED, Act::List));
    acts.push((heals.at(), Act::Registry("r.example", Behaviour::Serves)));
    acts.sort_by_key(|(at, _)| *at);
    let away = (0..nodes).map(|node| (node, BUS_LOST_AT, BUS_BACK_AT)).collect();
    Plan { outage, fails_at: FAILS_AT, app: APP, away, ..Plan::of_acts(seed, nodes, acts) }
}

/// The result of a run.
#[derive(Debug)]
pub struct Seen {
    /// The most nodes that published, for one back-off key, a failure that they had met without the bus.
    failures: usize,
    /// The same for successes.
    successes: usize,
    /// Reports of attempts that began after the bus was back, of the back-off key with the most: failures and successes.
    since: (usize, usize),
    /// All reports after the bus was back.
    reports: usize,
    /// Requests that failed after the bus was back.
    failing: usize,
    /// The number of different sets of back-off entries among the nodes; 1 if all nodes know the same.
    views: usize,
    /// Whether each node lists what it knows of an outage that is still going on then.
    all_know: bool,
    /// How long after both bus and registry were back the last node was served.
    served: Option<Duration>,
    served_within: Duration,
    /// The most reports of failures allowed after the bus was back: rounds of probes, and attempts that had already begun.
    since_at_most: usize,
}

impl Seen {
    pub fn broken(&self) -> impl Iterator<Item = String> {
        let served = self.served.is_some_and(|served| served <= self.served_within);
        let rules = [
            (self.failures <= PUBLISH_AT_MOST, format!("{} nodes published a failure", self.failures)),
            (self.successes <= PUBLISH_AT_MOST, format!("{} nodes published a success", self.successes)),
            (self.since.0 <= self.since_at_most, format!("{} nodes published a failure since", self.since.0)),
            // A node that published a failure also publishes the success that ends it.
            (self.since.1 <= PUBLISH_AT_MOST + self.since_at_most, format!("{} nodes published a success since", self.since.1)),
            (self.failing <= 2 * self.since_at_most, format!("{} requests failed", self.failing)),
            (self.reports <= 12 * self.since_at_most, format!("{} reports", self.reports)),
            (self.views <= 1, format!("nodes know {} different things", self.views)),
            (self.all_know, "a node lists no entry during the outage".to_owned()),
            (served, format!("served after {:?}", self.served)),
        ];
        rules.into_iter().filter(|(kept, _)| !kept).map(|(_, what)| what)
    }
}

pub fn seen(story: &Story, heals: Heals) -> Seen {
    let reports: Vec<&PublishedReport> = story.reports.iter().filter(|one| one.at >= BUS_BACK_AT).collect();
    let before = |one: &&&PublishedReport| one.at.saturating_sub(one.age) < BUS_BACK_AT;
    let most = |which: &dyn Fn(&&&PublishedReport) -> bool| {
        let mut nodes: BTreeMap<u128, BTreeSet<&str>> = BTreeMap::new();
        for one in reports.iter().filter(which) {
            nodes.entry(one.backoff_key).or_default().insert(&one.node);
        }
        nodes.values().map(BTreeSet::len).max().unwrap_or_default()
    };
    let views: BTreeSet<Vec<_>> = story
        .listed
        .iter()
        .map(|entries| entries.iter().map(|entry| (entry.key.clone(), entry.binds.clone(), entry.step)).collect())
        .collect();
    let all_there = heals.at().max(BUS_BACK_AT);
    let last = (0..story.plan.nodes).map(|node| story.served_at(node, APP)).max_by_key(|at| at.unwrap_or(ENDS)).flatten();
    let failing = story.asked.iter().filter(|one| one.at >= BUS_BACK_AT && one.got != Behaviour::Serves).count();
    Seen {
        failures: most(&|one| one.failed && before(one)),
        successes: most(&|one| !one.failed && before(one)),
        since: (most(&|one| one.failed && !before(one)), most(&|one| !one.failed && !before(one))),
        reports: reports.len(),
        failing,
        views: views.len(),
        all_know: heals == Heals::BeforeTheBus
            || (story.listed.len() == story.plan.nodes && story.listed.iter().all(|entries| !entries.is_empty())),
        served: last.map(|last| last.saturating_sub(all_there)),
        served_within: if story.plan.outage == Behaviour::NotFound { SERVED_WITHIN_A_MINUTE } else { SERVED_WITHIN },
        // One for each step of 8 s, three at first, and one more for each shorter step.
        since_at_most: PUBLISH_AT_MOST + CONVERGED.as_secs() as usize / 8 + 4,
    }
}
