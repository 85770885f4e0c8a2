//! What reports may do to others: lies, nodes that are cut off, a bus that takes its time; and planted bugs that show it.
#![allow(clippy::print_stderr, reason = "tests speak on stderr")]

use std::time::Duration;

use backoff_tracker::core::knowledge::Fault;
use simulation::fleet::{self, Options, RoundTrip};
use simulation::scenario::Scenario;

const END: Duration = Duration::from_secs(15 * 60);
const HALF_AN_HOUR: Duration = Duration::from_secs(30 * 60);

/// What an outage has cost.
#[derive(Clone, Copy, Debug)]
struct Cost {
    failing: u64,
    /// Of the nodes that say what is so, the longest after healing; infinite if one has nothing.
    served_after_s: f64,
}

fn outage(scenario: Scenario, nodes: usize, options: Options) -> Cost {
    let figures = fleet::run(scenario, nodes, END, 1, options).registry.figures(END);
    let after = figures.last_served_after_recovery_s.filter(|_| figures.served == nodes as u64);
    Cost { failing: figures.failing_requests, served_after_s: after.unwrap_or(f64::INFINITY) }
}

/// The longest that a node waits whose registry is well, and that asks some time in half an hour in which the last of all nodes lies.
fn longest_wait_among_lies(seed: u64, fault: Option<Fault>) -> Option<Duration> {
    let one_by_one = Some(HALF_AN_HOUR - Duration::from_secs(120));
    let options = Options { liar: true, one_by_one, fault, ..Options::default() };
    fleet::run(Scenario::RollOut, 50, HALF_AN_HOUR, seed, options).registry.longest_wait_of_first(49)
}

#[test]
fn one_liar_among_fifty_delays_no_pull_by_more_than_10_s() {
    let kept = |wait: Option<Duration>| wait.is_some_and(|wait| wait <= Duration::from_secs(10));
    for seed in 1..=5 {
        let wait = longest_wait_among_lies(seed, None);
        eprintln!("seed {seed}: the longest wait among lies is {wait:?}");
        assert!(kept(wait), "seed {seed}: {wait:?}");
    }
    assert!((1..=5).any(|seed| !kept(longest_wait_among_lies(seed, Some(Fault::BelievesAnybody)))), "the planted bug is found");
}

#[test]
fn one_liar_among_fifty_neither_ends_an_outage_nor_lengthens_it() {
    let lies = |fault| outage(Scenario::Down, 50, Options { liar: true, fault, ..Options::default() });
    let (without, with, closes) = (outage(Scenario::Down, 50, Options::default()), lies(None), lies(Some(Fault::AnybodyCloses)));
    eprintln!("without lies {without:?}, with {with:?}, where one success closes {closes:?}");
    let most = without.failing * 3 / 2;
    assert!(with.failing <= most && with.served_after_s <= 15.0, "{with:?}");
    assert!(closes.failing > most, "the planted bug is found: {closes:?}");
}

#[test]
fn a_rack_that_is_cut_off_and_reports_one_by_one_puts_no_probe_off() {
    let nodes = if large() { 1_000 } else { 200 };
    let rack = |sick_rack, fault| outage(Scenario::Down, nodes, Options { sick_rack, fault, ..Options::default() });
    let (without, with) = (rack(0, None), rack(nodes / 10, None));
    eprintln!("{nodes} nodes: without a rack {without:?}, with one of {} {with:?}", nodes / 10);
    // It may move the beat of the probes by one step.
    assert!(with.failing <= without.failing + 10 && with.served_after_s <= without.served_after_s + 5.0, "{with:?}, without {without:?}");
    let bug = outage(Scenario::Down, 50, Options { sick_rack: 10, fault: Some(Fault::AnybodyPostpones), ..Options::default() });
    assert!(bug.served_after_s > 30.0, "the planted bug is found: {bug:?}");
}

/// Leases and reports alone: the fleet's budget has no cap here.
#[test]
fn an_outage_on_a_slow_bus_is_no_worse_than_on_a_quick_one() {
    let on = |scenario, round_trip, fault| outage(scenario, 100, Options { without_budget: true, round_trip, fault, ..Options::default() });
    let milliseconds = Duration::from_millis;
    let drawn = RoundTrip { least: milliseconds(5), most: milliseconds(400) };
    let slow = [5, 50, 400].map(|usual| RoundTrip::about(milliseconds(usual)));
    let mut broken = Vec::new();
    for scenario in [Scenario::Down, Scenario::BlackHole, Scenario::LateTag] {
        let quick = on(scenario, RoundTrip::default(), None);
        for round_trip in slow.into_iter().chain([drawn]) {
            let cost = on(scenario, round_trip, None);
            eprintln!("{} {round_trip:?}: {cost:?}, quick {quick:?}", scenario.name());
            // How long it takes is mostly chance: when in a step between two probes the registry heals.
            let longest_step = if scenario == Scenario::LateTag { 65.0 } else { 8.8 };
            if cost.failing * 2 > quick.failing * 3 || cost.served_after_s > quick.served_after_s.max(longest_step) * 1.5 {
                broken.push(format!("{} {round_trip:?}: {cost:?}, quick {quick:?}", scenario.name()));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
    let bug = on(Scenario::Down, slow[2], Some(Fault::BusTakenForQuick));
    assert!(bug.failing > 135, "the planted bug is found: {bug:?}");
}

#[test]
fn a_bad_tag_costs_ten_nodes_two_requests_in_the_first_seconds() {
    let run = fleet::run(Scenario::BadTag, 10, Duration::from_secs(9), 1, Options::default());
    assert_eq!(run.registry.failing(), 2, "one finds out, one confirms");
    assert!(run.registry.requests().iter().all(|request| request.at <= Duration::from_secs(2)));
}

#[test]
fn an_overloaded_registry_serves_ten_thousand_nodes_in_about_its_own_time() {
    if !large() {
        return;
    }
    let end = Duration::from_secs(400);
    let run = fleet::run(Scenario::Overload, 10_000, end, 1, Options::default());
    let figures = run.registry.figures(end);
    eprintln!("{figures:?}");
    // 50 a second for 10,000 are 200 s.
    assert!(figures.served == 10_000 && figures.last_served_s <= Some(260.0), "{figures:?}");
    assert!(figures.failing_requests <= 2_500, "{figures:?}");
}

/// Fleets as large as is promised for are asked for.
fn large() -> bool {
    std::env::var("FLEET_LARGE").is_ok_and(|large| large != "0")
}
