//! A registry that fails four of five requests by chance while all nodes want several images.

use std::time::Duration;

use super::plan::{Act, ENDS, Plan};
use super::registry::Behaviour;
use super::story::Story;

const IMAGES: [&str; 6] = [
    "r.example/team/one:1",
    "r.example/team/two:1",
    "r.example/team/three:1",
    "r.example/team/four:1",
    "r.example/team/five:1",
    "r.example/team/six:1",
];
const FAILS_AT: Duration = Duration::from_secs(100);
/// When all nodes want all images.
const WANTED_AT: Duration = Duration::from_secs(101);

/// The plan of one brownout, which lasts until the end.
pub fn plan(seed: u64, nodes: usize) -> Plan {
    let mut acts: Vec<(Duration, Act)> = (0..nodes).map(|node| (Duration::from_secs(1), Act::Start(node))).collect();
    acts.push((FAILS_AT, Act::Registry("r.example", Behaviour::FailsByChance)));
    acts.extend(IMAGES.iter().flat_map(|image| (0..nodes).map(|node| (WANTED_AT, Act::Want(node, image)))));
    Plan { outage: Behaviour::FailsByChance, fails_at: FAILS_AT, app: IMAGES[0], ..Plan::of_acts(seed, nodes, acts) }
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
    let served: Vec<Option<Duration>> = wanted.map(|(node, image)| story.served_at(node, image)).collect();
    let since = |at: Duration| at.saturating_sub(WANTED_AT);
    let first = served.iter().flatten().min().copied().map(since);
    let last = served.iter().copied().max_by_key(|there| there.unwrap_or(ENDS)).flatten().map(since);
    Seen { pulls: served.len(), failing, first, last }
}
