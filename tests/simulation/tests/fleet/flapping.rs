//! A registry with repeated outages.

use std::time::Duration;

use crate::plan::{Act, ENDS, Plan, slow_budget};
use crate::registry::Behaviour;
use crate::story::Story;

/// One image for each outage: all nodes want it 1 s after the outage began.
const IMAGES: [&str; 6] = [
    "r.example/team/one:1",
    "r.example/team/two:1",
    "r.example/team/three:1",
    "r.example/team/four:1",
    "r.example/team/five:1",
    "r.example/team/six:1",
];
const FIRST: Duration = Duration::from_secs(100);
const APART: Duration = Duration::from_secs(140);
const LASTS: Duration = Duration::from_secs(20);

/// A plan with one outage for each image.
pub fn plan(seed: u64, nodes: usize, outage: Behaviour) -> Plan {
    let mut acts: Vec<(Duration, Act)> = (0..nodes).map(|node| (Duration::from_secs(1), Act::Start(node))).collect();
    for (at, image) in outages() {
        acts.push((at, Act::Registry("r.example", outage)));
        acts.extend((0..nodes).map(|node| (at + Duration::from_secs(1), Act::Want(node, image))));
        acts.push((at + LASTS, Act::Registry("r.example", Behaviour::Serves)));
    }
    Plan { per_second: slow_budget(nodes), outage, fails_at: FIRST, app: IMAGES[0], ..Plan::of_acts(seed, nodes, acts) }
}

/// The failing requests of each outage, and how long after the outage the last node had the image.
pub fn seen(story: &Story) -> Vec<(usize, Option<Duration>)> {
    let seen = outages().map(|(at, image)| {
        let failing = story.asked.iter().filter(|one| one.image == image && one.got != Behaviour::Serves).count();
        let last = (0..story.plan.nodes).map(|node| story.served_at(node, image));
        (failing, last.max_by_key(|there| there.unwrap_or(ENDS)).flatten().map(|last| last.saturating_sub(at + LASTS)))
    });
    seen.collect()
}

fn outages() -> impl Iterator<Item = (Duration, &'static str)> {
    (0..).map(|number| FIRST + APART * number).zip(IMAGES)
}
