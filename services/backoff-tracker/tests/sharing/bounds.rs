//! If there is no room, or other nodes cannot be reached, the node uses kubelet's rule, and its answers show that.

use backoff_tracker::Share;
use backoff_tracker::core::knowledge::MAX_REQUESTS;
use bus::Messaging as _;
use contract::messages::backoff_tracker::{BackoffAnswer, ClearBackoff, Clearance, ReportAttempt};

use super::fleet::{Nodes, PATIENCE_MS, ask, ids, key, not_found, pass};

const IMAGE: &str = "r.example/a:1";
/// Clearances that a node remembers.
const ROOM: u64 = MAX_REQUESTS as u64;

#[actix::test]
async fn as_many_standing_pulls_as_are_remembered_refuse_no_other_pull() {
    tokio::time::pause();
    let fleet = Nodes::start(1).await;
    let node = &fleet.nodes[0];
    let stands = |number: u64| {
        let (clearance, attempt) = ids(number);
        ask(clearance, attempt, &format!("r.example/a:{number}"), 0, true)
    };
    for number in 0..ROOM {
        node.put(stands(number)).await;
    }
    let one_more = node.put(stands(ROOM)).await;
    assert!(matches!(&one_more, Clearance::Waiting { held: Some(held) } if held.cause.contains("cancel")), "{one_more:?}");
    let (clearance, attempt) = ids(ROOM + 1);
    let clearance = node.clearance(clearance, attempt, "r.example/b:1", PATIENCE_MS).await;
    assert!(matches!(clearance, Clearance::Granted { for_all: false, .. }), "{clearance:?}");
    let reported =
        node.put(ReportAttempt { key: key("r.example/b:1"), attempt, attempt_span: None, failure: Some(not_found()), target: None }).await;
    assert_eq!(reported.next_attempt_ms, Some(10_000), "its own rule moves");
}

#[actix::test]
async fn a_clear_without_a_bus_is_answered_as_applied_on_this_node_only() {
    tokio::time::pause();
    let fleet = Nodes::start(2).await;
    let clear = || ClearBackoff { what: "r.example/a:1".to_owned(), by: "ops".to_owned() };
    assert!(fleet.nodes[0].put(clear()).await.still_binding.is_empty());
    let alone = fleet.join("alone", Share::Enforce);
    alone.connection.drain().await;
    pass(5).await;
    let still = alone.put(clear()).await.still_binding;
    assert!(still.len() == 1 && still[0].contains("the bus cannot be reached"), "{still:?}");
}

#[actix::test]
async fn a_report_that_a_full_bus_did_not_store_reaches_the_others_when_there_is_room() {
    tokio::time::pause();
    let fleet = Nodes::start(2).await;
    let (clearance, attempt) = ids(1);
    let clearance = fleet.nodes[0].clearance(clearance, attempt, IMAGE, PATIENCE_MS).await;
    assert!(matches!(clearance, Clearance::Granted { .. }), "{clearance:?}");
    fleet.bus.set_full(true);
    fleet.nodes[0].ends(1, IMAGE, Some(not_found())).await;
    pass(5).await;
    fleet.bus.set_full(false);
    assert_eq!(fleet.nodes[1].check(IMAGE).await, BackoffAnswer::Allowed, "no other node has received it");
    fleet.see(2).await;
    pass(5).await;
    fleet.nodes[1].held(IMAGE).await;
}
