//! A registry that fails four of five requests by chance while all nodes want several images.

use std::time::Duration;

use super::plan::{Act, IMAGES, Plan};
use super::registry::Behaviour;
use super::story::Story;

const FAILS_AT: Duration = Duration::from_secs(100);
/// When all nodes want all images.
const WANTED_AT: Duration = Duration::from_secs(101);

/// A node that may restart meanwhile.
const RESTARTED: usize = 3;
const CRASHES_AT: Duration = Duration::from_secs(111);

/// The plan of one brownout, which lasts until the end.
pub fn plan(seed: u64, nodes: usize, restarts: bool) -> Plan {
    let mut acts: Vec<(Duration, Act)> = (0..nodes).map(|node| (Duration::from_secs(1), Act::Start(node))).collect();
    acts.push((FAILS_AT, Act::Registry("r.example", Behaviour::FailsByChance)));
    acts.extend(IMAGES.iter().flat_map(|image| (0..nodes).map(|node| (WANTED_AT, Act::Want(node, image)))));
    let ends = WANTED_AT + Duration::from_secs(200);
    let plan = Plan { outage: Behaviour::FailsByChance, fails_at: FAILS_AT, app: IMAGES[0], ends, ..Plan::of_acts(seed, nodes, acts) };
    if restarts { plan.restarting(RESTARTED, CRASHES_AT) } else { plan }
}

/// What a run showed.
pub struct Seen {
    /// How many pulls were wanted.
    pub pulls: usize,
    /// The failed attempts.
    pub failing: usize,
    /// When the first pull succeeded, since the images were wanted.
    pub first: Option<Duration>,
    /// When the last pull succeeded; none: not all did.
    pub last: Option<Duration>,
}

pub fn seen(story: &Story) -> Seen {
    let failing = story.asked.iter().filter(|one| one.got != Behaviour::Serves).count();
    let wanted = (0..story.plan.nodes).flat_map(|node| IMAGES.map(|image| (node, image)));
    let since = |at: Duration| at.saturating_sub(WANTED_AT);
    let first = wanted.filter_map(|(node, image)| story.served_at(node, image)).min().map(since);
    let last = story.all_served_at(&IMAGES).map(since);
    Seen { pulls: story.plan.nodes * IMAGES.len(), failing, first, last }
}
