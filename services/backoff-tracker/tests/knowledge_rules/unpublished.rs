//! Results that a node had without a bus, when the bus is back.

use std::time::Duration;

use backoff_tracker::core::knowledge::{AttemptFailure, Finding, Input, Outcome};
use contract::{FailureClass, Stage};

use super::node::{Node, endpoint, failed, failure};

/// Later than any node's turn to publish, in seconds.
const PUBLISHED_BY: f64 = 10.0;

/// A node without a bus that could not reach the registry 20 s after the bus was lost.
fn node_that_failed_without_bus() -> Node {
    let mut node = Node::of(1_000);
    node.give(Input::BusLost);
    node.until(20.0);
    fail(&mut node);
    assert_eq!(node.published, [], "without a bus nothing is published");
    node
}

fn fail(node: &mut Node) {
    node.ask();
    assert!(node.is_clear(), "{:?}", node.decision);
    let attempt = node.begin();
    node.end(attempt, Outcome::Failed(AttemptFailure { authoritative: false, ..failure(FailureClass::RegistryUnavailable) }));
}

fn bus_comes_back(node: &mut Node) {
    node.give(Input::BusBack);
    node.give(Input::CaughtUp);
}

fn published(node: &mut Node) -> usize {
    let until = node.now.as_secs_f64() + PUBLISHED_BY;
    node.until(until);
    node.published.iter().filter(|report| report.backoff_key.in_view() == &endpoint()).count()
}

#[test]
fn three_nodes_publish_a_failure_that_all_had_without_a_bus_and_no_fourth() {
    for (others, expected) in [(0, 1), (1, 1), (2, 1), (3, 0)] {
        let mut node = node_that_failed_without_bus();
        node.until(25.0);
        node.give(Input::BusBack);
        ["n1", "n2", "n3"].into_iter().take(others).for_each(|other| node.receive(other, endpoint(), failed(1)));
        node.give(Input::CaughtUp);
        assert_eq!(published(&mut node), expected, "{others} others");
        assert!(node.ages.iter().all(|age| *age >= Duration::from_secs(5)), "as old as it is: {:?}", node.ages);
    }
}

/// Also if the others publish after the stored reports were read and before this node's turn.
#[test]
fn kept_reports_are_published_after_the_stored_ones_are_read_and_only_if_still_needed() {
    let mut node = node_that_failed_without_bus();
    node.give(Input::BusBack);
    assert_eq!(published(&mut node), 0);
    node.give(Input::CaughtUp);
    for other in ["n1", "n2", "n3"] {
        node.receive(other, endpoint(), failed(1));
    }
    assert_eq!(published(&mut node), 0);
}

#[test]
fn a_bus_that_is_lost_again_is_waited_for_again() {
    let mut node = node_that_failed_without_bus();
    bus_comes_back(&mut node);
    node.give(Input::BusLost);
    node.give(Input::CaughtUp);
    assert_eq!(published(&mut node), 0);
    bus_comes_back(&mut node);
    assert_eq!(published(&mut node), 1);
}

#[test]
fn an_old_kept_failure_is_published_unless_another_node_has_succeeded_since() {
    let mut node = node_that_failed_without_bus();
    node.until(60.0);
    bus_comes_back(&mut node);
    assert_eq!(published(&mut node), 1, "40 s old, where the step is 2 s");
    let mut node = node_that_failed_without_bus();
    node.until(21.0);
    node.give(Input::BusBack);
    node.receive("n1", endpoint(), Finding::Succeeded);
    node.give(Input::CaughtUp);
    assert_eq!(published(&mut node), 0, "another has succeeded since");
}

#[test]
fn a_kept_success_is_published_if_others_know_a_failure_or_no_success() {
    // The report that is received when the bus is back, and its age in seconds.
    let (fails, succeeds) = (failed(1), Finding::Succeeded);
    let table = [
        (None, 1),
        (Some((&fails, 10)), 1),
        (Some((&fails, 0)), 1),
        (Some((&succeeds, 0)), 0),
        (Some((&succeeds, 1)), 0),
        (Some((&succeeds, 20)), 0),
        (Some((&succeeds, 30)), 1),
    ];
    for (received, expected) in table {
        let mut node = node_that_failed_without_bus();
        node.until(35.0);
        node.ask();
        assert!(node.is_clear(), "{:?}", node.decision);
        let attempt = node.begin();
        node.end(attempt, Outcome::Reached(Stage::Manifest));
        node.until(36.0);
        node.give(Input::BusBack);
        if let Some((finding, age)) = received {
            node.receive_late("n1", endpoint(), finding.clone(), Duration::from_secs(age));
        }
        node.give(Input::CaughtUp);
        let number = published(&mut node);
        assert_eq!(number, expected, "{received:?}: {:?}", node.published);
    }
}

/// A success is published if its failure was: otherwise its failure would stay refuted.
#[test]
fn a_node_that_published_a_failure_publishes_its_success_without_a_bus() {
    let mut node = Node::of(1_000);
    fail(&mut node);
    assert_eq!(node.published.len(), 1);
    node.give(Input::BusLost);
    node.until(30.0);
    node.ask();
    let attempt = node.begin();
    node.end(attempt, Outcome::Reached(Stage::Manifest));
    node.until(31.0);
    node.give(Input::BusBack);
    node.receive("n1", endpoint(), Finding::Succeeded);
    node.give(Input::CaughtUp);
    assert_eq!(published(&mut node), 2);
}
