//! The fleet simulation: the real actors of many nodes on one paused runtime; a bus that loses, duplicates and delays messages and is cut
//! in one direction or both; a registry that fails; and nodes that crash, are slow, suspended or sick, lie, or have a wrong clock or
//! another login.
//!
//! A plan is drawn from a seed (see [`plan`]); [`world`] runs it; [`checks`] check the result. `cargo xtask test` sets how many
//! seeds are run; an ordinary `cargo test` runs a few small fleets. The message of a failing seed has the command to run it again.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr, reason = "tests speak on stderr")]
#![allow(missing_docs, unreachable_pub, reason = "nobody else uses it")]

mod arriving;
mod brownout;
mod budget;
mod checks;
mod degraded;
mod false_successes;
mod faulty_bucket;
mod faulty_bus;
mod faulty_network;
mod flapping;
mod floor;
mod hostile;
mod latency;
mod leases;
mod liar;
mod node;
mod plan;
mod quota;
mod reader;
mod reconnect;
mod refusals;
mod registry;
mod republished;
mod seeds;
mod slow_bus;
mod stages;
mod story;
mod world;

use std::time::Duration;

use backoff_tracker::core::knowledge;
use checks::Invariant;
use node::Planted;
use plan::{Plan, TOOL};
use reconnect::Heals;
use registry::Behaviour;
use seeds::{Fleet, found_within, many};
use throttler::core::budget::PlantedBug as BudgetBug;

/// Nodes allocate and free millions of small objects: with the system's allocator this takes a fifth of the time of a run.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// How many seeds of fleets of 50 nodes to run (`FLEET_SEEDS`); none in an ordinary `cargo test`.
fn seeds_asked() -> Option<u64> {
    std::env::var("FLEET_SEEDS").ok().and_then(|value| value.parse().ok())
}

/// Whether the full number of seeds is to be run, as by `cargo xtask e2e fleets`.
fn all_seeds() -> bool {
    seeds_asked().is_some_and(|seeds| seeds >= SEEDS)
}

/// How often each kind of fault must act for each fleet, on average, so that a run tests it.
const ACTS_AT_LEAST: u64 = 2;
/// With fewer fleets than these, chance may leave a kind of fault out.
const FLEETS_FOR_EVERY_FAULT: usize = 100;
/// Every kind of fault. A kind that never acts has no count.
const KINDS: [&str; 20] = [
    "401",
    "404",
    "429",
    "503",
    "refused",
    "hang",
    "bucket wiped under a node",
    "clock skewed by minutes",
    "crash",
    "restart",
    "lie",
    "message lost",
    "message doubled",
    "message delayed",
    "message into a cut",
    "message into a half cut",
    "message of a slow node",
    "suspended",
    "clock drifting",
    "clock set",
];

/// How many seeds `cargo xtask e2e fleets` runs, in addition to the large fleets; `cargo xtask test` runs some of them, and more that come
/// from the sources. `FLEET_SEEDS=60 FLEET_OF_TREE=0 FLEET_LARGE=0` runs fewer, `FLEET_FIRST=7000` others.
const SEEDS: u64 = 500;
/// Each planted bug must be found within this many seeds.
const SEEDS_TO_FIND_A_BUG: u64 = 50;
/// How many fleets of the largest supported size are run (`FLEET_LARGE`).
const LARGE: u64 = 5;
const LARGE_NODES: usize = 1_000;
/// For this many fixed seeds there is one that is derived from the sources (`FLEET_OF_TREE`), so that each change is tested with new seeds.
const OF_TREE: u64 = 20;
/// The offset of the seeds of large fleets.
const LARGE_SEEDS: u64 = 1_000;

fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(usual)
}

#[test]
fn every_invariant_holds_in_every_seeded_fleet() {
    let large = number("FLEET_LARGE", LARGE);
    let fleets: Vec<Fleet> = if let Some(seeds) = seeds_asked() {
        // The longest runs come first. If not all are run, the sources determine which ones are.
        let rotated = seeds::tree() % LARGE;
        let large = (0..large).map(|number| Fleet { seed: LARGE_SEEDS + 1 + (rotated + number) % LARGE, nodes: LARGE_NODES });
        let first = number("FLEET_FIRST", 1);
        let fixed = (first..first + seeds).map(|seed| Fleet { seed, nodes: 50 });
        let of_tree = seeds::of_tree(number("FLEET_OF_TREE", seeds / OF_TREE));
        eprintln!("seeds that come from the sources: {of_tree:?}");
        large.chain(fixed).chain(of_tree.into_iter().map(|seed| Fleet { seed, nodes: 50 })).collect()
    } else {
        (1..=5).map(|seed| Fleet { seed, nodes: 20 }).collect()
    };
    let account = many(&fleets);
    eprintln!("{}", account.describe());
    assert!(account.broken.is_empty(), "{:#?}", account.broken);
    if fleets.len() >= FLEETS_FOR_EVERY_FAULT {
        let acts = |kind: &&str| account.counts.get(*kind).copied().unwrap_or_default();
        let seldom: Vec<_> = KINDS.iter().filter(|kind| acts(kind) < ACTS_AT_LEAST * fleets.len() as u64).collect();
        assert!(seldom.is_empty(), "these act too seldom for a conclusion: {seldom:?}");
    }
}

