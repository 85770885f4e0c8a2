//! Which node has the turn to ask a registry for all.

use std::time::Duration;

use backoff_tracker::core::knowledge::{AttemptFailure, Decision, Duty, Finding, Input, Outcome, RequestId, Target};
use contract::{FailureClass, Stage};

use super::node::{Node, REQUEST, endpoint, failed, failure, image, key, target};

const SECOND_REQUEST: RequestId = RequestId(8);

fn wants_another_image(node: &mut Node) {
    let other = Target { repository: "b".to_owned(), reference: "r/b:1".to_owned(), ..target() };
    node.decision = None;
    node.give(Input::Request { request: SECOND_REQUEST, key: key("r/b:1"), target: other });
}

/// Three hanging attempts of one node show no more than one does.
#[test]
fn a_node_that_asks_a_silent_registry_leaves_the_next_attempts_to_other_nodes_first() {
    let mut node = Node::of(50);
    node.ask();
    assert!(node.is_clear(), "{:?}", node.decision);
    node.begin();
    wants_another_image(&mut node);
    node.until(5.9);
    assert!(!node.is_clear(), "others may ask after 2 and after 4 s: {:?}", node.decision);
    node.until(6.2);
    assert!(node.is_clear(), "nobody else has: {:?}", node.decision);
}

#[test]
fn hanging_attempt_restarts_only_after_an_answer_newer_than_its_start() {
    for (age, abandoned) in [(60, 0), (1, 1)] {
        let mut node = Node::of(50);
        node.until(100.0);
        node.ask();
        node.begin();
        node.until(105.0);
        node.receive_late("n1", endpoint(), Finding::Succeeded, Duration::from_secs(age));
        assert_eq!(node.abandoned, abandoned, "an answer that is {age} s old");
    }
}

/// A failure of this node is released by other nodes' later answers, not by earlier answers that a joining node reads.
#[test]
fn a_nodes_own_back_off_ends_by_answers_that_came_later() {
    for (age, released) in [(60, false), (0, true)] {
        let mut node = Node::of(50);
        node.until(100.0);
        node.ask();
        let attempt = node.begin();
        node.end(attempt, Outcome::Failed(AttemptFailure { authoritative: false, ..failure(FailureClass::RegistryUnavailable) }));
        node.until(103.0);
        node.receive_late("n1", image(), Finding::Succeeded, Duration::from_secs(age));
        node.receive_late("n1", endpoint(), Finding::Succeeded, Duration::from_secs(age));
        node.until(105.0);
        assert_eq!(node.is_clear(), released, "answers that are {age} s old: {:?}", node.decision);
    }
}

/// A sick node that is released with the others would take each probe in vain, one after the other.
#[test]
fn a_node_whose_last_attempt_failed_lets_others_ask_for_all_first() {
    for (fails, after) in [(true, 1.0), (false, 0.0)] {
        let mut node = Node::of(50);
        if fails {
            node.ask();
            let attempt = node.begin();
            let refused = AttemptFailure { authoritative: false, ..failure(FailureClass::RegistryUnavailable) };
            node.end(attempt, Outcome::Failed(refused));
            node.give(Input::Withdraw(REQUEST));
        }
        node.until(60.0);
        node.receive("n1", endpoint(), Finding::Succeeded);
        wants_another_image(&mut node);
        node.until(60.0 + after - 0.01);
        assert_eq!(node.is_clear(), !fails, "{:?}", node.decision);
        node.until(60.2 + after);
        assert!(matches!(node.decision, Some(Decision::Granted { duty: Duty::Lead, until: Stage::Manifest, .. })), "{:?}", node.decision);
    }
}

fn three_others_fail(node: &mut Node) {
    ["n1", "n2", "n3"].into_iter().for_each(|reporter| node.receive(reporter, endpoint(), failed(1)));
}

/// In a roll-out each node may lead for an image of its own, and wait for the fleet's budget. When the registry goes down, all of them
/// would ask it in vain, also if they ignored reports after their lease has expired.
#[test]
fn unused_lead_lapses_after_others_fail() {
    for second in [1.0, 20.0] {
        let mut node = Node::of(20);
        node.ask();
        node.until(second);
        assert!(matches!(node.decision, Some(Decision::Granted { duty: Duty::Lead, .. })), "{:?}", node.decision);
        three_others_fail(&mut node);
        assert_eq!(node.abandoned, 1, "after {second} s");
        node.ask();
        assert_eq!(node.held().learned_by.as_str(), "n3");
    }
}

#[test]
fn a_probe_that_was_not_used_yet_does_not_lapse_before_its_lease() {
    for (second, lapses) in [(10.0, 0), (40.0, 1)] {
        let mut node = Node::of(20);
        three_others_fail(&mut node);
        node.ask();
        node.until(10.0);
        assert!(matches!(node.decision, Some(Decision::Granted { duty: Duty::Probe(_), .. })), "{:?}", node.decision);
        node.until(second);
        three_others_fail(&mut node);
        assert_eq!(node.abandoned, lapses, "after {second} s");
    }
}
