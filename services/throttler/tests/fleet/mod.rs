//! The fleet's budgets in a small simulated fleet.
//!
//! Contracts, among nodes that reach a leader: never more pulls at once than the budget, never more begun in any second, never one more
//! than a quota leaves; all pulls are served in the end; and each checker finds the bug that is planted for it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod one_node;
mod random_faults;
mod world;

use std::time::Duration;

use throttler::core::budget::BudgetPolicy;
use world::{Plan, Seen, World};

fn most_in_a_second(begun: &[Duration]) -> usize {
    let second = Duration::from_secs(1);
    (0..begun.len()).map(|from| begun[from..].iter().take_while(|at| **at < begun[from] + second).count()).max().unwrap_or(0)
}

#[test]
fn a_healthy_fleet_begins_at_the_rate_and_all_are_served() {
    let plan = Plan { nodes: 300, requests_per_node: 3, ..Plan::default() };
    let seen = World::run(plan, 1);
    assert_eq!((seen.served, seen.alone, seen.refused, seen.leaders), (900, 0, 0, 1));
    assert!(most_in_a_second(&seen.begun) <= 200, "{} in a second", most_in_a_second(&seen.begun));
    let last = *seen.begun.last().expect("a pull began");
    // A budget begins at a twentieth of its rate, which doubles up to the cap within 2 s as long as nothing fails.
    assert!(last < Duration::from_millis(1_500 + 2_000 + 900 * 1_000 / 185), "the last began at {last:?}");
}

#[test]
fn a_quota_of_a_hundred_grants_a_hundred_and_states_the_wait_to_the_rest() {
    let hours = Duration::from_secs(6 * 3_600);
    let plan = Plan { nodes: 300, quota: Some((100, hours)), lasts: Duration::from_secs(1_800), ..Plan::default() };
    let seen = World::run(plan, 1);
    assert_eq!((seen.served, seen.over_quota, seen.alone), (100, 0, 0));
    assert!(seen.longest_stated > hours && seen.longest_stated < 3 * hours, "{:?}", seen.longest_stated);
}

/// Two addresses of one egress, each with a quota of six. The fleet uses both, and the quota of one address holds back no node of the
/// other.
#[test]
fn a_quota_counts_for_the_nodes_behind_one_address() {
    let hours = Duration::from_secs(6 * 3_600);
    let pulls = |sources| Plan { nodes: 6, sources, requests_per_node: 4, quota: Some((6, hours)), ..Plan::default() };
    for seed in 0..10 {
        let (one, two) = (World::run(pulls(1), seed), World::run(pulls(2), seed));
        assert_eq!((one.served, one.over_quota), (6, 0), "seed {seed}");
        assert_eq!((two.served, two.over_quota), (12, 0), "seed {seed}");
    }
}

/// No leader knows what a node without a leader uses of a quota: one pull that is granted for it is refused, and no other for the same.
#[test]
fn leader_stays_within_the_quota_if_a_node_without_leader_used_some() {
    let (quota, requested_within) = (Some((15, Duration::from_secs(600))), Duration::from_secs(50));
    let plan = Plan { nodes: 24, requested_within, first_cut_for: Duration::from_secs(80), quota, ..Plan::default() };
    let seen: Vec<Seen> = (0..20).map(|seed| World::run(plan.clone(), seed)).collect();
    assert!(seen.iter().all(|seen| seen.begun.len() <= 15), "{:?}", seen.iter().map(|seen| seen.begun.len()).collect::<Vec<_>>());
    assert!(seen.iter().any(|seen| seen.alone > 0 && seen.over_quota > 0), "a node alone has taken some before");
}

#[test]
fn when_a_window_is_over_the_rest_are_served() {
    let plan = Plan { nodes: 10, quota: Some((6, Duration::from_secs(30))), ..Plan::default() };
    let seen = World::run(plan, 1);
    assert_eq!((seen.served, seen.over_quota), (10, 0));
}

#[test]
fn no_more_at_once_than_allowed() {
    let policy = BudgetPolicy { at_once: 5, ..BudgetPolicy::default() };
    let plan = Plan { nodes: 40, policy, pull_takes: Duration::from_secs(1), ..Plan::default() };
    let seen = World::run(plan, 1);
    assert_eq!((seen.served, seen.most_at_once), (40, 5));
}

/// If each answer takes long, it is awaited for as long, because a leader that is slow to reach is better than none.
#[test]
fn all_nodes_are_served_by_the_leader_on_a_slow_bus() {
    let ways = [2, 20, 100, 200, 400, 800].map(Duration::from_millis);
    for (at_once, per_second, far_nodes) in [(0, 3.0, 6), (0, 3.0, 2), (0, 200.0, 6), (3, 3.0, 6), (3, 200.0, 6), (3, 200.0, 2)] {
        for (one_way, seed) in ways.into_iter().flat_map(|way| (0..5).map(move |seed| (way, seed))) {
            let policy = BudgetPolicy { per_second, at_once, ..BudgetPolicy::default() };
            let plan = Plan { nodes: 6, requests_per_node: 3, policy, one_way, far_nodes, ..Plan::default() };
            let seen = World::run(plan, seed);
            let case = format!("{at_once} at once, {per_second} a second, {far_nodes} are {one_way:?} away, seed {seed}");
            assert_eq!((seen.served, seen.alone), (18, 0), "{case}");
            let (most, last) = (most_in_a_second(&seen.begun), *seen.begun.last().expect("a pull began"));
            assert!(last <= Duration::from_secs(12) + one_way * 30, "{case}: the last began at {last:?}");
            // After late answers, pulls begin in another second than the one in which they were granted.
            assert!(most as f64 <= per_second * 2.0, "{case}: {most} began within a second");
        }
    }
}

#[test]
fn a_leader_of_a_wiped_bucket_accepts_its_own_answers() {
    let requested_within = Duration::from_secs(60);
    let plan = Plan { nodes: 3, requests_per_node: 100, requested_within, wiped_at: Some(Duration::from_secs(10)), ..Plan::default() };
    for seed in 0..10 {
        let seen = World::run(plan.clone(), seed);
        assert_eq!((seen.served, seen.alone, seen.leaders), (300, 0, 2), "seed {seed}");
    }
}