/// `FLEET_SEED=17 FLEET_NODES=50 cargo test -p simulation --test fleet seed_from_environment_passes_all_checkers -- --nocapture`
#[test]
fn seed_from_environment_passes_all_checkers() {
    let fleet = Fleet { seed: number("FLEET_SEED", 1), nodes: number("FLEET_NODES", 12) as usize };
    let story = world::run(Plan::draw(fleet.seed, fleet.nodes), Planted::default());
    eprintln!("{}", seeds::describe(&story));
    assert!(checks::check(&story).iter().all(|finding| !finding.is_broken()));
}

#[test]
fn repeated_outage_is_recognised_each_time() {
    let nodes = if seeds_asked().is_some() { 50 } else { 20 };
    for outage in [Behaviour::Refused, Behaviour::Unavailable] {
        let story = world::run(flapping::plan(1, nodes, outage), Planted::default());
        assert_eq!(floor::too_soon(&story), []);
        for (number, (failing, served)) in flapping::seen(&story).into_iter().enumerate() {
            eprintln!("{outage:?} for the {}. time: {failing} failing requests, all served after {served:?}", number + 1);
            assert!((1..=9).contains(&failing), "outage {number}: {failing} failing requests of {nodes} nodes");
            let served = served.expect("all nodes have it");
            assert!(served <= Duration::from_secs(12), "outage {number}: served after {served:?}");
        }
    }
}

#[test]
fn forged_budget_requests_fill_neither_permits_nor_queue() {
    // A seed that is divisible by three limits the pulls at once.
    let story = world::run(hostile::forged_requests(3, if seeds_asked().is_some() { 50 } else { 20 }), Planted::default());
    let waited = hostile::longest_wait(&story, TOOL, Duration::ZERO);
    eprintln!("the longest wait was {waited:?}; {:?}", story.counts);
    let count = |kind| story.counts.get(kind).copied().unwrap_or_default();
    assert!(count("budget request in its own name") > 5_000);
    assert!(count("budget request in another's name") > 1_000);
    assert_eq!(count("budget request in another's name"), count("budget request refused"));
    // If the pulls at once are limited, a node may have to wait for the end of a long pull.
    assert!(waited < Duration::from_secs(5) + story.longest_pull(), "a node waited {waited:?}");
}

#[test]
fn node_that_keeps_every_lease_blocks_others_for_at_most_two_terms() {
    let story = world::run(hostile::kept_leases(2, if seeds_asked().is_some() { 50 } else { 20 }), Planted::default());
    let well = hostile::longest_wait(&story, TOOL, Duration::ZERO);
    let healed = hostile::longest_wait(&story, hostile::APP, hostile::HEALED);
    eprintln!("the longest wait was {well:?}, and {healed:?} after an outage; {:?}", story.counts);
    assert!(story.counts.get("lease kept by a hostile node").is_some_and(|kept| *kept > 1_000));
    // Two terms of an image's lead lease of 15 s each, and 15 s without a leader of the budget, after which a node uses its own share.
    assert!(well < Duration::from_secs(30 + 15 + 4), "a node waited {well:?}");
    // And the delay of kubelet's rule after the failures of 60 s.
    assert!(healed < Duration::from_secs(30 + 15 + 4 + 80), "a node waited {healed:?} after an outage");
}

