//! Which successes end an entry or refute a failure, and what a success of one node alone changes.

use std::time::Duration;

use backoff_tracker::core::knowledge::{AttemptFailure, Decision, Duty, FailureDetails, Finding, KEPT_FOR, KeyInView, Outcome};
use contract::{FailureClass, Stage};

use super::node::{Node, endpoint, failed, failed_for, failure, image, limited};

/// A success of one node may be false, so one node makes the next attempt for all.
#[test]
fn one_success_makes_the_next_attempt_due_if_several_nodes_fail_and_a_second_ends_the_entry() {
    let failing = |in_a_row| Finding::Failed(FailureDetails { step: 9, in_a_row, ..FailureDetails::default() });
    // The key, how often each of three nodes has failed in a row, when one succeeds, and from when to when the next attempt is due then.
    let table: [(KeyInView, u32, f64, f64, f64); 4] = [
        (image(), 1, 20.0, 20.0, 20.0),
        // Not before the first delay is over.
        (image(), 1, 3.0, 9.0, 10.0),
        (endpoint(), 10, 3.0, 3.0, 3.0),
        (endpoint(), 10, 1.0, 1.8, 2.0),
    ];
    for (in_view, in_a_row, succeeds, from, to) in table {
        let mut node = Node::of(1_000);
        for reporter in ["n1", "n2", "n3"] {
            node.receive(reporter, in_view.clone(), failing(in_a_row));
        }
        node.ask();
        let what = format!("{in_view:?}: a success at {succeeds} s");
        assert!(node.held().next_attempt > Duration::from_secs_f64(to), "{what}");
        node.until(succeeds);
        node.receive("n4", in_view.clone(), Finding::Succeeded);
        let entry = &node.core.entries(node.now)[0];
        let due = entry.next_attempt.as_secs_f64();
        assert!(entry.refuses_all && from <= due && due <= to, "{what}: {entry:?}");
        node.until(due + 2.1);
        assert!(matches!(node.decision, Some(Decision::Granted { duty: Duty::Probe(_), .. })), "{what}: {:?}", node.decision);
        node.receive("n4", in_view.clone(), Finding::Succeeded);
        assert_eq!(node.core.entries(node.now).len(), 1, "{what}: the same node again");
        node.receive("n5", in_view, Finding::Succeeded);
        assert_eq!(node.core.entries(node.now).len(), 0, "{what}");
    }
}

/// Each success of one node costs one attempt.
#[test]
fn entry_outlasts_the_repeated_successes_of_one_node() {
    let mut node = Node::of(1_000);
    for reporter in ["n1", "n2"] {
        node.receive(reporter, image(), failed(4));
    }
    for minute in 1..30 {
        node.until(f64::from(minute) * 60.0);
        node.receive("liar", image(), Finding::Succeeded);
        node.until(node.now.as_secs_f64() + 20.0);
        for reporter in ["n1", "n2"] {
            node.receive(reporter, image(), failed_for(4, node.now));
        }
        assert!(node.core.entries(node.now)[0].next_attempt > node.now + Duration::from_secs(30), "minute {minute}");
        node.until(node.now.as_secs_f64() + 20.0);
        node.receive("liar", image(), Finding::Succeeded);
        let entry = node.core.entries(node.now).pop().expect("an entry");
        assert_eq!((entry.refuses_all, entry.next_attempt), (true, node.now), "minute {minute}");
    }
}

#[test]
fn node_needs_no_other_to_confirm_its_own_success() {
    let mut node = Node::of(1_000);
    for reporter in ["n1", "n2", "n3"] {
        node.receive(reporter, image(), failed(1));
    }
    node.until(11.0);
    node.ask();
    assert!(matches!(node.decision, Some(Decision::Granted { duty: Duty::Probe(_), .. })), "{:?}", node.decision);
    let attempt = node.begin();
    node.end(attempt, Outcome::Reached(Stage::Whole));
    assert_eq!(node.core.entries(node.now).len(), 0);
}

#[test]
fn a_success_closes_the_entry_and_waiting_nodes_continue_in_turn() {
    let mut node = Node::of(1_000);
    for reporter in ["n1", "n2", "n3"] {
        node.receive(reporter, endpoint(), failed(1));
    }
    node.ask();
    assert!(matches!(node.decision, Some(Decision::Refused(_))));
    node.until(1.0);
    node.receive("n4", image(), Finding::Succeeded);
    node.receive("n4", endpoint(), Finding::Succeeded);
    node.until(1.0 + 1_000.0 / 190.0 + 0.01);
    assert!(matches!(node.decision, Some(Decision::Granted { duty: Duty::None, .. })), "{:?}", node.decision);
}

