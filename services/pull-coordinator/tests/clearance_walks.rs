//! Flights of a node that shares, step by step.
//!
//! Contracts: no permit before clearance, and Pulling is recorded with it. A caller without a standing pull is refused when a failure is
//! corroborated or its wait for the fleet is over; answer and event name the node that learned of the failure. Without an answer of the
//! tracker the pull goes on. The result of an attempt is resolved once, and clearance is always withdrawn. A flight requests clearance
//! again after the fleet gave its attempt up, after a late permit, and after it lost clearance in the queue. Late and repeated inputs
//! change nothing.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;
use std::time::Duration;

use contract::messages::backoff_tracker::{BackoffAnswer, Clearance, Refusal};
use contract::messages::pull_coordinator::{EnsureImage, OutcomeKind, PullPolicy};
use contract::messages::throttler::PermitAnswer;
use contract::{EventReason, FailureClass, Reason, Stage};
use pull_coordinator::core::{Effect, Failure, FlightId, Input, Policy, RequestId};

use super::world::{
    World, failure, granted, granted_for_all, granted_until_blob, names, pod, present_image, refusal, sharing, standing, target, wanted,
};
use EventReason::{BackOff, Failed, Pulled, Pulling};
use PullPolicy::{Always, IfNotPresent};

const FLIGHT: FlightId = FlightId(1);

fn queued(budget_wait_ms: Option<u64>) -> Input {
    Input::Permitted { flight: FLIGHT, answer: PermitAnswer::Queued { ahead: 0, budget_wait_ms } }
}

/// A node that shares, with one caller that waits for clearance.
fn waiting() -> (World, RequestId) {
    let mut world = World::pulling(sharing());
    let (request, effects) = world.ask_until_clearance(wanted("a:1", IfNotPresent));
    assert_eq!(names(&effects), ["RequestClearance"]);
    (world, request)
}

/// As [`waiting`], with clearance and its Pulling event recorded.
fn allowed(clearance: Option<Clearance>) -> (World, RequestId) {
    let (mut world, request) = waiting();
    assert_eq!(
        names(&world.clearance(FLIGHT, clearance)),
        ["Record", "AcquirePermit", "RequestClearance"],
        "it hears when clearance is lost"
    );
    world.give(Input::Recorded { request });
    (world, request)
}

/// As [`allowed`], with the pull begun.
fn pulling(clearance: Option<Clearance>) -> (World, RequestId) {
    let (mut world, request) = allowed(clearance);
    assert_eq!(names(&world.grant(FLIGHT)), ["StartPull"]);
    (world, request)
}

#[test]
fn clearance_is_requested_before_the_permit_and_resolved_with_the_result() {
    let (mut world, request) = pulling(granted_for_all());
    assert_eq!(names(&world.give(Input::Resolved { flight: FLIGHT, seen: true })), ["Resolve"]);
    assert_eq!(names(&world.pulled(FLIGHT)), ["Verify"], "it is resolved once");
    let finished = world.verified(FLIGHT);
    assert_eq!(names(&finished)[..3], ["Resolve", "Release", "Withdraw"], "the end of the whole pull is resolved too");
    world.settle(finished);
    assert_eq!(world.reasons_of(request), [Pulling, Pulled]);
    assert_eq!(world.answer_to(request).outcome, OutcomeKind::Pulled);
    let ask = world.clearances_requested(FLIGHT)[0].1.clone();
    assert_eq!((ask.target, ask.standing), (target(), false));
    let resolves = world.resolves();
    assert_eq!((resolves[0].clearance, resolves[0].attempt, resolves[0].failure.clone()), (ask.clearance, ask.attempt, None));
    assert_eq!(resolves.iter().map(|resolve| resolve.stage).collect::<Vec<_>>(), [Stage::Manifest, Stage::Whole]);
    let budgets = |effect: &Effect| match effect {
        Effect::AcquirePermit { budget, .. } | Effect::StartPull { budget, .. } => Some(budget.clone()),
        _ => None,
    };
    assert_eq!(world.all_effects.iter().filter_map(budgets).collect::<Vec<_>>(), vec![Some("owner".to_owned()); 2]);
    assert_eq!(world.core.next_alarm(), None, "nothing is left to wake it");
}

