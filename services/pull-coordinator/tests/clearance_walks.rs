//! Flights of a node that shares, step by step.
//!
//! Contracts: no permit before clearance, and Pulling is recorded with it. A caller without a standing pull is refused when a failure is
//! corroborated or its wait for the fleet is over; answer and event name the node that learned of the failure. Without an answer of the
//! tracker the pull goes on. The result of an attempt is resolved once, and clearance is always withdrawn. A flight requests clearance
//! again after the fleet gave its attempt up, after a late permit, and after it lost clearance in the queue. Late and repeated inputs
//! change nothing.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod attempts;
mod joining;
mod leaving;
mod queue;

use std::time::Duration;

use contract::messages::backoff_tracker::{BackoffAnswer, Clearance, Refusal};
use contract::messages::pull_coordinator::{EnsureImage, OutcomeKind, PullPolicy};
use contract::{EventReason, FailureClass, Reason, Stage};
use pull_coordinator::core::{Effect, FlightId, Input, Policy, RequestId};

use super::world::{World, absent, granted, granted_for_all, names, pod, refusal, sharing, target, wanted};
use EventReason::{BackOff, Failed, Pulled, Pulling};
use PullPolicy::{Always, IfNotPresent};

const FLIGHT: FlightId = FlightId(1);

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
    assert_eq!(names(&effects), ["Inspect"]);
    let effects = world.give(absent(request));
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

/// Finding the target may run a credential helper.
#[test]
fn only_a_request_that_may_pull_needs_a_target_and_free_bytes() {
    for (policy, is_needed) in [(PullPolicy::Never, false), (IfNotPresent, true)] {
        let mut world = World::pulling(Policy { keep_free: Some(2_000), ..sharing() });
        let (_, effects) = world.ask(wanted("a:1", policy));
        let Effect::Inspect { presence, target, room, .. } = effects[0] else { panic!("{effects:?}") };
        assert_eq!((presence, target, room), (true, is_needed, is_needed), "{policy:?}");
    }
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
        assert_eq!(names(&effects), [if asked_by.is_some() { "CheckBackoff" } else { "Inspect" }]);
        let effects = world.give(Input::Inspected { request, found: Ok(None), target: None, free_bytes: free });
        world.settle(effects);
        let answers = world.answers_to(request);
        assert_eq!(answers.first().and_then(|answer| answer.reason), reason);
        if let [answer] = answers.as_slice() {
            assert_eq!(answer.class, Some(FailureClass::NodeLocal));
            assert_eq!(
                answer.message,
                "\"a:1\" is not pulled: no pod asked for it, and with 0 MiB free the node is 1 MiB short of pull.keep_free = 1 MiB; \
                 remove images that nobody needs, or lower pull.keep_free"
            );
            assert_eq!(world.reasons_of(request), [Failed]);
            assert_eq!(world.reports(), [], "no attempt was made");
        }
    }
}
