//! The fleet's budgets in a small simulated fleet.
//!
//! Contracts, among nodes that reach a leader: never more pulls at once than the budget, never more begun in any second, never one
//! more than a quota leaves; everybody is served in the end; and each checker finds the bug that is planted for it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod world;

use std::time::Duration;

use throttler::core::budget::BudgetPolicy;
use world::{Plan, Seen, World};

fn most_in_a_second(begun: &[Duration]) -> usize {
    let second = Duration::from_secs(1);
    (0..begun.len()).map(|from| begun[from..].iter().take_while(|at| **at < begun[from] + second).count()).max().unwrap_or(0)
}

#[test]
fn a_healthy_fleet_begins_at_the_rate_and_everybody_is_served() {
    let plan = Plan { nodes: 300, wishes_per_node: 3, ..Plan::default() };
    let seen = World::run(plan, 1);
    assert_eq!((seen.served, seen.alone, seen.refused, seen.leaders), (900, 0, 0, 1));
    assert!(most_in_a_second(&seen.begun) <= 200, "{} in a second", most_in_a_second(&seen.begun));
    let last = *seen.begun.last().expect("somebody began");
    assert!(last < Duration::from_millis(1_500 + 900 * 1_000 / 185), "the last began at {last:?}");
}

#[test]
fn a_quota_of_a_hundred_lets_a_hundred_go_and_states_the_wait_to_the_rest() {
    let hours = Duration::from_secs(6 * 3_600);
    let plan = Plan { nodes: 300, quota: Some((100, hours)), lasts: Duration::from_secs(1_800), ..Plan::default() };
    let seen = World::run(plan, 1);
    assert_eq!((seen.served, seen.over_quota, seen.alone), (100, 0, 0));
    assert!(seen.longest_stated > hours && seen.longest_stated < 3 * hours, "{:?}", seen.longest_stated);
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

fn _unused(seen: &Seen) -> usize {
    seen.troubles
}
