//! The fleet simulation: the real actors of many nodes on one paused runtime, a bus that fails, a registry that fails, and nodes
//! that crash, are sick, or lie.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, unreachable_pub, clippy::print_stderr)]

mod faulty_bus;
mod node;
mod plan;
mod registry;
mod world;

use node::Planted;
use plan::Plan;

#[test]
fn first_look() {
    for seed in 1..=5 {
        let plan = Plan::draw(seed, 50);
        eprintln!("seed {seed} {:?} fails at {:?} {}", plan.outage, plan.fails_at, plan.app);
        #[allow(clippy::disallowed_methods)]
        let began = std::time::Instant::now();
        let story = world::run(plan, Planted::default());
        eprintln!("  took {:?} hash {:x} asked {} counts {:?}", began.elapsed(), story.hash, story.asked.len(), story.counts);
        let mut by = std::collections::BTreeMap::<_, u64>::new();
        for one in &story.asked {
            *by.entry((one.image.clone(), one.got)).or_default() += 1;
        }
        eprintln!("  {by:?}");
        let mut there = std::collections::BTreeMap::<_, (u64, f64)>::new();
        for ((_, image), at) in &story.there {
            let e = there.entry(image.clone()).or_default();
            e.0 += 1;
            e.1 = e.1.max(at.as_secs_f64());
        }
        eprintln!("  {there:?}");
    }
}