#[test]
fn failure_of_all_nodes_without_a_bus_is_published_by_about_three() {
    let nodes = if all_seeds() { 300 } else { 100 };
    let mut broken = Vec::new();
    for outage in [Behaviour::Refused, Behaviour::Unavailable, Behaviour::NotFound, Behaviour::Hang] {
        for heals in [Heals::BeforeTheBus, Heals::AfterTheBus] {
            let seen = reconnect::seen(&world::run(reconnect::plan(1, nodes, outage, heals), Planted::default()), heals);
            broken.extend(seen.broken().map(|what| format!("{outage:?}, {heals:?}, {nodes} nodes: {what}")));
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn outage_of_token_server_or_blobs_causes_no_storm() {
    let outages = [
        (Behaviour::TokenUnavailable, 24, 15),
        (Behaviour::BlobUnavailable, 24, 15),
        (Behaviour::BlobHang, 14, 15),
        // All pulls that had begun before the first failure, and then one at a time; the longest step is 60 s.
        (Behaviour::WrongBytes, 70, 75),
    ];
    let mut broken = Vec::new();
    for nodes in [5, 20] {
        for (outage, at_most, within) in outages {
            // In the larger fleet a node restarts in the middle of the outage.
            let story = world::run(stages::plan(2, nodes, outage, nodes == 20), Planted::default());
            let too_soon = floor::too_soon(&story);
            let (failing, served) = stages::seen(&story);
            eprintln!("{outage:?}, {nodes} nodes: {failing} failing attempts in {:?}, all served {served:?} after it", stages::LASTS);
            let kept = too_soon.is_empty()
                && (1..=at_most).contains(&failing)
                && served.is_some_and(|served| served <= Duration::from_secs(within));
            if !kept {
                broken.push(format!("{outage:?}, {nodes} nodes: {failing} failing of {at_most}, served {served:?}, too soon {too_soon:?}"));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn pulls_of_six_images_that_fail_four_of_five_times_are_served_within_three_minutes() {
    let (mut broken, mut pulls, mut failing) = (Vec::new(), 0, 0);
    for seed in 1..=5 {
        let story = world::run(brownout::plan(seed, 20, seed > 3), Planted::default());
        let (too_soon, seen) = (floor::too_soon(&story), brownout::seen(&story));
        eprintln!(
            "seed {seed}: {} failing attempts, first pull after {:?}, all {} after {:?}",
            seen.failing, seen.first, seen.pulls, seen.last
        );
        if seen.last.is_none_or(|last| last > Duration::from_secs(180)) || !too_soon.is_empty() {
            broken.push(format!("seed {seed}: all served after {:?}, too soon {too_soon:?}", seen.last));
        }
        (pulls, failing) = (pulls + seen.pulls, failing + seen.failing);
    }
    assert!(broken.is_empty(), "{broken:#?}");
    // By chance alone, 4 attempts fail for each pull: 480 for the 120 pulls of a seed, with a standard deviation of 49.
    assert!((pulls..=5 * pulls).contains(&failing), "{failing} failing attempts for {pulls} pulls");
}

/// The planted bugs, each with the invariant that must show it.
fn planted_bugs() -> Vec<(Planted, Invariant)> {
    use knowledge::PlantedBug;
    let knows = |planted_bug| Planted { knowledge: Some(planted_bug), ..Planted::default() };
    let of_budget = |planted_bug| (Planted { budget: Some(planted_bug), ..Planted::default() }, Invariant::Budget);
    let of_knowledge = [
        (knows(PlantedBug::LeasesIgnored), Invariant::OneLease),
        (knows(PlantedBug::StepsGrow), Invariant::NextAttempt),
        (knows(PlantedBug::SuccessIgnored), Invariant::Healing),
        (knows(PlantedBug::TrustsEveryReporter), Invariant::OthersUnharmed),
        (knows(PlantedBug::StartsAnew), Invariant::KeptAtRestart),
        (knows(PlantedBug::LoginsIgnored), Invariant::Logins),
        (knows(PlantedBug::OwnRuleIgnored), Invariant::Floor),
        (knows(PlantedBug::AttemptsUnnamed), Invariant::Explained),
    ];
    let of_budgets = [BudgetBug::NoFence, BudgetBug::Unpaced, BudgetBug::RenewalsIgnored, BudgetBug::PolicyIgnored].map(of_budget);
    of_knowledge.into_iter().chain(of_budgets).collect()
}

#[test]
fn each_planted_bug_is_found_within_50_seeds() {
    // Most bugs show only if more nodes wait for the same thing than a small fleet has.
    let all = seeds_asked().is_some_and(|seeds| seeds >= SEEDS_TO_FIND_A_BUG);
    let (planted, seeds, nodes) = if all { (planted_bugs(), SEEDS_TO_FIND_A_BUG, 50) } else { (planted_bugs()[..1].to_vec(), 5, 12) };
    for (planted, invariant) in planted {
        let seed = found_within(seeds, nodes, planted, invariant);
        eprintln!("{planted:?} was found by {invariant:?} in seed {seed:?}");
        assert!(seed.is_some(), "{planted:?} was not found by {invariant:?} in {seeds} seeds of {nodes} nodes");
    }
}
