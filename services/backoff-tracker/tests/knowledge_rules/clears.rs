//! Operators' clears, and attempts that were running then.

use std::sync::Arc;
use std::time::Duration;

use backoff_tracker::core::knowledge::{BackoffKey, Decision, Input, Outcome, Report};
use contract::{AttemptId, FailureClass};

use super::node::{Node, failed, failure, image, view};

const SECOND: Duration = Duration::from_secs(1);

/// Whether an entry of the image refuses all nodes.
fn binds(node: &Node) -> bool {
    node.core.entries(node.now).iter().any(|entry| entry.backoff_key.in_view() == &image() && entry.refuses_all)
}

fn clear(age: Duration) -> Input {
    Input::Cleared { image: Some("r/a:1".to_owned()), backoff_keys: vec![], age }
}

/// Receives another node's failure, of an attempt that began this long ago.
fn receive(node: &mut Node, reporter: &str, age: Duration) {
    let attempt = AttemptId::random(&mut node.random);
    let backoff_key = Arc::new(BackoffKey::new(view(), image()));
    let report = Report { reporter: reporter.parse().unwrap(), backoff_key, attempt, trace: None, finding: failed(1) };
    node.give(Input::ReportReceived { report: Arc::new(report), age });
}

#[test]
fn an_attempt_running_during_a_clear_binds_no_node_and_the_next_one_does() {
    let mut node = Node::of(1_000);
    node.now = 10 * SECOND;
    node.ask();
    let attempt = node.begin();
    node.until(11.0);
    node.give(clear(Duration::ZERO));
    node.until(12.0);
    node.end(attempt, Outcome::Failed(failure(FailureClass::NotFound)));
    assert!(!binds(&node), "its failure began before the clear: {:?}", node.core.entries(node.now));
    // The report is as old as its attempt, so that nodes that know the clear ignore it.
    let place = node.published.iter().position(|report| report.backoff_key.in_view() == &image()).expect("it is published");
    assert_eq!(node.ages[place], 2 * SECOND);
    let held = node.held().next_attempt;
    assert!(held <= node.now + 10 * SECOND, "what holds this node is kubelet's rule: {held:?}");
    node.until(held.as_secs_f64());
    assert!(node.is_clear(), "{:?}", node.decision);
    node.fail(FailureClass::NotFound);
    assert!(binds(&node), "it began after the clear");
}

#[test]
fn reports_of_attempts_before_a_clear_bind_no_node_and_of_later_ones_do() {
    for (clear_first, attempts) in [(true, [3, 1]), (false, [3, 1])] {
        let mut node = Node::of(1_000);
        node.now = 100 * SECOND;
        let [before, after] = attempts.map(|seconds| seconds * SECOND);
        if clear_first {
            node.give(clear(2 * SECOND));
            receive(&mut node, "n1", before);
        } else {
            receive(&mut node, "n1", before);
            assert!(binds(&node), "the clear is not received yet");
            node.give(clear(2 * SECOND));
        }
        assert!(!binds(&node), "begun before the clear, received {}", if clear_first { "after it" } else { "before it" });
        node.ask();
        assert!(!matches!(node.decision, Some(Decision::Refused(_))), "{:?}", node.decision);
        receive(&mut node, "n2", after);
        assert!(binds(&node), "begun after the clear");
    }
}

/// A clear of a back-off key applies to that key only, and a clear of an image to that image only.
#[test]
fn a_clear_changes_no_key_that_it_does_not_name() {
    let mut node = Node::of(1_000);
    node.now = 100 * SECOND;
    node.give(Input::Cleared { image: Some("r/other:1".to_owned()), backoff_keys: vec![], age: SECOND });
    receive(&mut node, "n1", 3 * SECOND);
    assert!(binds(&node));
    node.give(Input::Cleared { image: None, backoff_keys: vec![BackoffKey::new(view(), image()).id()], age: SECOND });
    assert!(!binds(&node));
    receive(&mut node, "n2", Duration::from_millis(500));
    assert!(binds(&node));
}
