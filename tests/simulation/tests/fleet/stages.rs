//! Outages behind the manifest: the token server, blobs and their content fail while manifests are served.

use std::time::Duration;

use super::plan::{Act, ENDS, Plan};
use super::registry::Behaviour;
use super::story::Story;

/// All nodes want these images 1 s after the outage began.
const IMAGES: [&str; 3] = ["r.example/team/one:1", "r.example/team/two:1", "r.example/team/three:1"];
const FAILS_AT: Duration = Duration::from_secs(100);
/// How long the outage lasts.
pub const LASTS: Duration = Duration::from_secs(60);

/// The plan of one outage.
pub fn plan(seed: u64, nodes: usize, outage: Behaviour) -> Plan {
    let heals_at = FAILS_AT + LASTS;
    let mut acts: Vec<(Duration, Act)> = (0..nodes).map(|node| (Duration::from_secs(1), Act::Start(node))).collect();
    acts.push((FAILS_AT, Act::Registry("r.example", outage)));
    acts.extend(IMAGES.iter().flat_map(|image| (0..nodes).map(|node| (FAILS_AT + Duration::from_secs(1), Act::Want(node, image)))));
    acts.push((heals_at, Act::Registry("r.example", Behaviour::Serves)));
    Plan { outage, fails_at: FAILS_AT, app: IMAGES[0], ..Plan::of_acts(seed, nodes, acts) }
}

/// The failed attempts, and how long after the healing the last node had its last image.
pub fn seen(story: &Story) -> (usize, Option<Duration>) {
    let failing = story.asked.iter().filter(|one| one.got != Behaviour::Serves).count();
    let wanted = (0..story.plan.nodes).flat_map(|node| IMAGES.map(|image| (node, image)));
    let last = wanted.map(|(node, image)| story.served_at(node, image)).max_by_key(|there| there.unwrap_or(ENDS)).flatten();
    (failing, last.map(|last| last.saturating_sub(FAILS_AT + LASTS)))
}
