//! The storm's bars as invariants of seeded runs, and planted bugs that they must find.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::time::Duration;

use backoff_tracker::core::knowledge::PlantedBug;
use simulation::fleet::{self, Lies, Options, Run};
use simulation::kubelet;
use simulation::registry::BUDGET_PER_SECOND;
use simulation::scenario::Scenario;

const MINUTES: u64 = 15;
const END: Duration = Duration::from_secs(MINUTES * 60);
/// The longest time between two probes, after which nodes learn that the registry serves again.
const LONGEST_STEP_S: f64 = 8.0;
/// The same for a missing image: 60 s between two probes, and 5 s for the turn, lease and permit of the next node. Then the budget limits.
const LATE_TAG_S: f64 = 65.0;
/// The same if each node wants its own image and leads for it once the registry is known to serve: within 15 s, which includes the turns of
/// 180 nodes.
const IMAGES_APART_S: f64 = 14.0;
/// The pulls that `hub-quota` allows within a run.
const QUOTA: usize = 100;

fn run(scenario: Scenario, nodes: usize, seed: u64, options: Options) -> Run {
    // In a small fleet all nodes would have their images before the outage of a roll-out begins, so it begins earlier.
    let options = if nodes < 200 { Options { breaks_at: Some(scenario.breaks_at() / 3), ..options } } else { options };
    fleet::run(scenario, nodes, END, seed, options)
}

/// The violations of a run; empty if there are none.
fn broken(scenario: Scenario, nodes: usize, run: &Run) -> Vec<String> {
    let figures = run.registry.figures(END);
    let mut broken = Vec::new();
    let mut must = |holds: bool, what: String| {
        if !holds {
            broken.push(what);
        }
    };
    let most_failing = match scenario {
        Scenario::BadTag | Scenario::LateTag | Scenario::RateLimit => 40,
        Scenario::HubQuota | Scenario::RollOut => 0,
        Scenario::Down | Scenario::BlackHole | Scenario::BlobsDown | Scenario::BlobsHang | Scenario::TokensDown | Scenario::TokensHang => {
            100
        }
        Scenario::RollOutDown | Scenario::RollOutErrors | Scenario::RollOutHang => 100 + scenario.fail_before_known(),
        // `bars.rs` checks these with 1,000 nodes.
        Scenario::Overload | Scenario::OverloadProxy | Scenario::Brownout | Scenario::PartialLimit | Scenario::Slow => u64::MAX,
        Scenario::SickNode => u64::MAX,
    };
    must(figures.failing_requests <= most_failing, format!("{} failing requests", figures.failing_requests));
    must(figures.peak_per_second <= u64::from(BUDGET_PER_SECOND), format!("{} pulls begun in a second", figures.peak_per_second));
    if matches!(scenario, Scenario::BlackHole | Scenario::BlobsHang | Scenario::TokensHang) {
        must(run.most_hanging <= 3, format!("{} resolutions hung at once", run.most_hanging));
    }
    if let Some(last) = figures.last_served_after_recovery_s {
        let step = match scenario {
            Scenario::LateTag => LATE_TAG_S,
            Scenario::RateLimit => 70.0,
            Scenario::RollOutDown | Scenario::RollOutErrors | Scenario::RollOutHang => IMAGES_APART_S,
            _ => LONGEST_STEP_S + 1.0,
        };
        let most = step + nodes as f64 / (f64::from(BUDGET_PER_SECOND) * 0.9);
        must(last <= most, format!("the last node was served after {last} s, not {most}"));
    }
    // A run that serves no node has no time of the last one.
    let served = match scenario {
        Scenario::BadTag => 0,
        Scenario::HubQuota => nodes.min(QUOTA),
        // Healthy nodes that are not served count as held, see below.
        Scenario::SickNode => figures.served as usize,
        _ => nodes,
    };
    must(figures.served == served as u64, format!("{} of {nodes} nodes served, not {served}", figures.served));
    if OUTAGES.contains(&scenario) || scenario == Scenario::SickNode {
        must(figures.refused_on_healthy_nodes == 0, format!("{} healthy nodes held", figures.refused_on_healthy_nodes));
    }
    broken
}

/// Scenarios in which the registry or a stage of it serves no node for a while.
const OUTAGES: [Scenario; 9] = [
    Scenario::Down,
    Scenario::BlackHole,
    Scenario::RollOutDown,
    Scenario::RollOutErrors,
    Scenario::RollOutHang,
    Scenario::BlobsDown,
    Scenario::BlobsHang,
    Scenario::TokensDown,
    Scenario::TokensHang,
];