#[test]
fn backoff_check_carries_the_target() {
    let mut world = World::pulling(sharing());
    let (request, effects) = world.ask(wanted("a:1", Always));
    assert_eq!(names(&effects), ["FindTarget"]);
    let effects = world.give(Input::TargetFound { request, target: Some(Arc::new(target())), free_bytes: None });
    let Effect::CheckBackoff { target: asked, .. } = &effects[0] else { panic!("{effects:?}") };
    assert_eq!(asked.as_deref(), Some(&target()));
    let effects = world.give(Input::BackoffChecked { request, answer: BackoffAnswer::Refused(refusal()) });
    assert_eq!(names(&effects), ["Record"]);
    world.settle(effects);
    check_refusal(&world, request, &[BackOff]);
}

/// Checks a refusal: kubelet's message, and the node that learned of the failure.
fn check_refusal(world: &World, request: RequestId, events: &[EventReason]) {
    let answer = world.answer_to(request);
    assert_eq!((answer.outcome, answer.reason), (OutcomeKind::Backoff, Some(Reason::ImagePullBackOff)));
    assert_eq!(answer.message, "Back-off pulling image \"a:1\": ErrImagePull: gone");
    assert_eq!((answer.class, answer.next_attempt_ms), (Some(FailureClass::NotFound), Some(8_000)));
    assert_eq!((answer.learned_by.as_deref(), answer.learned_ms_ago), (Some("n9"), Some(2_000)));
    assert_eq!(answer.learned_trace_id.as_deref(), Some("4bf92f3577b34da6a3ce929d0e0e4736"));
    assert_eq!(world.reasons_of(request), events);
    let event = world.events_of(request).pop().unwrap();
    assert_eq!(event.message, "Back-off pulling image \"a:1\"");
    assert_eq!((event.learned_by, event.learned_trace), (refusal().learned_by, refusal().learned_trace));
    assert_eq!((event.learned_ms_ago, event.next_attempt_ms), (Some(2_000), Some(8_000)));
}

#[test]
fn caller_that_waits_for_clearance_is_refused_when_a_failure_is_corroborated() {
    for answer in [Clearance::Refused(refusal()), Clearance::Waiting { held: Some(refusal()) }] {
        let (mut world, request) = waiting();
        let effects = world.clearance(FLIGHT, Some(answer));
        assert_eq!(names(&effects), ["Cancel", "Withdraw", "Record"], "no permit was asked for");
        world.settle(effects);
        check_refusal(&world, request, &[BackOff]);
        assert!(world.core.flights(world.now).is_empty());
        assert_eq!(world.core.next_alarm(), None);
    }
}

#[test]
fn unconfirmed_failure_delays_and_does_not_refuse() {
    let (mut world, request) = waiting();
    let unconfirmed = Refusal { unconfirmed: true, ..refusal() };
    assert_eq!(world.clearance(FLIGHT, Some(Clearance::Waiting { held: Some(unconfirmed.clone()) })), []);
    world.let_pass(1_500);
    assert_eq!(names(&world.clearance(FLIGHT, granted_for_all())), ["Record", "AcquirePermit", "RequestClearance"]);
    assert_eq!(world.reasons_of(request), [Pulling], "it waited, and no back-off was recorded");

    let (mut world, request) = waiting();
    for _ in 0..10 {
        world.clearance(FLIGHT, Some(Clearance::Waiting { held: Some(unconfirmed.clone()) }));
        let effects = world.let_pass(1_000);
        world.settle(effects);
    }
    let answer = world.answer_to(request);
    assert_eq!((answer.outcome, answer.learned_by.as_deref()), (OutcomeKind::Backoff, Some("n9")), "its wait ends all the same");
}

#[test]
fn each_caller_waits_for_clearance_as_long_as_the_policy_allows() {
    let (mut world, first) = waiting();
    world.let_pass(4_000);
    let (second, effects) = world.ask_until_clearance(wanted("a:1", IfNotPresent));
    assert_eq!(names(&effects), [""; 0], "it joins");
    let nothing = Some(Clearance::Waiting { held: None });
    world.let_pass(1_000);
    assert_eq!(names(&world.clearance(FLIGHT, nothing.clone())), ["RequestClearance"]);
    world.let_pass(4_999);
    assert_eq!(world.answers_to(first), []);
    let effects = world.let_pass(1);
    world.settle(effects);
    let answer = world.answer_to(first);
    assert_eq!((answer.outcome, answer.waiting_ms, answer.class), (OutcomeKind::Backoff, 10_000, Some(FailureClass::Unknown)));
    assert_eq!(
        answer.message,
        "Back-off pulling image \"a:1\": ErrImagePull: no clearance within 10s: still waiting for the result of another node's attempt"
    );
    assert_eq!((answer.learned_by, answer.learned_ms_ago), (None, None));
    assert_eq!(world.answers_to(second), []);
    world.clearance(FLIGHT, nothing);
    let effects = world.let_pass(4_000);
    assert_eq!(names(&effects), ["Cancel", "Withdraw", "Record"]);
    world.settle(effects);
    assert_eq!(world.answer_to(second).waiting_ms, 10_000);
    assert_eq!(world.count("StartPull") + world.count("Release"), 0);
}

