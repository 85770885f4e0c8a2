//! A refusal by this node's own back-off names the attempt that failed here, for any flight or caller that is refused.

use std::time::Duration;

use backoff_tracker::core::knowledge::{BackoffKey, Decision, Finding, Input, LeaseName, Outcome, Refusal, RequestId, Target};
use contract::messages::backoff_tracker::{self as messages, AttemptFailure, AttemptReported, BackoffAnswer, LocalKey, ReportAttempt};
use contract::{AttemptId, DEADLINES, FailureClass, PodRef, TraceContext};

use super::node::{Node, endpoint, failed, failure, image, key, target, view};

const IMAGE: &str = "r/a:1";

/// A flight has clearance, fails and ends, as the pull coordinator reports it. Returns the span of its attempt.
fn fails(node: &mut Node, number: u64, failure: &AttemptFailure) -> TraceContext {
    fails_and_is_answered(node, number, failure).0
}

/// Like [`fails`], with the answer to the report of the attempt.
fn fails_and_is_answered(node: &mut Node, number: u64, failure: &AttemptFailure) -> (TraceContext, AttemptReported) {
    let (request, attempt, span) = (RequestId(number), AttemptId::random(&mut node.random), TraceContext::root(&mut node.random));
    node.give(Input::Request { request, key: key(IMAGE), target: target() });
    assert!(node.is_clear(), "{number}: {:?}", node.decision);
    node.give(Input::AttemptPlanned { request, attempt, trace: Some(span) });
    node.give(Input::AttemptResolved { request, attempt, outcome: Outcome::Failed(failure.clone()) });
    let answer = report(node, attempt, key(IMAGE), span, failure);
    node.give(Input::Withdraw(request));
    (span, answer)
}

fn report(node: &mut Node, attempt: AttemptId, key: LocalKey, span: TraceContext, failure: &AttemptFailure) -> AttemptReported {
    let failure = Some(failure.clone());
    node.report(ReportAttempt { key, attempt, attempt_span: Some(span), failure, target: None })
}

/// The refusal of another flight that requests an image now.
fn refused(node: &mut Node, number: u64, key: LocalKey, target: Target) -> Refusal {
    node.decision = None;
    node.give(Input::Request { request: RequestId(number), key, target });
    let held = node.held().clone();
    node.give(Input::Withdraw(RequestId(number)));
    held
}

/// The answer to a check before a request for clearance.
fn checked(node: &mut Node, key: LocalKey) -> BackoffAnswer {
    node.check(key, false)
}

fn held(answer: BackoffAnswer) -> messages::Refusal {
    match answer {
        BackoffAnswer::Refused(held) => held,
        other => panic!("not held but {other:?}"),
    }
}

#[test]
fn a_refusal_by_kubelets_rule_names_the_attempt_to_every_caller_and_later_flight() {
    let mut node = Node::of(1_000);
    let span = fails(&mut node, 1, &failure(FailureClass::NodeLocal));
    let pod = Some(PodRef { name: "p".to_owned(), ..PodRef::default() });
    let of_pod = LocalKey { pod, ..key(IMAGE) };
    let (attempt, joined) = (AttemptId::random(&mut node.random), TraceContext::root(&mut node.random));
    report(&mut node, attempt, of_pod.clone(), joined, &failure(FailureClass::NodeLocal));
    node.until(2.0);
    for (key, span) in [(key(IMAGE), span), (of_pod, joined)] {
        let refusal = refused(&mut node, 2, key.clone(), target());
        assert_eq!((refusal.trace, refusal.learned_ago, refusal.entry), (Some(span), Duration::from_secs(2), None), "{key:?}");
        let refusal = held(checked(&mut node, key.clone()));
        assert_eq!((refusal.learned_trace, refusal.learned_ms_ago, refusal.learned_by), (Some(span), 2_000, None), "{key:?}");
    }
}

/// The failure opens an entry, so the node has no delay of its own; a success from before the end of the attempt then closes the entry.
#[test]
fn a_refusal_by_the_floor_names_the_attempt() {
    let mut node = Node::of(1_000);
    let (request, attempt, span) = (RequestId(1), AttemptId::random(&mut node.random), TraceContext::root(&mut node.random));
    node.give(Input::Request { request, key: key(IMAGE), target: target() });
    node.give(Input::AttemptPlanned { request, attempt, trace: Some(span) });
    node.until(6.0);
    let not_found = failure(FailureClass::NotFound);
    node.give(Input::AttemptResolved { request, attempt, outcome: Outcome::Failed(not_found.clone()) });
    report(&mut node, attempt, key(IMAGE), span, &not_found);
    node.give(Input::Withdraw(request));
    node.until(7.0);
    for in_view in [image(), endpoint()] {
        node.receive_late("n1", in_view, Finding::Succeeded, Duration::from_secs(5));
    }
    // The success releases attempts for 10 s.
    node.until(13.0);
    assert_eq!(checked(&mut node, key(IMAGE)), BackoffAnswer::Allowed, "by what is shared, and no delay of its own");
    let refusal = refused(&mut node, 2, key(IMAGE), target());
    let named = (refusal.trace, refusal.learned_ago, refusal.next_attempt);
    assert_eq!(named, (Some(span), Duration::from_secs(7), Duration::from_secs(16)), "{refusal:?}");
}