const STORMS: [Scenario; 15] = [
    Scenario::BadTag,
    Scenario::LateTag,
    Scenario::Down,
    Scenario::BlackHole,
    Scenario::RateLimit,
    Scenario::HubQuota,
    Scenario::RollOut,
    Scenario::RollOutDown,
    Scenario::RollOutErrors,
    Scenario::RollOutHang,
    Scenario::SickNode,
    Scenario::BlobsDown,
    Scenario::BlobsHang,
    Scenario::TokensDown,
    Scenario::TokensHang,
];

#[test]
fn every_storm_stays_within_its_bars_for_every_seed() {
    for seed in 1..=3 {
        for scenario in STORMS {
            let wrong = broken(scenario, 60, &run(scenario, 60, seed, Options::default()));
            assert!(wrong.is_empty(), "seed {seed} {}: {wrong:?}", scenario.name());
        }
    }
}

#[test]
fn failing_requests_do_not_grow_with_the_fleet() {
    let of_a_stage = [(Scenario::BlobsDown, 1_000), (Scenario::BlobsHang, 300), (Scenario::TokensDown, 1_000), (Scenario::TokensHang, 300)];
    let of_all = [(Scenario::BadTag, 1_000), (Scenario::Down, 1_000), (Scenario::BlackHole, 300)];
    for (scenario, many) in of_all.into_iter().chain(of_a_stage) {
        let (small, large) = (run(scenario, 60, 3, Options::default()), run(scenario, many, 3, Options::default()));
        assert_eq!(broken(scenario, many, &large), Vec::<String>::new(), "{}", scenario.name());
        let (small, large) = (small.registry.failing(), large.registry.failing());
        assert!(large <= small + 3, "{}: {small} at 60 nodes, {large} at {many}", scenario.name());
    }
}

#[test]
fn same_seed_repeats_the_run_to_the_last_event() {
    for scenario in STORMS {
        let (one, two) = (run(scenario, 50, 9, Options::default()), run(scenario, 50, 9, Options::default()));
        assert_eq!((one.hash, one.events), (two.hash, two.events), "{}", scenario.name());
        assert_ne!(one.hash, run(scenario, 50, 10, Options::default()).hash);
    }
}

#[test]
fn sick_nodes_on_an_idle_registry_do_not_block_others() {
    for seed in 1..=3 {
        let options = Options { second_wave: Some(Duration::from_secs(300)), ..Options::default() };
        let wrong = broken(Scenario::SickNode, 100, &run(Scenario::SickNode, 100, seed, options));
        assert!(wrong.is_empty(), "seed {seed}: {wrong:?}");
    }
}

fn liar(planted_bug: Option<PlantedBug>) -> Options {
    Options { lies: Some(Lies::AllKinds), planted_bug, second_wave: Some(Duration::from_secs(150)), ..Options::default() }
}

#[test]
fn lying_node_does_not_block_others() {
    for seed in 1..=3 {
        let wrong = broken(Scenario::SickNode, 100, &run(Scenario::SickNode, 100, seed, liar(None)));
        assert!(wrong.is_empty(), "seed {seed}: {wrong:?}");
    }
}

#[test]
fn without_a_bus_nodes_do_as_kubelet_and_are_all_served_after_it() {
    let nodes = 60;
    let always = Options { bus_down: Some((Duration::ZERO, END)), ..Options::default() };
    let (without_bus, kubelet) = (run(Scenario::Down, nodes, 2, always), kubelet::run(Scenario::Down, nodes, END, 2));
    let (without_bus, kubelet) = (without_bus.registry.figures(END), kubelet.figures(END));
    assert!(without_bus.failing_requests <= kubelet.failing_requests + nodes as u64, "{without_bus:?} {kubelet:?}");
    assert!(without_bus.failing_requests >= kubelet.failing_requests / 2, "the nodes go on asking: {without_bus:?} {kubelet:?}");
    for outage in [(30, 90), (600, 700), (655, 665)] {
        let between = (Duration::from_secs(outage.0), Duration::from_secs(outage.1));
        let figures = run(Scenario::Down, nodes, 2, Options { bus_down: Some(between), ..Options::default() }).registry.figures(END);
        assert_eq!(figures.served, nodes as u64, "{outage:?}: {figures:?}");
        assert!(figures.failing_requests <= kubelet.failing_requests, "{outage:?}: {figures:?}");
    }
}