#[test]
fn tracker_gets_time_to_answer_with_any_policy() {
    let mut world = World::pulling(Policy { clearance_within: Some(Duration::ZERO), ..sharing() });
    let (request, _) = world.ask_until_clearance(wanted("a:1", IfNotPresent));
    assert_eq!(world.clearances_requested(FLIGHT)[0].1.patience_ms, 500);
    assert_eq!(world.let_pass(999), []);
    let effects = world.clearance(FLIGHT, Some(Clearance::Refused(refusal())));
    world.settle(effects);
    check_refusal(&world, request, &[BackOff]);
}

#[test]
fn undecided_tracker_is_asked_again_at_most_once_a_second() {
    let (mut world, _) = waiting();
    let waiting = Some(Clearance::Waiting { held: None });
    assert_eq!(names(&world.clearance(FLIGHT, waiting.clone())), [""; 0]);
    for _ in 0..5 {
        assert_eq!(names(&world.let_pass(1_000)), ["RequestClearance"]);
        world.clearance(FLIGHT, waiting.clone());
    }
    // After a slow answer the tracker is asked again at once.
    world.let_pass(1_000);
    world.pass(2_000);
    assert_eq!(names(&world.clearance(FLIGHT, waiting)), ["RequestClearance"]);
    let asked = world.clearances_requested(FLIGHT);
    assert!(
        asked.iter().all(|(_, ask)| (ask.clearance, ask.attempt) == (asked[0].1.clearance, asked[0].1.attempt)),
        "it is one request for clearance"
    );
}

#[test]
fn tracker_that_never_answers_causes_no_refusal() {
    let (mut world, request) = waiting();
    assert_eq!(names(&world.let_pass(10_000)), ["Record", "AcquirePermit", "RequestClearance"]);
    assert_eq!(world.answers_to(request), []);
    assert_eq!(world.give(Input::ClearanceAnswered { flight: FLIGHT, turn: 1, answer: Some(Clearance::Refused(refusal())) }), [], "late");
}

#[test]
fn tracker_without_answer_counts_as_clearance() {
    let (mut world, request) = pulling(None);
    world.pulled(FLIGHT);
    let finished = world.verified(FLIGHT);
    world.settle(finished);
    assert_eq!(world.answer_to(request).outcome, OutcomeKind::Pulled);
}

#[test]
fn answer_to_an_earlier_request_for_clearance_changes_nothing() {
    let (mut world, _) = waiting();
    for turn in [0, 2, 77] {
        assert_eq!(world.give(Input::ClearanceAnswered { flight: FLIGHT, turn, answer: granted() }), []);
    }
    world.clearance(FLIGHT, granted());
    for answer in [granted(), None, Some(Clearance::Refused(refusal())), Some(Clearance::Abandoned)] {
        assert_eq!(world.give(Input::ClearanceAnswered { flight: FLIGHT, turn: 1, answer }), [], "twice");
    }
    world.grant(FLIGHT);
    assert_eq!(world.give(Input::ClearanceAnswered { flight: FLIGHT, turn: 1, answer: Some(Clearance::Abandoned) }), []);
    // Clearance that is confirmed at once is not requested again at once.
    assert_eq!(world.clearance(FLIGHT, granted()), []);
    assert_eq!(world.let_pass(9_999), []);
    assert_eq!(names(&world.let_pass(1)), ["RequestClearance"]);
}

#[test]
fn resolved_failure_has_all_that_the_runtime_knows() {
    let (mut world, request) = pulling(granted_for_all());
    let failure = Failure {
        authoritative: true,
        endpoint: Some("mirror.example:443".to_owned()),
        no_such_platform: true,
        retry_after: Some(Duration::from_secs(20)),
        ..failure("gone")
    };
    let finished = world.give(Input::Pulled { flight: FLIGHT, result: Err(failure) });
    assert_eq!(names(&finished), ["Resolve", "Release", "Withdraw", "Report", "Record"]);
    world.settle(finished);
    let resolved = world.resolves()[0].failure.clone().unwrap();
    assert_eq!(world.reports()[0].failure.as_ref(), Some(&resolved));
    let span = world.clearances_requested(FLIGHT)[0].1.attempt_span;
    assert!(span.is_some() && world.reports()[0].attempt_span == span, "of the same attempt");
    assert_eq!((resolved.cause.as_str(), resolved.class, resolved.authoritative), ("ErrImagePull: gone", FailureClass::NotFound, true));
    assert_eq!(
        (resolved.endpoint.as_deref(), resolved.no_such_platform, resolved.retry_after_ms),
        (Some("mirror.example:443"), true, Some(20_000))
    );
    assert_eq!(world.reasons_of(request), [Pulling, Failed]);
}

