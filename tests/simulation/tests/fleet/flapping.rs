//! A registry with repeated outages.

use std::time::Duration;

use crate::plan::{Act, IMAGES, Plan, slow_budget};
use crate::registry::Behaviour;
use crate::story::Story;

const FIRST: Duration = Duration::from_secs(100);
const APART: Duration = Duration::from_secs(140);
const LASTS: Duration = Duration::from_secs(20);

/// A plan with one outage for each image: all nodes want it 1 s after the outage began. In the middle of every second outage a node restarts.
pub fn plan(seed: u64, nodes: usize, outage: Behaviour) -> Plan {
    let mut acts: Vec<(Duration, Act)> = (0..nodes).map(|node| (Duration::from_secs(1), Act::Start(node))).collect();
    for (at, image) in outages() {
        acts.push((at, Act::Registry("r.example", outage)));
        acts.extend((0..nodes).map(|node| (at + Duration::from_secs(1), Act::Want(node, image))));
        acts.push((at + LASTS, Act::Registry("r.example", Behaviour::Serves)));
    }
    let plan = Plan { per_second: slow_budget(nodes), outage, fails_at: FIRST, app: IMAGES[0], ..Plan::of_acts(seed, nodes, acts) };
    let restarts = outages().enumerate().skip(1).step_by(2);
    restarts.fold(plan, |plan, (node, (at, _))| plan.restarting(node, at + LASTS / 2))
}

/// The failing requests of each outage, and how long after the outage the last node had the image.
pub fn seen(story: &Story) -> Vec<(usize, Option<Duration>)> {
    let seen = outages().map(|(at, image)| {
        let failing = story.asked.iter().filter(|one| one.image == image && one.got != Behaviour::Serves).count();
        (failing, story.all_served_at(&[image]).map(|last| last.saturating_sub(at + LASTS)))
    });
    seen.collect()
}

fn outages() -> impl Iterator<Item = (Duration, &'static str)> {
    (0..).map(|number| FIRST + APART * number).zip(IMAGES)
}