#[test]
fn each_planted_bug_is_found() {
    let plain = |planted_bug| Options { planted_bug: Some(planted_bug), ..Options::default() };
    // What each bug breaks: too many requests, or nodes that wait too long.
    let (asks, waits): (&[&str], &[&str]) = (&["failing requests", "hung at once"], &["was served after", "nodes served", "nodes held"]);
    let planted = [
        (PlantedBug::LeasesIgnored, Scenario::BadTag, plain(PlantedBug::LeasesIgnored), asks),
        (PlantedBug::LeasesIgnored, Scenario::BlackHole, plain(PlantedBug::LeasesIgnored), asks),
        (PlantedBug::SuccessIgnored, Scenario::Down, plain(PlantedBug::SuccessIgnored), waits),
        (PlantedBug::LeasesIgnored, Scenario::BlobsHang, plain(PlantedBug::LeasesIgnored), asks),
        (PlantedBug::LeasesIgnored, Scenario::TokensDown, plain(PlantedBug::LeasesIgnored), asks),
        (PlantedBug::SuccessIgnored, Scenario::BlobsDown, plain(PlantedBug::SuccessIgnored), waits),
        (PlantedBug::TrustsEveryReporter, Scenario::SickNode, liar(Some(PlantedBug::TrustsEveryReporter)), waits),
    ];
    for (planted_bug, scenario, options, breaks) in planted {
        let shows = |what: &String| breaks.iter().any(|part| what.contains(part));
        let found = (1..=5).any(|seed| broken(scenario, 60, &run(scenario, 60, seed, options.clone())).iter().any(shows));
        assert!(found, "{planted_bug:?} in {} was not found by {breaks:?}", scenario.name());
    }
}

/// One of this many seeds is run twice; both runs must be the same.
const TWICE: u64 = 5;

/// How many seeds to run (`FLEET_SEEDS`): `cargo xtask test` sets 500, an ordinary `cargo test` none.
fn seeds_asked() -> Option<u64> {
    std::env::var("FLEET_SEEDS").ok().and_then(|value| value.parse().ok())
}

/// The storm of a seed; in every third one the bus is down for a while.
fn storm_of(seed: u64) -> (Scenario, Options) {
    let scenario = STORMS[(seed % STORMS.len() as u64) as usize];
    let down_from = Duration::from_secs(20 + seed * 37 % 600);
    let bus_down = seed.is_multiple_of(3).then(|| (down_from, down_from + Duration::from_secs(5 + seed * 13 % 90)));
    (scenario, Options { bus_down, ..Options::default() })
}

/// The violations of a seed's storm.
fn wrong(seed: u64, nodes: usize) -> Vec<String> {
    let (scenario, options) = storm_of(seed);
    let was_down = options.bus_down.is_some();
    let one = run(scenario, nodes, seed, options.clone());
    let mut wrong = Vec::new();
    if seed.is_multiple_of(TWICE) {
        let two = run(scenario, nodes, seed, options);
        if (one.hash, one.events) != (two.hash, two.events) {
            wrong.push("two runs differ".to_owned());
        }
    }
    if was_down {
        // Without the bus each node uses kubelet's rule, and must never be worse than with that rule.
        let (ours, kubelet) = (one.registry.figures(END), kubelet::run(scenario, nodes, END, seed).figures(END));
        // While the registry serves others, a sick node makes another attempt within seconds. By its rule it does so after 40 failures in a
        // row at most; in these storms it makes at most 25 attempts more than by kubelet's rule.
        let quick = (0..nodes).filter(|node| scenario.is_sick(*node)).count() as u64 * 25;
        // By kubelet's rule, which has no budget, a small fleet has all images before the outage begins; then another bar applies.
        let by_kubelet =
            if kubelet.failing_requests == 0 && scenario.breaks_at() > Duration::ZERO { 100 } else { kubelet.failing_requests };
        if ours.served < kubelet.served || ours.failing_requests > by_kubelet + nodes as u64 + quick {
            wrong.push(format!("worse than kubelet: {ours:?}, {kubelet:?}"));
        }
    } else {
        wrong.extend(broken(scenario, nodes, &one));
    }
    wrong.into_iter().map(|what| format!("{} seed {seed}, {nodes} nodes: {what}", scenario.name())).collect()
}

#[test]
fn seeded_storms_repeat_themselves_and_stay_within_their_bars() {
    let fleets: Vec<(u64, usize)> = if let Some(seeds) = seeds_asked() {
        let large = if seeds >= 500 { 5 } else { 0 };
        (1..=large).map(|seed| (seed * 7, 1_000)).chain((1..=seeds).map(|seed| (seed, 50))).collect()
    } else {
        (1..=16).map(|seed| (seed, 20)).collect()
    };
    let next = std::sync::atomic::AtomicUsize::new(0);
    let work = || {
        let mut found = Vec::new();
        while let Some((seed, nodes)) = fleets.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed)) {
            found.extend(wrong(*seed, *nodes));
        }
        found
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let found: Vec<String> = std::thread::scope(|scope| {
        let working: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        working.into_iter().flat_map(|one| one.join().unwrap()).collect()
    });
    assert!(found.is_empty(), "{} of {}:\n{}", found.len(), fleets.len(), found.join("\n"));
}