#[test]
fn failure_after_the_manifest_is_not_resolved_again() {
    let (mut world, _) = pulling(granted_for_all());
    world.give(Input::Resolved { flight: FLIGHT, seen: true });
    let finished = world.give(Input::Pulled { flight: FLIGHT, result: Err(failure("short")) });
    assert_eq!(names(&finished)[..3], ["Release", "Withdraw", "Report"]);
    assert_eq!(world.resolves().len(), 1);
}

/// Clearance for the blob stage lasts beyond the manifest, until the blob's first byte.
#[test]
fn attempt_ends_when_a_requested_blob_is_late() {
    let begun = || {
        let (mut world, request) = pulling(granted_until_blob());
        assert_eq!(names(&world.give(Input::Resolved { flight: FLIGHT, seen: true })), ["Resolve"]);
        assert!(world.core.next_alarm().is_some(), "clearance lasts until a blob answers");
        (world, request)
    };
    let careful = |effect: &Effect| matches!(effect, Effect::StartPull { one_blob_first: true, .. });
    let (mut world, _) = begun();
    assert!(world.all_effects.iter().any(careful), "one blob is asked for first");
    world.give(Input::BlobAwaited { flight: FLIGHT });
    let effects = world.let_pass(15_000);
    assert!(names(&effects).starts_with(&["Cancel", "Resolve", "Release", "Withdraw"]), "{:?}", names(&effects));
    let resolved = world.resolves()[1].failure.clone().unwrap();
    assert_eq!((resolved.class, resolved.stage), (FailureClass::RegistryUnavailable, Stage::Blob));
    assert!(resolved.cause.contains("has not sent a requested blob"), "{}", resolved.cause);

    let (mut world, _) = begun();
    world.let_pass(15_000);
    assert_eq!(world.count("Cancel"), 0, "a pull that asks for no blob waits for none");

    let (mut world, _) = begun();
    world.give(Input::BlobAwaited { flight: FLIGHT });
    assert_eq!(names(&world.give(Input::Reached { flight: FLIGHT, stage: Stage::Blob })), ["Resolve"]);
    assert_eq!(world.give(Input::Reached { flight: FLIGHT, stage: Stage::Blob }), [], "it is resolved once");
    world.let_pass(60_000);
    assert_eq!(world.count("Cancel"), 0);
    assert_eq!(world.core.next_alarm(), None);
}

#[test]
fn attempt_without_a_manifest_in_time_ends_as_failed() {
    let (mut world, request) = pulling(granted_for_all());
    let effects = world.let_pass(15_000);
    assert_eq!(names(&effects), ["Cancel", "Resolve", "Release", "Withdraw", "Report", "Record"]);
    world.settle(effects);
    let resolved = world.resolves()[0].failure.clone().unwrap();
    assert_eq!((resolved.class, resolved.authoritative), (FailureClass::RegistryUnavailable, false));
    let answer = world.answer_to(request);
    assert_eq!(answer.message, "no answer within 15s: docker.io has not sent the manifest");
    assert_eq!(answer.reason, Some(Reason::ErrImagePull));
}

#[test]
fn runtime_that_hides_the_manifest_is_waited_for() {
    let (mut world, _) = pulling(granted_for_all());
    world.give(Input::Resolved { flight: FLIGHT, seen: false });
    assert_eq!(world.resolves(), []);
    world.let_pass(60_000);
    assert_eq!((world.count("Cancel"), world.core.flights(world.now).len()), (0, 1));
    assert_eq!(names(&world.pulled(FLIGHT)), ["Verify", "Resolve"]);
}

