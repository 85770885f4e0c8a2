//! Clearance that was given and not used: when it lapses because other nodes fail, or because the node has received `Retry-After`.

use std::time::Duration;

use backoff_tracker::core::knowledge::{AttemptFailure, Finding, Input, KeyInView, Outcome, RequestId, Target};
use contract::{AttemptId, FailureClass};

use super::node::{Node, REQUEST, endpoint, failed, failure, image, key, target};

/// A node had clearance by its own rule while the bus was lost, and waits for its permit. The bus is back, and others fail.
#[test]
fn unused_clearance_lapses_when_others_fail_unless_the_node_is_exempt() {
    for (paused, begun, lapses) in [(false, false, 1), (true, false, 0), (false, true, 0)] {
        let mut node = Node::of(20);
        if paused {
            node.give(Input::Pause { registry: None, left: Duration::from_secs(600), by: "me".to_owned() });
        }
        node.give(Input::BusLost);
        node.until(20.0);
        node.ask();
        assert!(node.is_clear(), "{:?}", node.decision);
        let attempt = AttemptId::random(&mut node.random);
        if begun {
            node.give(Input::AttemptStarted { request: REQUEST, attempt, trace: None });
        }
        for reporter in ["n1", "n2", "n3"] {
            node.receive(reporter, endpoint(), failed(1));
        }
        assert_eq!(node.abandoned, 0, "without a bus each goes by its own rule");
        node.give(Input::BusBack);
        assert_eq!(node.abandoned, lapses, "paused: {paused}, begun: {begun}");
        node.receive("n4", endpoint(), failed(1));
        assert_eq!(node.abandoned, lapses, "once");
        if lapses > 0 {
            assert_eq!(node.core.next_wake(), None, "nothing is asked of the bus for it until its turn comes");
            node.ask();
            assert_eq!(node.held().learned_by.as_str(), "n4");
        }
    }
}

#[test]
fn an_unconfirmed_failure_ends_no_clearance() {
    let mut node = Node::of(20);
    node.give(Input::BusLost);
    node.until(20.0);
    node.ask();
    node.give(Input::BusBack);
    for (reporter, lapses) in [("n1", 0), ("n1", 0), ("n2", 1)] {
        node.receive(reporter, image(), failed(1));
        assert_eq!(node.abandoned, lapses, "{reporter}");
    }
}

/// The node uses its own rule, and no permit is granted either: it has continued without one by then.
#[test]
fn clearance_of_a_node_that_just_missed_an_answer_of_the_bus_does_not_lapse() {
    let mut node = Node::of(20);
    node.bus_answers = false;
    node.until(1.0);
    node.ask();
    node.until(1.25);
    assert!(node.is_clear(), "{:?}", node.decision);
    for (second, lapses) in [(2.0, 0), (10.0, 0), (16.2, 0), (16.3, 1)] {
        node.until(second);
        for reporter in ["n1", "n2", "n3"] {
            node.receive(reporter, endpoint(), failed(3));
        }
        assert_eq!(node.abandoned, lapses, "at {second} s");
    }
}

/// The bus is back by then, or the pull has continued without a permit: clearance that is 30 s old shows nothing about the registry.
#[test]
fn clearance_without_an_answer_of_the_bus_is_asked_for_again_after_15_s_also_when_the_next_attempt_is_due() {
    let mut node = Node::of(20);
    node.bus_answers = false;
    node.until(1.0);
    node.ask();
    node.until(1.25);
    assert!(node.is_clear(), "{:?}", node.decision);
    for reporter in ["n1", "n2", "n3"] {
        node.receive(reporter, endpoint(), failed(3));
    }
    node.until(16.2);
    let due = node.core.entries(node.now).iter().all(|entry| entry.next_attempt < node.now);
    assert!(due && !node.core.entries(node.now).is_empty(), "{:?}", node.core.entries(node.now));
    assert_eq!(node.abandoned, 0);
    node.until(20.0);
    assert_eq!(node.abandoned, 1);
}

/// The registry serves others, so no entry binds the pulls of this node. Its second failure is refuted, and so is not published.
#[test]
fn unused_clearance_lapses_when_the_node_receives_retry_after_unless_it_is_short() {
    for (seconds, lapses) in [(60, 1), (1, 0)] {
        let (mut node, waiting) = (Node::of(20), RequestId(8));
        let other = || Target { reference: "r/b:1".to_owned(), repository: "b".to_owned(), ..target() };
        for round in 1..=2 {
            for (reporter, in_view) in
                ["n1", "n2"].into_iter().flat_map(|node| [(node, endpoint()), (node, KeyInView::BudgetOwner("o".to_owned()))])
            {
                node.receive(reporter, in_view, Finding::Succeeded);
            }
            node.until(node.now.as_secs_f64() + 1.0);
            node.ask();
            assert!(node.is_clear(), "{:?}", node.decision);
            let attempt = node.begin();
            node.decision = None;
            node.give(Input::Request { request: waiting, key: key("r/b:1"), target: other() });
            assert!(node.is_clear(), "{:?}", node.decision);
            let limited = AttemptFailure { retry_after_ms: Some(seconds * 1_000), ..failure(FailureClass::RateLimited) };
            node.end(attempt, Outcome::Failed(limited));
            assert_eq!(node.abandoned, round * lapses, "Retry-After {seconds}, for the {round}. time");
            [waiting, REQUEST].into_iter().for_each(|request| node.give(Input::Withdraw(request)));
            node.until(node.now.as_secs_f64() + 65.0);
        }
    }
}