/// The registry has served a node within a minute, so failures may be chance. After 40 failures in a row kubelet's rule applies.
#[test]
fn image_that_fails_while_the_registry_serves_others_is_tried_each_2_s_until_it_failed_40_times() {
    let unavailable = AttemptFailure { authoritative: false, ..failure(FailureClass::RegistryUnavailable) };
    let mut node = Node::of(1_000);
    let mut pauses = Vec::new();
    for number in 1..=41_u64 {
        // The last success is up to 59 s old.
        if number % 28 == 1 {
            node.receive("n1", image(), Finding::Succeeded);
            node.receive("n1", endpoint(), Finding::Succeeded);
        }
        node.until(node.now.as_secs_f64() + 0.1);
        let (_, answer) = fails_and_is_answered(&mut node, number, &unavailable);
        let pause = answer.next_attempt_ms.unwrap();
        pauses.push(pause);
        node.until(node.now.as_secs_f64() + Duration::from_millis(pause).as_secs_f64());
    }
    let expected: Vec<u64> = std::iter::once(1_000).chain(std::iter::repeat_n(2_000, 38)).chain([10_000, 20_000]).collect();
    assert_eq!(pauses, expected);
}

/// The registry serves others: no entry and no delay refuses the image, and a check forgets why it failed.
#[test]
fn a_pause_at_a_registry_that_serves_others_names_the_attempt_and_its_failure() {
    let unavailable = AttemptFailure { authoritative: false, ..failure(FailureClass::RegistryUnavailable) };
    let mut node = Node::of(1_000);
    node.receive("n1", endpoint(), Finding::Succeeded);
    node.until(0.5);
    let (span, answer) = fails_and_is_answered(&mut node, 1, &unavailable);
    assert_eq!(answer.next_attempt_ms, Some(1_000), "a standing pull goes on after the pause");
    assert_eq!(checked(&mut node, key(IMAGE)), BackoffAnswer::Allowed);
    let refusal = refused(&mut node, 2, key(IMAGE), target());
    assert_eq!((refusal.trace, refusal.class, refusal.unconfirmed), (Some(span), unavailable.class, true), "{refusal:?}");
    assert_eq!(refusal.cause, unavailable.cause);
}

#[test]
fn after_retry_after_other_images_are_refused_with_the_attempt_that_received_it() {
    let mut node = Node::of(1_000);
    node.receive("n1", endpoint(), Finding::Succeeded);
    node.until(0.5);
    let limited = AttemptFailure { retry_after_ms: Some(60_000), ..failure(FailureClass::RateLimited) };
    let span = fails(&mut node, 1, &limited);
    node.until(3.0);
    let other = Target { reference: "r/b:1".to_owned(), repository: "b".to_owned(), ..target() };
    let refusal = refused(&mut node, 2, key("r/b:1"), other);
    assert_eq!((refusal.trace, refusal.class, refusal.unconfirmed), (Some(span), FailureClass::RateLimited, false), "{refusal:?}");
    assert_eq!((refusal.learned_ago, refusal.cause), (Duration::from_millis(2_500), limited.cause));
    assert!(matches!(node.decision, Some(Decision::Refused(_))));
}

#[test]
fn a_list_names_the_node_that_holds_the_lease_of_an_entry_until_its_term_ends() {
    let mut node = Node::of(1_000);
    node.receive("n1", image(), failed(1));
    let name = LeaseName::Probe(BackoffKey::new(view(), image()).id(), AttemptId::from(1));
    let taken = || Input::LeaseTaken { name, holder: "n2".parse().unwrap(), left: DEADLINES.attempt_lease };
    let probed_by = |node: &Node| node.core.list(node.now)[0].probed_by.clone();
    assert_eq!(probed_by(&node), None);
    node.give(taken());
    assert_eq!(probed_by(&node).as_deref(), Some("n2"));
    node.give(Input::LeaseFreed(name));
    assert_eq!(probed_by(&node), None);
    node.give(taken());
    node.until(16.0);
    assert_eq!(probed_by(&node), None);
}