#[test]
fn attempt_that_the_fleet_gave_up_restarts_without_a_report() {
    let (mut world, request) = pulling(granted());
    world.let_pass(4_000);
    let effects = world.clearance(FLIGHT, Some(Clearance::Abandoned));
    assert_eq!(names(&effects), ["Cancel", "Release", "RequestClearance"]);
    let asked = world.clearances_requested(FLIGHT);
    let (first, last) = (&asked[0].1, &asked[2].1);
    assert_eq!(first.clearance, last.clearance);
    assert_ne!(first.attempt, last.attempt);
    assert_eq!((world.resolves().len(), world.answers_to(request).len()), (0, 0));
    // Results of the first attempt are ignored.
    assert_eq!(world.pulled(FLIGHT), []);
    assert_eq!(names(&world.clearance(FLIGHT, granted())), ["AcquirePermit", "RequestClearance"], "Pulling is recorded once");
    world.grant(FLIGHT);
    world.give(Input::Rechecked { flight: FLIGHT, found: Ok(None) });
    world.pulled(FLIGHT);
    assert_eq!(world.resolves()[0].attempt, last.attempt);
    assert_eq!(world.count("Release"), 1);
}

#[test]
fn attempt_with_a_hidden_manifest_goes_on_when_the_fleet_gives_it_up() {
    let (mut world, request) = pulling(granted());
    world.give(Input::Resolved { flight: FLIGHT, seen: false });
    assert_eq!(names(&world.clearance(FLIGHT, Some(Clearance::Abandoned))), ["Withdraw"], "its leases are free for other nodes");
    assert_eq!(world.let_pass(60_000), [], "a clearance given up is not requested again");
    assert_eq!(names(&world.pulled(FLIGHT)), ["Verify"], "the tracker no longer waits for this attempt");
    let finished = world.verified(FLIGHT);
    assert_eq!(names(&finished)[..2], ["Release", "Report"], "it is withdrawn once");
    world.settle(finished);
    assert_eq!(world.answer_to(request).outcome, OutcomeKind::Pulled);
}

#[test]
fn late_permit_requests_clearance_again_and_keeps_the_permit() {
    let (mut world, _) = allowed(granted_for_all());
    world.pass(7_501);
    assert_eq!(names(&world.grant(FLIGHT)), ["Recheck"]);
    let effects = world.give(Input::Rechecked { flight: FLIGHT, found: Ok(None) });
    assert_eq!(names(&effects), ["Withdraw", "RequestClearance"]);
    let asked = world.clearances_requested(FLIGHT);
    assert_ne!(asked[0].1.clearance, asked[2].1.clearance, "a withdrawn clearance is not used again");
    assert_eq!(asked[2].1.patience_ms, 100, "the tracker answers soon, because others wait for the permit");
    assert_eq!(names(&world.clearance(FLIGHT, granted_for_all())), ["StartPull", "RequestClearance"]);
}

#[test]
fn kept_permit_is_returned_when_clearance_is_withheld() {
    let (mut world, _) = allowed(granted_for_all());
    world.let_pass(15_000);
    assert_eq!(world.count("Withdraw"), 0, "the tracker lets others lead, and reports if others fail");
    assert_eq!(names(&world.grant(FLIGHT)), ["Recheck"]);
    assert_eq!(names(&world.give(Input::Rechecked { flight: FLIGHT, found: Ok(None) })), ["Withdraw", "RequestClearance"]);
    assert_eq!(names(&world.clearance(FLIGHT, Some(Clearance::Waiting { held: None }))), ["Release"]);
    world.let_pass(1_000);
    assert_eq!(names(&world.clearance(FLIGHT, granted_for_all())), ["AcquirePermit", "RequestClearance"]);
    let permits: std::collections::BTreeSet<_> = world.all_effects.iter().filter_map(permit_of).collect();
    assert_eq!(permits.len(), 2, "a returned permit is not asked for again");
}

fn permit_of(effect: &Effect) -> Option<contract::PermitId> {
    match effect {
        Effect::AcquirePermit { permit, .. } => Some(*permit),
        _ => None,
    }
}

#[test]
fn clearance_lost_in_the_queue_is_requested_again_and_the_place_given_up() {
    for answer in [Clearance::Abandoned, Clearance::Refused(refusal()), Clearance::Waiting { held: None }] {
        let (mut world, _) = allowed(granted());
        assert_eq!(names(&world.clearance(FLIGHT, Some(answer))), ["Cancel", "Release", "RequestClearance"]);
        let asked = world.clearances_requested(FLIGHT);
        assert_ne!(asked[1].1.attempt, asked[2].1.attempt);
        assert_eq!(world.grant(FLIGHT), [], "the permit given up has no effect");
        assert_eq!(names(&world.clearance(FLIGHT, granted())), ["AcquirePermit", "RequestClearance"]);
        let permits: std::collections::BTreeSet<_> = world.all_effects.iter().filter_map(permit_of).collect();
        assert_eq!(permits.len(), 2);
    }
}

