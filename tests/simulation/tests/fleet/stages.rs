//! Outages behind the manifest: the token server, blobs and their content fail while manifests are served.

use std::time::Duration;

use super::plan::{Act, IMAGES, Plan};
use super::registry::Behaviour;
use super::story::Story;

/// How many images all nodes want 1 s after the outage began.
const WANTED: usize = 3;
const FAILS_AT: Duration = Duration::from_secs(100);
/// How long the outage lasts.
pub const LASTS: Duration = Duration::from_secs(60);

/// A node that may restart in the middle of the outage.
const RESTARTED: usize = 3;

/// The plan of one outage.
pub fn plan(seed: u64, nodes: usize, outage: Behaviour, restarts: bool) -> Plan {
    let heals_at = FAILS_AT + LASTS;
    let mut acts: Vec<(Duration, Act)> = (0..nodes).map(|node| (Duration::from_secs(1), Act::Start(node))).collect();
    acts.push((FAILS_AT, Act::Registry("r.example", outage)));
    acts.extend(
        IMAGES[..WANTED].iter().flat_map(|image| (0..nodes).map(|node| (FAILS_AT + Duration::from_secs(1), Act::Want(node, image)))),
    );
    acts.push((heals_at, Act::Registry("r.example", Behaviour::Serves)));
    let ends = heals_at + Duration::from_secs(120);
    let plan = Plan { outage, fails_at: FAILS_AT, app: IMAGES[0], ends, ..Plan::of_acts(seed, nodes, acts) };
    if restarts { plan.restarting(RESTARTED, FAILS_AT + LASTS / 2) } else { plan }
}

/// The failed attempts, and how long after the healing the last node had its last image.
pub fn seen(story: &Story) -> (usize, Option<Duration>) {
    let failing = story.asked.iter().filter(|one| one.got != Behaviour::Serves).count();
    (failing, story.all_served_at(&IMAGES[..WANTED]).map(|last| last.saturating_sub(FAILS_AT + LASTS)))
}
