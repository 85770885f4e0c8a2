//! Runs many seeds on all cores and summarises the findings.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::checks::{self, Finding, Invariant};
use crate::node::Planted;
use crate::plan::Plan;
use crate::story::Story;
use crate::world;

/// How much time before and after a broken invariant is shown.
const SEEN_AROUND: Duration = Duration::from_secs(20);

/// One of this many seeds is run twice; both runs must be the same.
const TWICE: u64 = 10;
/// The offset of seeds that are derived from the sources.
const TREE_SEEDS: u64 = 1_000_000;

/// The parameters of a run.
#[derive(Clone, Copy, Debug)]
pub struct Fleet {
    pub seed: u64,
    pub nodes: usize,
}

/// The summary of many runs.
#[derive(Debug, Default)]
pub struct Account {
    /// The broken invariants, each with the command to run it again.
    pub broken: Vec<String>,
    /// How often each kind of fault occurred.
    pub counts: BTreeMap<&'static str, u64>,
    /// The highest value of each figure as a share of its bound, and its seed.
    worst: BTreeMap<(Invariant, &'static str), (f64, u64)>,
    runs: usize,
}

impl Account {
    fn add(&mut self, fleet: Fleet, story: &Story) {
        self.runs += 1;
        for (kind, count) in &story.counts {
            *self.counts.entry(kind).or_default() += count;
        }
        for Finding { invariant, what, value, at_most, .. } in checks::check(story) {
            let worst = self.worst.entry((invariant, what)).or_default();
            if value / at_most > worst.0 {
                *worst = (value / at_most, fleet.seed);
            }
            if value > at_most {
                self.broken.push(format!("{invariant:?}: {what}: {value:.2}, at most {at_most:.2}: {}", again(fleet)));
            }
        }
    }

    /// The summary as text: how often each fault occurred, and how near each figure came to its bound.
    pub fn describe(&self) -> String {
        let mut text = format!("{} fleets, every tenth run twice\n", self.runs);
        for (kind, count) in &self.counts {
            let _ = writeln!(text, "  {count:>9} x {kind}");
        }
        for ((invariant, what), (share, seed)) in &self.worst {
            let _ = writeln!(text, "  {:>8.0} % of the bound at worst, seed {seed}: {invariant:?}, {what}", share * 100.0);
        }
        text
    }
}

/// A number derived from the sources (`FLEET_TREE`, a hash that `cargo xtask` sets); 0 without it.
pub fn tree() -> u64 {
    std::env::var("FLEET_TREE").ok().and_then(|hash| u64::from_str_radix(hash.get(..12)?, 16).ok()).unwrap_or_default()
}

/// `count` seeds derived from the sources; none without them.
pub fn of_tree(count: u64) -> Vec<u64> {
    let tree = Some(tree()).filter(|tree| *tree > 0);
    tree.map(|tree| (0..count).map(|number| TREE_SEEDS + tree + number).collect()).unwrap_or_default()
}

/// Runs all fleets, every tenth seed twice.
pub fn many(fleets: &[Fleet]) -> Account {
    let (account, next) = (Mutex::new(Account::default()), AtomicUsize::new(0));
    let work = || {
        while let Some(fleet) = fleets.get(next.fetch_add(1, Ordering::Relaxed)).copied() {
            let run = || world::run(Plan::draw(fleet.seed, fleet.nodes), Planted::default());
            let story = run();
            let differs = fleet.seed.is_multiple_of(TWICE) && run().hash != story.hash;
            let mut account = account.lock().unwrap();
            account.add(fleet, &story);
            if differs {
                account.broken.push(format!("two runs differ: {}", again(fleet)));
            }
        }
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(work);
        }
    });
    account.into_inner().unwrap()
}

/// The first seed whose run breaks the invariant because of the planted bug.
pub fn found_within(seeds: u64, nodes: usize, planted: Planted, invariant: Invariant) -> Option<u64> {
    let shows = |seed: &u64| {
        let story = world::run(Plan::draw(*seed, nodes), planted);
        checks::check(&story).iter().any(|finding| finding.invariant == invariant && finding.is_broken())
    };
    (1..=seeds).find(shows)
}

/// One run as text.
pub fn describe(story: &Story) -> String {
    let mut text = format!(
        "{:?} from {:?} on, {}; hash {:016x}\n{:?}\n",
        story.plan.outage, story.plan.fails_at, story.plan.app, story.hash, story.counts
    );
    for finding in checks::check(story) {
        let word = if finding.is_broken() { "BROKEN" } else { "holds " };
        let Finding { invariant, what, value, at_most, at } = &finding;
        let _ = writeln!(text, "  {word} {invariant:?}: {what}: {value:.2}, at most {at_most:.2}");
        if let (true, Some((node, at))) = (finding.is_broken(), at) {
            text.push_str(&around(story, *node, *at));
        }
    }
    text
}

/// The requests around a time, and the nodes that were away.
fn around(story: &Story, node: usize, at: Duration) -> String {
    let mut text = String::new();
    let away: Vec<_> = story.plan.away.iter().filter(|(of, _, _)| *of == node).collect();
    let _ = writeln!(text, "    n{node} at {at:?}, away {away:?}, liar n{}, sick {:?}", story.plan.liar, story.plan.sick);
    let near = |time: Duration| time + SEEN_AROUND >= at && time <= at + SEEN_AROUND;
    let meanwhile = story.plan.away.iter().filter(|(_, from, to)| *from <= at && near(*to));
    for (node, from, to) in meanwhile {
        let _ = writeln!(text, "    n{node} away from {from:?} to {to:?}");
    }
    for lease in story.leases.describe(node, near) {
        let _ = writeln!(text, "    {lease}");
    }
    for one in story.asked.iter().filter(|one| near(one.at) || (one.node == node && one.at >= at)) {
        let over = one.over.map(|over| over.as_secs_f64());
        let _ = writeln!(
            text,
            "    {:>12.3} n{} {:?} {} by {:?}, over {over:.3?}",
            one.at.as_secs_f64(),
            one.node,
            one.got,
            one.image,
            one.permit_from
        );
    }
    text
}

fn again(fleet: Fleet) -> String {
    let test = "seed_from_environment_passes_all_checkers";
    format!("FLEET_SEED={} FLEET_NODES={} cargo test -p simulation --test fleet {test} -- --nocapture", fleet.seed, fleet.nodes)
}