#[test]
fn clearance_lost_during_the_recheck_is_requested_again_with_the_permit() {
    for answer in [Clearance::Abandoned, Clearance::Refused(refusal()), Clearance::Waiting { held: None }] {
        let (mut world, _) = allowed(granted());
        world.pass(5_000);
        assert_eq!(names(&world.grant(FLIGHT)), ["Recheck"]);
        assert_eq!(world.clearance(FLIGHT, Some(answer)), []);
        assert_eq!(names(&world.give(Input::Rechecked { flight: FLIGHT, found: Ok(None) })), ["Withdraw", "RequestClearance"]);
        let asked = world.clearances_requested(FLIGHT);
        assert_ne!(asked[1].1.attempt, asked[2].1.attempt);
    }
}

#[test]
fn queued_flight_with_expired_clearance_still_learns_of_failures() {
    let (mut world, _) = allowed(granted_for_all());
    world.let_pass(20_000);
    assert_eq!(names(&world.clearance(FLIGHT, Some(Clearance::Abandoned))), ["Cancel", "Release", "RequestClearance"]);
    assert_eq!(names(&world.clearance(FLIGHT, granted_for_all())), ["AcquirePermit", "RequestClearance"]);
}

#[test]
fn wait_for_the_node_is_unlimited_and_wait_for_the_budget_is_limited() {
    let (mut world, request) = allowed(granted());
    let effects = world.give(queued(None));
    assert_eq!(names(&effects), ["Record", "AcquirePermit"], "Throttled is recorded");
    world.settle(effects);
    for _ in 0..10 {
        assert_eq!(names(&world.give(queued(None))), ["AcquirePermit"], "once");
        world.let_pass(10_000);
    }
    assert_eq!(names(&world.give(queued(Some(6_000)))), ["AcquirePermit"]);
    world.let_pass(9_999);
    assert_eq!(world.answers_to(request), []);
    let effects = world.let_pass(1);
    assert_eq!(names(&effects), ["Cancel", "Release", "Withdraw", "Record"]);
    world.settle(effects);
    let answer = world.answer_to(request);
    assert_eq!(
        (answer.outcome, answer.class, answer.next_attempt_ms),
        (OutcomeKind::Backoff, Some(FailureClass::RateLimited), Some(6_000))
    );
    assert_eq!(
        answer.message,
        "Back-off pulling image \"a:1\": ErrImagePull: the fleet's budget for registry.example is used up: its turn comes in 6s"
    );
    assert_eq!(world.reasons_of(request), [Pulling, EventReason::Throttled, BackOff]);
}

#[test]
fn budget_wait_beyond_the_limit_is_refused_at_once() {
    let (mut world, request) = allowed(granted());
    let effects = world.give(queued(Some(10_001)));
    assert_eq!(names(&effects), ["Cancel", "Release", "Withdraw", "Record"]);
    world.settle(effects);
    assert_eq!(world.answer_to(request).next_attempt_ms, Some(10_001));
}

#[test]
fn refused_permit_fails_the_pull_without_a_report_to_the_fleet() {
    let (mut world, _) = allowed(granted_for_all());
    let answer = PermitAnswer::Refused { text: "pull QPS exceeded".to_owned() };
    let effects = world.give(Input::Permitted { flight: FLIGHT, answer });
    assert_eq!(names(&effects), ["Release", "Withdraw", "Report", "Record"]);
    assert_eq!(world.resolves(), [], "no registry was asked");
}

#[test]
fn image_found_present_later_withdraws_clearance_without_a_report() {
    let (mut world, request) = allowed(granted_for_all());
    world.pass(1_000);
    world.grant(FLIGHT);
    let effects = world.give(Input::Rechecked { flight: FLIGHT, found: Ok(Some(present_image())) });
    assert_eq!(names(&effects), ["Release", "Withdraw", "Record"]);
    world.settle(effects);
    assert_eq!(world.answer_to(request).outcome, OutcomeKind::Present);
}

#[test]
fn last_caller_to_leave_returns_permit_and_clearance() {
    for (stage, given_back) in [
        ("clearance", &["Cancel", "Withdraw", "Answer"][..]),
        ("queue", &["Cancel", "Release", "Withdraw", "Answer"]),
        ("pull", &["Cancel", "Release", "Withdraw", "Answer"]),
    ] {
        let (mut world, request) = match stage {
            "clearance" => waiting(),
            "queue" => allowed(granted_for_all()),
            _ => pulling(granted_for_all()),
        };
        assert_eq!(names(&world.give(Input::TimeOver { request })), given_back, "{stage}");
        assert_eq!((world.core.next_alarm(), world.resolves().len()), (None, 0), "{stage}");
        assert_eq!(world.clearance(FLIGHT, granted()), [], "{stage}");
    }
}

