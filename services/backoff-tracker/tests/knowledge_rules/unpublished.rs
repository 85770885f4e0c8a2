//! Results that a node had without a bus, when the bus is back.

use std::time::Duration;

use backoff_tracker::core::knowledge::{Failure, Finding, Input, Outcome};
use contract::{FailureClass, Stage};

use super::node::{Node, endpoint, failed, failure};

/// Later than any node's turn to publish, in seconds.
const TOLD_BY: f64 = 10.0;

/// A node without a bus that could not reach the registry 20 s after the bus was lost.
fn that_failed_alone() -> Node {
    let mut node = Node::of(1_000);
    node.give(Input::BusGone);
    node.until(20.0);
    fail(&mut node);
    assert_eq!(node.published, [], "there is nobody to tell");
    node
}

fn fail(node: &mut Node) {
    node.ask();
    assert!(node.is_clear(), "{:?}", node.told);
    let attempt = node.begin();
    node.end(attempt, Outcome::Failed(Failure { authoritative: false, ..failure(FailureClass::RegistryUnavailable) }));
}

fn comes_back(node: &mut Node) {
    node.give(Input::BusBack);
    node.give(Input::CaughtUp);
}

fn told(node: &mut Node) -> usize {
    let until = node.now.as_secs_f64() + TOLD_BY;
    node.until(until);
    node.published.iter().filter(|report| report.backoff_key.about() == &endpoint()).count()
}

#[test]
fn three_tell_of_a_failure_that_all_met_without_a_bus_and_no_fourth() {
    for (others, tells) in [(0, 1), (1, 1), (2, 1), (3, 0)] {
        let mut node = that_failed_alone();
        node.until(25.0);
        node.give(Input::BusBack);
        ["n1", "n2", "n3"].into_iter().take(others).for_each(|other| node.hear(other, endpoint(), failed(1)));
        node.give(Input::CaughtUp);
        assert_eq!(told(&mut node), tells, "{others} others");
        assert!(node.ages.iter().all(|age| *age >= Duration::from_secs(5)), "as old as it is: {:?}", node.ages);
    }
}

/// Also if the others publish after the stored reports were read and before this node's turn.
#[test]
fn nothing_is_told_before_all_that_is_stored_was_heard_and_not_what_was_told_meanwhile() {
    let mut node = that_failed_alone();
    node.give(Input::BusBack);
    assert_eq!(told(&mut node), 0);
    node.give(Input::CaughtUp);
    for other in ["n1", "n2", "n3"] {
        node.hear(other, endpoint(), failed(1));
    }
    assert_eq!(told(&mut node), 0);
}

#[test]
fn a_bus_that_is_gone_again_is_waited_for_again() {
    let mut node = that_failed_alone();
    comes_back(&mut node);
    node.give(Input::BusGone);
    node.give(Input::CaughtUp);
    assert_eq!(told(&mut node), 0);
    comes_back(&mut node);
    assert_eq!(told(&mut node), 1);
}

#[test]
fn a_failure_that_was_answered_is_not_told_and_an_old_one_is_as_it_waits_for_a_success() {
    let mut node = that_failed_alone();
    node.until(60.0);
    comes_back(&mut node);
    assert_eq!(told(&mut node), 1, "40 s old, where the step is 2 s");
    let mut node = that_failed_alone();
    node.until(21.0);
    node.give(Input::BusBack);
    node.hear("n1", endpoint(), Finding::Succeeded);
    node.give(Input::CaughtUp);
    assert_eq!(told(&mut node), 0, "another has succeeded since");
}

#[test]
fn a_success_is_told_where_others_know_of_a_failure_or_nobody_of_a_success() {
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
    for (heard, tells) in table {
        let mut node = that_failed_alone();
        node.until(35.0);
        node.ask();
        assert!(node.is_clear(), "{:?}", node.told);
        let attempt = node.begin();
        node.end(attempt, Outcome::Reached(Stage::Manifest));
        node.until(36.0);
        node.give(Input::BusBack);
        if let Some((finding, age)) = heard {
            node.hear_late("n1", endpoint(), finding.clone(), Duration::from_secs(age));
        }
        node.give(Input::CaughtUp);
        let told = told(&mut node);
        assert_eq!(told, tells, "{heard:?}: {:?}", node.published);
    }
}

/// A success is published if its failure was: otherwise the reporter would count as distrusted.
#[test]
fn who_has_told_of_a_failure_tells_of_the_success_that_it_had_without_a_bus() {
    let mut node = Node::of(1_000);
    fail(&mut node);
    assert_eq!(node.published.len(), 1);
    node.give(Input::BusGone);
    node.until(30.0);
    node.ask();
    let attempt = node.begin();
    node.end(attempt, Outcome::Reached(Stage::Manifest));
    node.until(31.0);
    node.give(Input::BusBack);
    node.hear("n1", endpoint(), Finding::Succeeded);
    node.give(Input::CaughtUp);
    assert_eq!(told(&mut node), 2);
}
