//! Clocks that jump by 5 min: one node's delays may end early, but no node is refused longer, and nothing is stuck.

use std::time::Duration;

use backoff_tracker::Share;
use bus::memory::MemoryBus;
use clock::{Clock, Jumps};
use contract::messages::backoff_tracker::{BackoffAnswer, Clearance, SeeFleet};
use contract::messages::registrar::{FleetSeen, Place};

use super::fleet::{Node, Nodes, PATIENCE_MS, ids, not_found, pass, refused};

const IMAGE: &str = "r.example/a:1";
/// Kubelet's longest delay, with its jitter.
const LONGEST_MS: u64 = 450_000;
const MINUTES: i64 = 300;

/// Three nodes, and one more whose clock jumps.
async fn with_a_jumper() -> (Nodes, Node, Jumps) {
    let fleet = Nodes::start(3).await;
    let (clock, jumps) = Clock::jumping(Duration::from_secs(1_700_000_000));
    let jumper = fleet.join_with("jumper", Share::Enforce, &clock);
    let place = Place { alive: 4, alive_in_zone: 4, rank: Some(3) };
    jumper.put(SeeFleet(FleetSeen { place, digest: None })).await;
    pass(5).await;
    (fleet, jumper, jumps)
}

/// In the end an attempt is allowed on every node.
async fn comes_to_an_end(node: &Node, number: u64) {
    let (clearance, attempt) = ids(number);
    for _ in 0..600 {
        match node.clearance(clearance, attempt, IMAGE, PATIENCE_MS).await {
            Clearance::Granted { .. } => return node.ends(number, IMAGE, None).await,
            Clearance::Refused(held) => assert!(held.next_attempt_ms <= LONGEST_MS, "{held:?}"),
            _ => {}
        }
        pass(1_000).await;
    }
    panic!("it is held for ten minutes");
}

#[actix::test]
async fn a_wall_clock_that_is_set_changes_no_delay() {
    tokio::time::pause();
    for by in [MINUTES, -MINUTES] {
        let (fleet, jumper, jumps) = with_a_jumper().await;
        jumps.set_wall(by);
        jumper.fails(1, IMAGE, not_found()).await;
        pass(5).await;
        let (own, theirs) = (jumper.held(IMAGE).await, fleet.nodes[0].held(IMAGE).await);
        assert!(own.next_attempt_ms > 5_000 && own.next_attempt_ms <= 20_000, "{own:?}");
        assert!(theirs.learned_ms_ago < 1_000 && theirs.unconfirmed && theirs.next_attempt_ms == 0, "{theirs:?}");
        jumps.set_wall(-2 * by);
        let after = jumper.held(IMAGE).await;
        assert!(after.next_attempt_ms <= own.next_attempt_ms && own.next_attempt_ms - after.next_attempt_ms < 1_000, "{own:?} {after:?}");
        comes_to_an_end(&jumper, 2).await;
        comes_to_an_end(&fleet.nodes[1], 3).await;
    }
}

#[actix::test]
async fn a_node_that_slept_harms_no_other_node() {
    tokio::time::pause();
    let (fleet, jumper, jumps) = with_a_jumper().await;
    fleet.nodes[0].fails(1, IMAGE, not_found()).await;
    pass(5).await;
    let before = fleet.nodes[1].held(IMAGE).await;
    jumper.held(IMAGE).await;
    jumps.skip(Duration::from_secs(300));
    pass(5).await;
    let after = fleet.nodes[1].held(IMAGE).await;
    assert!(
        after.next_attempt_ms <= before.next_attempt_ms && before.next_attempt_ms - after.next_attempt_ms < 1_000,
        "{before:?} {after:?}"
    );
    comes_to_an_end(&jumper, 2).await;
    pass(5).await;
    for node in &fleet.nodes {
        assert_eq!(node.check(IMAGE).await, BackoffAnswer::Allowed, "its result is received");
    }
}

#[actix::test]
async fn a_node_that_sleeps_with_a_request_or_a_lead_delays_no_other_node() {
    tokio::time::pause();
    let (fleet, jumper, jumps) = with_a_jumper().await;
    let (clearance, attempt) = ids(1);
    let lead = jumper.clearance(clearance, attempt, IMAGE, PATIENCE_MS).await;
    assert!(matches!(lead, Clearance::Granted { for_all: true, .. }), "{lead:?}");
    jumps.skip(Duration::from_secs(300));
    comes_to_an_end(&fleet.nodes[0], 2).await;
    jumper.ends(1, IMAGE, Some(refused())).await;
    pass(5).await;
    comes_to_an_end(&jumper, 3).await;
}

/// Reports from just before or after the jump may count as old; some minutes later all are dated correctly.
#[actix::test]
async fn a_server_s_clock_that_is_set_ends_some_delays_early_and_is_forgotten_in_minutes() {
    tokio::time::pause();
    for by in [MINUTES, -MINUTES] {
        let (clock, jumps) = Clock::jumping(Duration::from_secs(1_700_000_000));
        let fleet = Nodes::on(MemoryBus::new(clock), 3).await;
        fleet.nodes[1].fails(1, "r.example/b:0", not_found()).await;
        pass(1_000).await;
        jumps.set_wall(by);
        fleet.nodes[0].fails(2, IMAGE, not_found()).await;
        pass(5).await;
        if let BackoffAnswer::Refused(held) = fleet.nodes[2].check(IMAGE).await {
            assert!(held.unconfirmed && held.next_attempt_ms == 0, "{held:?}");
        }
        comes_to_an_end(&fleet.nodes[2], 3).await;
        for number in 10..16 {
            fleet.nodes[1].fails(number, &format!("r.example/b:{number}"), not_found()).await;
            pass(40_000).await;
        }
        fleet.nodes[1].fails(4, "r.example/c:1", not_found()).await;
        pass(5).await;
        let held = fleet.nodes[2].held("r.example/c:1").await;
        assert!(held.unconfirmed && held.learned_ms_ago < 1_000, "set by {by} s: {held:?}");
    }
}

/// On a connection that was silent for a while, the first message is late.
#[actix::test]
async fn the_first_received_change_may_be_late_and_later_reports_are_dated_correctly() {
    const LATE: i64 = 3;
    tokio::time::pause();
    let (clock, jumps) = Clock::jumping(Duration::from_secs(1_700_000_000));
    let fleet = Nodes::on(MemoryBus::new(clock), 3).await;
    pass(5).await;
    jumps.set_wall(-LATE);
    fleet.nodes[1].fails(1, "r.example/b:0", not_found()).await;
    pass(5).await;
    jumps.set_wall(LATE);
    fleet.nodes[0].fails(2, IMAGE, not_found()).await;
    pass(5).await;
    let held = fleet.nodes[2].held(IMAGE).await;
    assert!(held.learned_ms_ago < 1_000 && held.unconfirmed, "{held:?}");
}