#[test]
fn changed_login_gets_a_flight_of_its_own() {
    let (mut world, _) = waiting();
    let (request, _) = world.ask(wanted("a:1", Always));
    let other = contract::Target { fingerprint: "new".to_owned(), ..target() };
    world.give(Input::TargetFound { request, target: Some(Arc::new(other)), free_bytes: None });
    let effects = world.give(Input::BackoffChecked { request, answer: BackoffAnswer::Allowed });
    assert_eq!(names(&effects), ["RequestClearance"]);
}

#[test]
fn pull_without_a_pod_must_leave_space_free() {
    let policy = Policy { keep_free: Some(2_000), ..Policy::default() };
    for (asked_by, free, reason) in
        [(None, Some(1_999), Some(Reason::ErrImagePull)), (None, Some(2_000), None), (None, None, None), (pod("web"), Some(0), None)]
    {
        let mut world = World::pulling(policy);
        let ask = EnsureImage { pod: asked_by.clone(), ..wanted("a:1", Always) };
        let (request, effects) = world.ask(ask);
        assert_eq!(names(&effects), [if asked_by.is_some() { "CheckBackoff" } else { "FindTarget" }]);
        let effects = world.give(Input::TargetFound { request, target: None, free_bytes: free });
        world.settle(effects);
        let answers = world.answers_to(request);
        assert_eq!(answers.first().and_then(|answer| answer.reason), reason);
        if let [answer] = answers.as_slice() {
            assert_eq!(answer.class, Some(FailureClass::NodeLocal));
            assert_eq!(
                answer.message,
                "\"a:1\" is not pulled: no pod asked for it, and with 1999 bytes free the node is 1 bytes short of pull.keep_free = 2000; \
                 remove images that nobody needs, or lower pull.keep_free"
            );
            assert_eq!(world.reasons_of(request), [Failed]);
            assert_eq!(world.reports(), [], "no attempt was made");
        }
    }
}

/// Clearance withheld by the node's own back-off.
fn own_backoff() -> Clearance {
    Clearance::Waiting { held: Some(Refusal { learned_by: None, next_attempt_ms: 300_000, ..refusal() }) }
}

#[test]
fn caller_without_own_backoff_is_not_refused_by_that_of_a_standing_pull() {
    let mut world = World::pulling(sharing());
    let of_pod = |name| EnsureImage { pod: pod(name), ..standing("a:1") };
    let (_, effects) = world.ask_until_clearance(of_pod("refused"));
    assert_eq!(names(&effects), ["RequestClearance"]);
    let effects = world.clearance(FLIGHT, Some(own_backoff()));
    world.settle(effects);
    let old_question = world.clearances_requested(FLIGHT).len() as u64;
    let (plain, effects) = world.ask_until_clearance(wanted("a:1", IfNotPresent));
    assert_eq!(names(&effects), ["RequestClearance"], "the tracker is asked for both");
    let asked = world.clearances_requested(FLIGHT).pop().unwrap().1;
    assert_eq!((asked.key.pod, asked.other_keys.len(), asked.other_keys[0].pod.clone()), (pod("refused"), 1, None));
    assert_eq!(asked.clearance, world.clearances_requested(FLIGHT)[0].1.clearance, "it is the same clearance, so its leases stay");
    assert_eq!(world.give(Input::ClearanceAnswered { flight: FLIGHT, turn: old_question, answer: Some(own_backoff()) }), []);
    assert_eq!(world.answers_to(plain), [], "the standing pull's back-off does not refuse it");
    let (second, effects) = world.ask_until_clearance(wanted("a:1", IfNotPresent));
    assert_eq!(names(&effects), [""; 0], "the same key is not asked for twice");
    let effects = world.clearance(FLIGHT, granted());
    world.settle(effects);
    world.grant(FLIGHT);
    world.give(Input::Rechecked { flight: FLIGHT, found: Ok(None) });
    world.pulled(FLIGHT);
    let finished = world.verified(FLIGHT);
    world.settle(finished);
    for request in [plain, second] {
        assert_eq!(world.answer_to(request).outcome, OutcomeKind::Pulled);
    }
    assert_eq!(world.core.standing_pulls(world.now), [], "the standing pull has its image too");
}

