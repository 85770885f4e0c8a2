//! Results that come late, twice, of another attempt, or without clearance.

use std::time::Duration;

use backoff_tracker::core::knowledge::{Decision, Duty, Finding, KeyInView, Outcome};
use contract::messages::backoff_tracker::{AttemptFailure, ReportAttempt};
use contract::{AttemptId, FailureClass, Stage};

use super::node::{Node, endpoint, failed, failure, image, key, target};

#[test]
fn a_failure_after_the_deadline_is_dropped() {
    let mut node = Node::of(1_000);
    node.ask();
    assert!(matches!(node.decision, Some(Decision::Granted { duty: Duty::Lead, .. })));
    let attempt = node.begin();
    node.now = Duration::from_secs(16);
    node.end(attempt, Outcome::Failed(failure(FailureClass::NotFound)));
    assert_eq!(node.published, []);
    assert_eq!(node.core.counts().late_results_total, 1);
}

#[test]
fn a_success_after_the_deadline_closes_the_probed_entry_but_no_newer_one() {
    for (newer, binds) in [(false, false), (true, true)] {
        let mut node = Node::of(1_000);
        for reporter in ["n1", "n2"] {
            node.receive(reporter, image(), failed(1));
        }
        node.ask();
        node.until(15.0);
        assert!(matches!(node.decision, Some(Decision::Granted { duty: Duty::Probe(_), .. })), "{:?}", node.decision);
        let attempt = node.begin();
        node.until(31.0);
        if newer {
            node.receive("n3", image(), failed(2));
        }
        node.until(40.0);
        node.end(attempt, Outcome::Reached(Stage::Manifest));
        let published: Vec<_> = node.published.iter().filter(|report| report.backoff_key.in_view() == &image()).collect();
        assert!(matches!(published[..], [report] if report.finding == Finding::Succeeded), "{published:?}");
        assert!(node.ages.last() >= Some(&Duration::from_secs(25)), "as old as its attempt: {:?}", node.ages);
        let bound = node.core.entries(node.now).iter().any(|entry| entry.backoff_key.in_view() == &image());
        assert_eq!(bound, binds, "a failure after it began stands");
    }
}

#[test]
fn an_attempt_is_resolved_once_and_by_its_own_result() {
    let mut node = Node::of(1_000);
    node.ask();
    let attempt = node.begin();
    let another = AttemptId::random(&mut node.random);
    node.end(another, Outcome::Failed(failure(FailureClass::NotFound)));
    assert_eq!(node.published, []);
    node.end(attempt, Outcome::Failed(failure(FailureClass::NotFound)));
    let published = node.published.len();
    node.end(attempt, Outcome::Failed(failure(FailureClass::NotFound)));
    assert_eq!(node.published.len(), published);
}

/// A tracker that did not answer has not given clearance for the attempt that is reported to it. A success on the same key releases the
/// image nevertheless.
#[test]
fn a_failure_without_clearance_is_released_by_a_success_of_another_node() {
    let mut node = Node::of(20);
    for reporter in ["n1", "n2", "n3"] {
        node.receive(reporter, endpoint(), failed(1));
    }
    node.ask();
    node.bus_answers = false;
    let attempt = AttemptId::random(&mut node.random);
    let failure = Some(AttemptFailure { class: FailureClass::RegistryUnavailable, authoritative: true, ..AttemptFailure::default() });
    let report = |attempt| {
        let (failure, target) = (failure.clone(), Some(target()));
        ReportAttempt { key: key("r/a:1"), attempt, attempt_span: None, failure, target }
    };
    for _ in 0..4 {
        let another = AttemptId::random(&mut node.random);
        node.report(report(another));
    }
    let reported = node.report(report(attempt));
    assert_eq!(reported.next_attempt_ms, Some(160_000), "kubelet's rule");
    node.until(1.0);
    for in_view in [endpoint(), KeyInView::Registry, KeyInView::Repository("a".to_owned())] {
        node.receive("n4", in_view, Finding::Succeeded);
    }
    node.until(10.0);
    assert!(node.is_clear(), "{:?}", node.decision);
}
