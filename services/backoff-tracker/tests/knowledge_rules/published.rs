//! What a node publishes about its own attempts: the bucket keeps only the last report on each key.

use std::time::Duration;

use backoff_tracker::core::knowledge::{Finding, Input, Outcome, RequestId, Target};
use contract::{AttemptId, FailureClass, Stage};

use super::node::{Node, endpoint, failed, failure, image, key, target};

const OTHER: RequestId = RequestId(8);

/// Since when the node has failed, by its last report on the image.
fn failing_since(node: &Node) -> Option<Duration> {
    let mut published = node.published.iter().zip(&node.ages);
    let (report, age) = published.rfind(|(report, _)| *report.backoff_key.in_view() == image())?;
    Some(node.now - *age - report.finding.details()?.failing_for)
}

#[test]
fn a_failure_report_contains_since_when_the_node_has_failed() {
    let mut node = Node::of(1);
    node.receive("me", image(), failed(1));
    for seconds in [30.0, 60.0] {
        node.until(seconds);
        node.ask();
        assert!(node.is_clear());
        node.fail(FailureClass::NotFound);
        assert_eq!(failing_since(&node), Some(Duration::ZERO), "at {seconds} s");
    }
}

#[test]
fn a_failure_after_a_success_is_the_first_again() {
    let mut node = Node::of(1);
    node.receive("me", image(), failed(1));
    node.until(10.0);
    node.receive("me", image(), Finding::Succeeded);
    node.until(30.0);
    node.ask();
    node.fail(FailureClass::NotFound);
    assert_eq!(failing_since(&node), Some(Duration::from_secs(30)));
}

#[test]
fn a_failure_that_is_older_than_the_last_report_is_not_published() {
    let mut node = Node::of(1);
    node.ask();
    let hangs = node.begin();
    node.until(5.0);
    let other = Target { reference: "r/b:1".to_owned(), ..target() };
    node.give(Input::Request { request: OTHER, key: key("r/b:1"), target: other });
    let attempt = AttemptId::random(&mut node.random);
    node.give(Input::AttemptPlanned { request: OTHER, attempt, trace: None });
    node.until(6.0);
    node.give(Input::AttemptResolved { request: OTHER, attempt, outcome: Outcome::Reached(Stage::Manifest) });
    node.end(hangs, Outcome::Failed(failure(FailureClass::RegistryUnavailable)));
    let of_endpoint: Vec<bool> = node
        .published
        .iter()
        .filter(|report| *report.backoff_key.in_view() == endpoint())
        .map(|report| report.finding == Finding::Succeeded)
        .collect();
    assert_eq!(of_endpoint, [false, true], "no answer, then a manifest");
}