#[test]
fn a_refuted_failure_binds_no_other_as_long_as_the_success_is_kept() {
    let mut node = Node::of(1_000);
    node.receive("n1", image(), failed(1));
    for (second, reporter) in [(1, "n2"), (2, "n4")] {
        node.now = Duration::from_secs(second);
        node.receive(reporter, image(), Finding::Succeeded);
    }
    for minute in 1..10 {
        node.now = Duration::from_secs(60 * minute);
        node.receive("n1", image(), failed_for(1, node.now));
        assert!(node.core.entries(node.now).is_empty(), "minute {minute}");
    }
    for (seconds, reporters) in [(1, 1), (2, 2)] {
        node.now = KEPT_FOR + Duration::from_secs(seconds);
        node.receive("n3", image(), failed(1));
        assert_eq!(node.core.entries(node.now)[0].reporters, reporters, "{seconds} s after {KEPT_FOR:?}");
    }
}

#[test]
fn a_failure_counts_until_two_other_nodes_refute_it_and_again_after_its_own_success() {
    let mut node = Node::of(1_000);
    let repeated = |second: u64| failed_for(1, Duration::from_secs(second));
    let reports = [
        ("n1", failed(1), 1),
        ("n2", Finding::Succeeded, 0),
        ("n1", repeated(2), 1),
        ("n3", Finding::Succeeded, 0),
        ("n1", repeated(4), 0),
        ("n1", Finding::Succeeded, 0),
        ("n1", failed(1), 1),
    ];
    for (second, (reporter, finding, entries)) in (0..).zip(reports) {
        node.now = Duration::from_secs(second);
        node.receive(reporter, image(), finding);
        assert_eq!(node.core.entries(node.now).len(), entries, "at {second} s");
    }
}

/// A report replaces the last one of its node, so a failure names the success before it.
#[test]
fn a_success_counts_after_its_reporter_has_failed_again() {
    for (names_success, entries) in [(true, 0), (false, 1)] {
        let mut node = Node::of(1_000);
        for reporter in ["n1", "n2", "n3"] {
            node.receive(reporter, endpoint(), failed(1));
        }
        node.now = Duration::from_secs(1);
        node.receive("n4", endpoint(), Finding::Succeeded);
        node.receive("n5", endpoint(), Finding::Succeeded);
        assert_eq!(node.core.entries(node.now).len(), 0);
        node.now = Duration::from_secs(3);
        let succeeded_ago = names_success.then_some(Duration::from_secs(2));
        for reporter in ["n4", "n5"] {
            node.receive(reporter, endpoint(), Finding::Failed(FailureDetails { step: 1, succeeded_ago, ..FailureDetails::default() }));
        }
        let shared = node.core.entries(node.now).into_iter().filter(|entry| entry.refuses_all);
        assert_eq!(shared.count(), entries, "names the success: {names_success}");
    }
}

/// This node names its own success in its next failures.
#[test]
fn a_failure_names_the_last_success_of_its_node() {
    let mut node = Node::of(1_000);
    node.receive("n1", endpoint(), failed(1));
    node.ask();
    let attempt = node.begin();
    node.end(attempt, Outcome::Reached(Stage::Whole));
    let named = [10.0, 12.0, 700.0].map(|at| {
        node.until(at);
        node.published.clear();
        node.ask();
        let attempt = node.begin();
        node.end(attempt, Outcome::Failed(AttemptFailure { authoritative: false, ..failure(FailureClass::RegistryUnavailable) }));
        let of_endpoint = node.published.iter().find(|report| *report.backoff_key.in_view() == endpoint());
        of_endpoint.and_then(|report| report.finding.details()?.succeeded_ago).map(|ago| ago.as_secs())
    });
    assert_eq!(named, [Some(10), Some(11), None]);
}

#[test]
fn a_failure_that_two_successes_ended_does_not_return_when_they_expire() {
    let mut node = Node::of(1_000);
    let owner = || KeyInView::BudgetOwner("o".to_owned());
    for reporter in ["n1", "n2"] {
        node.receive(reporter, owner(), limited(3_600));
    }
    for (second, reporter) in [(5.0, "n3"), (7.0, "n5")] {
        node.until(second);
        node.receive(reporter, owner(), Finding::Succeeded);
    }
    for minute in 1..30 {
        node.until(f64::from(minute) * 60.0);
        node.receive("n4", image(), Finding::Succeeded);
        assert_eq!(node.core.entries(node.now).len(), 0, "after {minute} minutes");
    }
}
