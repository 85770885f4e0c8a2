//! What a storm must come to at the size that is promised: 1,000 nodes, 30 minutes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::time::Duration;

use simulation::figures::Figures;
use simulation::fleet::{self, Options, Run};
use simulation::registry::BUDGET_PER_SECOND;
use simulation::scenario::Scenario;

const END: Duration = Duration::from_secs(30 * 60);

fn storm(scenario: Scenario, nodes: usize) -> (Run, Figures) {
    let run = fleet::run(scenario, nodes, END, 1, Options::default());
    let figures = run.registry.figures(END);
    assert!(figures.peak_per_second <= u64::from(BUDGET_PER_SECOND), "{}: {figures:?}", scenario.name());
    (run, figures)
}

#[test]
fn a_bad_tag_costs_40_requests() {
    let (_, figures) = storm(Scenario::BadTag, 1_000);
    assert!(figures.failing_requests <= 40 && figures.served == 0, "{figures:?}");
}

#[test]
fn a_bad_tag_costs_ten_thousand_nodes_no_more() {
    let (_, figures) = storm(Scenario::BadTag, 10_000);
    assert!(figures.failing_requests <= 40, "{figures:?}");
}

#[test]
fn a_late_tag_is_with_all_after_75_s() {
    let (_, figures) = storm(Scenario::LateTag, 1_000);
    assert!(figures.served == 1_000 && figures.last_served_after_recovery_s <= Some(75.0), "{figures:?}");
    assert!(figures.failing_requests <= 40, "{figures:?}");
}

#[test]
fn a_registry_that_refuses_costs_100_requests_and_all_are_served_15_s_after_it() {
    let (_, figures) = storm(Scenario::Down, 1_000);
    assert!(figures.served == 1_000 && figures.last_served_after_recovery_s <= Some(15.0), "{figures:?}");
    assert!(figures.failing_requests <= 100 && figures.refused_on_healthy_nodes == 0, "{figures:?}");
}

#[test]
fn a_black_hole_costs_100_requests_three_at_a_time() {
    let (run, figures) = storm(Scenario::BlackHole, 1_000);
    assert!(figures.served == 1_000 && figures.last_served_after_recovery_s <= Some(15.0), "{figures:?}");
    assert!(figures.failing_requests <= 100 && run.most_hanging <= 3, "{figures:?}");
}

#[test]
fn a_rate_limit_is_obeyed() {
    let (_, figures) = storm(Scenario::RateLimit, 1_000);
    // Retry-After 60 for 5 minutes, and the few that asked in the first second.
    assert!(figures.served == 1_000 && figures.failing_requests <= 15, "{figures:?}");
    assert!(figures.last_served_after_recovery_s <= Some(60.0 + 2.0 + 5.5), "{figures:?}");
}

#[test]
fn a_quota_is_used_up_without_a_429_and_the_rest_know_how_long_they_wait() {
    let (run, figures) = storm(Scenario::HubQuota, 300);
    assert_eq!((figures.failing_requests, figures.served), (0, 100));
    assert_eq!(run.stated, (200, 0));
}

#[test]
fn a_roll_out_takes_what_the_budget_takes() {
    let (run, figures) = storm(Scenario::RollOut, 1_000);
    assert_eq!((figures.failing_requests, figures.served, figures.refused_on_healthy_nodes), (0, 1_000, 0));
    let last = run.registry.last_served().unwrap();
    // The budget alone takes 5 s; half a second for asking, 5 % that the leader leaves free, a second for who leads and looks first.
    assert!(last <= Duration::from_millis(500 + 5_000 * 100 / 95 + 1_000), "{last:?}");
}

#[test]
fn sick_nodes_keep_nobody() {
    let (_, figures) = storm(Scenario::SickNode, 1_000);
    assert_eq!((figures.served, figures.refused_on_healthy_nodes), (995, 0));
}