#[test]
fn flight_left_with_backed_off_callers_follows_their_backoff_again() {
    let mut world = World::pulling(sharing());
    world.ask_until_clearance(EnsureImage { pod: pod("refused"), ..standing("a:1") });
    world.clearance(FLIGHT, Some(own_backoff()));
    let (plain, _) = world.ask_until_clearance(wanted("a:1", IfNotPresent));
    let effects = world.give(Input::TimeOver { request: plain });
    assert_eq!(names(&effects), ["RequestClearance", "Answer"]);
    let asked = world.clearances_requested(FLIGHT).pop().unwrap().1;
    assert_eq!((asked.key.pod, asked.other_keys), (pod("refused"), vec![]));
}

/// How far a request is when its caller leaves.
#[derive(Clone, Copy, Debug, PartialEq)]
enum At {
    FindingTarget,
    CheckingBackoff,
    AwaitingClearance,
    Queued,
    Pulling,
    Verifying,
    Recording,
}

/// A stage, and the input that brings a request there.
type Step<'a> = (At, &'a dyn Fn(&mut World));

/// A node that shares, with one caller without a standing pull whose request is at `stage`.
fn caller_at(stage: At) -> (World, RequestId) {
    let mut world = World::pulling(sharing());
    let (request, _) = world.ask(wanted("a:1", Always));
    let looked = Input::TargetFound { request, target: Some(Arc::new(target())), free_bytes: None };
    let steps: [Step<'_>; 6] = [
        (At::CheckingBackoff, &|world| drop(world.give(looked.clone()))),
        (At::AwaitingClearance, &|world| drop(world.give(Input::BackoffChecked { request, answer: BackoffAnswer::Allowed }))),
        (At::Queued, &|world| {
            world.clearance(FLIGHT, granted());
            world.give(Input::Recorded { request });
        }),
        (At::Pulling, &|world| drop(world.grant(FLIGHT))),
        (At::Verifying, &|world| drop(world.pulled(FLIGHT))),
        (At::Recording, &|world| drop(world.verified(FLIGHT))),
    ];
    if stage != At::FindingTarget {
        for (reached, step) in steps {
            step(&mut world);
            if reached == stage {
                break;
            }
        }
    }
    (world, request)
}

#[test]
fn flight_ends_with_its_last_caller_at_any_stage() {
    use At::*;
    for (stage, ends) in [
        (FindingTarget, &["Answer"][..]),
        (CheckingBackoff, &["Answer"]),
        (AwaitingClearance, &["Cancel", "Withdraw", "Answer"]),
        (Queued, &["Cancel", "Release", "Withdraw", "Answer"]),
        (Pulling, &["Cancel", "Release", "Withdraw", "Answer"]),
        (Verifying, &["Cancel", "Release", "Withdraw", "Answer"]),
        (Recording, &[]),
    ] {
        let (mut world, request) = caller_at(stage);
        assert_eq!(names(&world.give(Input::CallerAbandoned { request })), ends, "{stage:?}");
        assert_eq!(world.give(Input::CallerAbandoned { request }), [], "{stage:?}: given twice");
        if stage != Recording {
            assert_eq!((world.core.flights(world.now), world.core.next_alarm()), (vec![], None), "{stage:?}");
        }
        let waits = [AwaitingClearance, Queued, Pulling].contains(&stage);
        for other in [wanted("a:1", Always), standing("a:1")].into_iter().filter(|_| waits) {
            let (mut world, request) = caller_at(stage);
            let stands = other.wait_ms.is_some();
            world.ask_until_clearance(other);
            let effects = world.give(Input::CallerAbandoned { request });
            assert!(!names(&effects).contains(&"Cancel"), "{stage:?}, standing pull {stands}: {effects:?}");
            assert_eq!(world.core.flights(world.now).len(), 1, "{stage:?}, standing pull {stands}");
        }
    }
}

#[test]
fn standing_pull_goes_on_when_its_caller_leaves() {
    let mut world = World::pulling(sharing());
    let (caller, _) = world.ask_until_clearance(standing("a:1"));
    world.clearance(FLIGHT, granted());
    world.grant(FLIGHT);
    assert_eq!(world.give(Input::CallerAbandoned { request: caller }), []);
    assert_eq!((world.core.standing_pulls(world.now).len(), world.core.flights(world.now).len()), (1, 1));
    assert_eq!(world.core.standing_pulls(world.now)[0].callers, 0);
}
