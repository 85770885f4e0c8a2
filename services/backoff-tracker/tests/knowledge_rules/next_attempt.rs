//! When the next attempt is due, and who makes it: a failure that one node alone reports, and nodes that repeat theirs.

use std::time::Duration;

use backoff_tracker::core::knowledge::{
    AttemptFailure, BackoffKey, Decision, Duty, FailureDetails, Finding, Input, KeyInView, LeaseName, Outcome,
};
use contract::FailureClass;

use super::node::{Node, endpoint, failed, failed_for, failure, image, limited, view};

#[test]
fn failure_of_one_node_is_confirmed_at_once_and_of_two_refuses_all() {
    let mut node = Node::of(1_000);
    node.bus_answers = false;
    node.receive("n1", image(), failed(1));
    let epoch = node.core.entries(node.now)[0].epoch();
    node.ask();
    let name = LeaseName::Probe(BackoffKey::new(view(), image()).id(), epoch);
    node.give(Input::LeaseTaken { name, holder: "n2".parse().unwrap(), left: Duration::from_secs(15) });
    node.until(1.0);
    assert!(node.held().unconfirmed, "it waits for the result of another node: {:?}", node.decision);
    node.receive("n2", image(), failed(2));
    let next_attempt = node.held().next_attempt;
    assert!(next_attempt >= Duration::from_secs(19) && next_attempt <= Duration::from_secs(21), "{next_attempt:?}");

    let mut prober = Node::of(1_000);
    prober.receive("n1", image(), failed(1));
    prober.ask();
    prober.until(0.8);
    assert!(matches!(prober.decision, Some(Decision::Granted { duty: Duty::Probe(_), .. })), "{:?}", prober.decision);
    prober.fail(FailureClass::NotFound);
    let next_attempt = prober.held().next_attempt;
    assert!(
        next_attempt >= Duration::from_secs(9) && next_attempt <= Duration::from_secs(12),
        "it is the first step still: {next_attempt:?}"
    );
}

/// The report of an attempt that took 3 s arrives when the next one has long been due.
#[test]
fn late_report_of_one_node_leaves_the_order_of_those_that_confirm_it() {
    let asked_at = |fails_itself: bool| {
        let mut node = Node::of(1_000);
        if fails_itself {
            node.receive("me", endpoint(), failed(1));
        }
        node.until(20.0);
        node.receive_late("n1", image(), failed(1), Duration::from_secs(3));
        node.ask();
        while !node.is_clear() && node.now < Duration::from_secs(30) {
            node.until(node.now.as_secs_f64() + 0.01);
        }
        node.now - Duration::from_secs(20)
    };
    let (healthy, fails_itself) = (asked_at(false), asked_at(true));
    assert!(healthy > Duration::from_millis(20) && healthy < Duration::from_secs(1), "in its turn: {healthy:?}");
    assert!(fails_itself >= healthy + Duration::from_millis(900), "after those that do not fail: {fails_itself:?}");
}

/// Nodes that are cut off from the registry, and attempt by their own rule, postpone no attempt for all nodes.
#[test]
fn only_attempts_for_all_postpone_the_next_one() {
    let of_itself = |failing_s| match failed_for(4, Duration::from_secs(failing_s)) {
        Finding::Failed(details) => Finding::Failed(FailureDetails { for_all_ago: details.failing_for, ..details }),
        other => other,
    };
    let rack = ["n1", "n2", "n3"];
    let mut node = Node::of(1_000);
    let entry_of = |node: &Node| {
        let mut entries = node.core.entries(node.now).into_iter();
        entries.find(|entry| *entry.backoff_key.in_view() == endpoint()).expect("it fails")
    };
    rack.iter().for_each(|reporter| node.receive(reporter, endpoint(), of_itself(0)));
    for second in 1..=60_u32 {
        node.until(f64::from(second));
        node.receive(rack[second as usize % 3], endpoint(), of_itself(second.into()));
    }
    let epoch = entry_of(&node).epoch();
    node.ask();
    node.until(60.9);
    assert!(matches!(node.decision, Some(Decision::Granted { duty: Duty::Probe(_), .. })), "{:?}", node.decision);
    let attempt = node.begin();
    node.end(attempt, Outcome::Failed(AttemptFailure { authoritative: false, ..failure(FailureClass::RegistryUnavailable) }));
    let probed = entry_of(&node);
    assert!(probed.next_attempt > node.now + Duration::from_secs(6) && probed.epoch() != epoch, "{probed:?}");
    node.until(62.0);
    node.receive("n1", endpoint(), of_itself(62));
    let repeated = entry_of(&node);
    assert_eq!((repeated.next_attempt, repeated.epoch()), (probed.next_attempt, probed.epoch()));
    assert_eq!(repeated.newest.reporter.as_str(), "n1", "the newest failure is shown");
}

#[test]
fn reporter_and_others_list_an_unconfirmed_entry_alike_although_it_refuses_only_the_reporter() {
    for (reporter, unconfirmed) in [("me", false), ("n1", true)] {
        let mut node = Node::of(1_000);
        node.receive(reporter, image(), failed(1));
        node.ask();
        assert_eq!(node.held().unconfirmed, unconfirmed, "reported by {reporter}");
        let listed = node.core.list(node.now);
        assert_eq!(listed.iter().map(|entry| entry.binds.as_str()).collect::<Vec<_>>(), ["unconfirmed"], "reported by {reporter}");
    }
}

#[test]
fn several_reports_of_one_node_refuse_nothing() {
    let login = || KeyInView::Login { repository: "a".to_owned(), fingerprint: "anonymous".to_owned(), anonymous: true };
    let mut node = Node::of(1_000);
    node.receive("liar", image(), failed(1));
    node.receive("liar", login(), failed(1));
    node.receive("liar", KeyInView::BudgetOwner("o".to_owned()), limited(600));
    node.ask();
    node.until(1.0);
    assert!(matches!(node.decision, Some(Decision::Granted { duty: Duty::Probe(_), .. })), "{:?}", node.decision);
}

#[test]
fn node_that_repeats_its_failure_postpones_the_next_attempt_by_one_delay() {
    let mut node = Node::of(1_000);
    for reporter in ["n1", "liar"] {
        node.receive(reporter, image(), failed(4));
    }
    node.ask();
    for second in 1..127 {
        node.until(f64::from(second));
        assert!(!node.is_clear(), "{second} s: {:?}", node.decision);
        node.receive("liar", image(), failed(4));
    }
    node.until(130.0);
    assert!(matches!(node.decision, Some(Decision::Granted { duty: Duty::Probe(_), .. })), "{:?}", node.decision);
}

/// Each of its failures is reported as the first, so that none is refuted.
#[test]
fn a_node_that_repeats_a_first_failure_does_not_delay_a_later_request() {
    let mut node = Node::of(1_000);
    let repeat = |node: &mut Node, until: u64| {
        while node.now < Duration::from_secs(until) {
            node.until(node.now.as_secs_f64() + 1.0);
            node.receive("liar", image(), failed(1));
        }
    };
    repeat(&mut node, 100);
    node.ask();
    repeat(&mut node, 101);
    assert!(node.is_clear(), "{:?}", node.decision);
}
