//! Flights of a node that shares, walked through by hand.
//!
//! Contracts: no permit before clearance, and Pulling is said with it; who has no standing pull is refused when it is known
//! what holds it, or when it has waited long enough for the fleet, with who learned it in answer and event; a silent tracker holds
//! nobody back; what the attempt came to is told once, and the standing pull is always given back; a flight that was abandoned, that came too
//! late to its permit or that lost its clearance in the queue asks again; what comes late or twice changes nothing.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;
use std::time::Duration;

use contract::messages::backoff_tracker::{BackoffAnswer, Clearance, Refusal};
use contract::messages::pull_coordinator::{EnsureImage, OutcomeKind, PullPolicy};
use contract::messages::throttler::PermitAnswer;
use contract::{EventReason, FailureClass, Reason, Stage};
use pull_coordinator::core::{Effect, Failure, FlightId, Input, Policy, RequestId};

use super::world::{
    World, failure, granted, granted_for_all, granted_until_blob, held, names, pod, sharing, standing, target, there, wanted,
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
    let (request, effects) = world.board_sharing(wanted("a:1", IfNotPresent));
    assert_eq!(names(&effects), ["RequestClearance"]);
    (world, request)
}

/// The same with clearance, recorded.
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

/// The same with the runtime at work.
fn pulling(clearance: Option<Clearance>) -> (World, RequestId) {
    let (mut world, request) = allowed(clearance);
    assert_eq!(names(&world.grant(FLIGHT)), ["StartPull"]);
    (world, request)
}

#[test]
fn a_pull_asks_for_clearance_before_its_permit_and_tells_what_came_of_it() {
    let (mut world, request) = pulling(granted_for_all());
    assert_eq!(names(&world.give(Input::Resolved { flight: FLIGHT, seen: true })), ["Resolve"]);
    assert_eq!(names(&world.pulled(FLIGHT)), ["Verify"], "it is told once");
    let landed = world.verified(FLIGHT);
    assert_eq!(names(&landed)[..3], ["Resolve", "Release", "Withdraw"], "that it is whole is told as well");
    world.settle(landed);
    assert_eq!(world.reasons_of(request), [Pulling, Pulled]);
    assert_eq!(world.answer_to(request).outcome, OutcomeKind::Pulled);
    let ask = world.clearances_requested(FLIGHT)[0].1.clone();
    assert_eq!((ask.target, ask.standing), (target(), false));
    let told = world.told();
    assert_eq!((told[0].clearance, told[0].attempt, told[0].failure.clone()), (ask.clearance, ask.attempt, None));
    assert_eq!(told.iter().map(|told| told.stage).collect::<Vec<_>>(), [Stage::Manifest, Stage::Whole]);
    let budgets = |effect: &Effect| match effect {
        Effect::AcquirePermit { budget, .. } | Effect::StartPull { budget, .. } => Some(budget.clone()),
        _ => None,
    };
    assert_eq!(world.said.iter().filter_map(budgets).collect::<Vec<_>>(), vec![Some("owner".to_owned()); 2]);
    assert_eq!(world.core.next_alarm(), None, "nothing is left to wake it");
}

#[test]
fn the_back_off_is_checked_with_the_target() {
    let mut world = World::pulling(sharing());
    let (request, effects) = world.ask(wanted("a:1", Always));
    assert_eq!(names(&effects), ["LookAround"]);
    let effects = world.give(Input::LookedAround { request, target: Some(Arc::new(target())), free_bytes: None });
    let Effect::CheckBackoff { target: asked, .. } = &effects[0] else { panic!("{effects:?}") };
    assert_eq!(asked.as_deref(), Some(&target()));
    let effects = world.give(Input::BackoffChecked { request, answer: BackoffAnswer::Refused(held()) });
    assert_eq!(names(&effects), ["Record"]);
    world.settle(effects);
    check_refusal(&world, request, &[BackOff]);
}

/// It is refused in kubelet's words, and says who found out.
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
    assert_eq!((event.learned_by, event.learned_trace), (held().learned_by, held().learned_trace));
    assert_eq!((event.learned_ms_ago, event.next_attempt_ms), (Some(2_000), Some(8_000)));
}

#[test]
fn who_waits_for_clearance_is_refused_when_it_is_known_what_holds_it() {
    for answer in [Clearance::Refused(held()), Clearance::Waiting { held: Some(held()) }] {
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
fn what_one_other_node_alone_reports_refuses_nobody() {
    let (mut world, request) = waiting();
    let unconfirmed = Refusal { unconfirmed: true, ..held() };
    assert_eq!(world.clearance(FLIGHT, Some(Clearance::Waiting { held: Some(unconfirmed.clone()) })), []);
    world.let_pass(1_500);
    assert_eq!(names(&world.clearance(FLIGHT, granted_for_all())), ["Record", "AcquirePermit", "RequestClearance"]);
    assert_eq!(world.reasons_of(request), [Pulling], "it waited, and no back-off was said");

    let (mut world, request) = waiting();
    for _ in 0..10 {
        world.clearance(FLIGHT, Some(Clearance::Waiting { held: Some(unconfirmed.clone()) }));
        let effects = world.let_pass(1_000);
        world.settle(effects);
    }
    let answer = world.answer_to(request);
    assert_eq!((answer.outcome, answer.learned_by.as_deref()), (OutcomeKind::Backoff, Some("n9")), "its patience ends all the same");
}

#[test]
fn each_caller_waits_for_clearance_as_long_as_the_policy_says() {
    let (mut world, first) = waiting();
    world.let_pass(4_000);
    let (second, effects) = world.board_sharing(wanted("a:1", IfNotPresent));
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
        "Back-off pulling image \"a:1\": ErrImagePull: no clearance within 10s: another node is finding out whether it can be had"
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
fn a_tracker_has_time_to_answer_whatever_the_policy_says() {
    let mut world = World::pulling(Policy { clearance_within: Some(Duration::ZERO), ..sharing() });
    let (request, _) = world.board_sharing(wanted("a:1", IfNotPresent));
    assert_eq!(world.clearances_requested(FLIGHT)[0].1.patience_ms, 500);
    assert_eq!(world.let_pass(999), []);
    let effects = world.clearance(FLIGHT, Some(Clearance::Refused(held())));
    world.settle(effects);
    check_refusal(&world, request, &[BackOff]);
}

#[test]
fn a_tracker_that_decides_nothing_is_asked_again_but_not_without_end() {
    let (mut world, _) = waiting();
    let waiting = Some(Clearance::Waiting { held: None });
    assert_eq!(names(&world.clearance(FLIGHT, waiting.clone())), [""; 0]);
    for _ in 0..5 {
        assert_eq!(names(&world.let_pass(1_000)), ["RequestClearance"]);
        world.clearance(FLIGHT, waiting.clone());
    }
    // One that took its time is asked again at once.
    world.let_pass(1_000);
    world.pass(2_000);
    assert_eq!(names(&world.clearance(FLIGHT, waiting)), ["RequestClearance"]);
    let asked = world.clearances_requested(FLIGHT);
    assert!(
        asked.iter().all(|(_, ask)| (ask.clearance, ask.attempt) == (asked[0].1.clearance, asked[0].1.attempt)),
        "it is one standing pull"
    );
}

#[test]
fn a_tracker_that_stays_silent_refuses_nobody() {
    let (mut world, request) = waiting();
    assert_eq!(names(&world.let_pass(10_000)), ["Record", "AcquirePermit", "RequestClearance"]);
    assert_eq!(world.answers_to(request), []);
    assert_eq!(world.give(Input::ClearanceAnswered { flight: FLIGHT, turn: 1, answer: Some(Clearance::Refused(held())) }), [], "late");
}

#[test]
fn a_silent_tracker_holds_nobody_back() {
    let (mut world, request) = pulling(None);
    world.pulled(FLIGHT);
    let landed = world.verified(FLIGHT);
    world.settle(landed);
    assert_eq!(world.answer_to(request).outcome, OutcomeKind::Pulled);
}

#[test]
fn an_answer_to_another_question_changes_nothing() {
    let (mut world, _) = waiting();
    for turn in [0, 2, 77] {
        assert_eq!(world.give(Input::ClearanceAnswered { flight: FLIGHT, turn, answer: granted() }), []);
    }
    world.clearance(FLIGHT, granted());
    for answer in [granted(), None, Some(Clearance::Refused(held())), Some(Clearance::Abandoned)] {
        assert_eq!(world.give(Input::ClearanceAnswered { flight: FLIGHT, turn: 1, answer }), [], "twice");
    }
    world.grant(FLIGHT);
    assert_eq!(world.give(Input::ClearanceAnswered { flight: FLIGHT, turn: 1, answer: Some(Clearance::Abandoned) }), []);
    // Clearance that is confirmed at once is not asked after again and again.
    assert_eq!(world.clearance(FLIGHT, granted()), []);
    assert_eq!(world.let_pass(9_999), []);
    assert_eq!(names(&world.let_pass(1)), ["RequestClearance"]);
}

#[test]
fn a_failure_is_told_with_all_that_the_runtime_knows() {
    let (mut world, request) = pulling(granted_for_all());
    let failure = Failure {
        authoritative: true,
        endpoint: Some("mirror.example:443".to_owned()),
        no_such_platform: true,
        retry_after: Some(Duration::from_secs(20)),
        ..failure("gone")
    };
    let landed = world.give(Input::Pulled { flight: FLIGHT, result: Err(failure) });
    assert_eq!(names(&landed), ["Resolve", "Release", "Withdraw", "Report", "Record"]);
    world.settle(landed);
    let told = world.told()[0].failure.clone().unwrap();
    assert_eq!(world.reports()[0].failure.as_ref(), Some(&told));
    let span = world.clearances_requested(FLIGHT)[0].1.attempt_span;
    assert!(span.is_some() && world.reports()[0].attempt_span == span, "of the same attempt");
    assert_eq!((told.cause.as_str(), told.class, told.authoritative), ("ErrImagePull: gone", FailureClass::NotFound, true));
    assert_eq!((told.endpoint.as_deref(), told.no_such_platform, told.retry_after_ms), (Some("mirror.example:443"), true, Some(20_000)));
    assert_eq!(world.reasons_of(request), [Pulling, Failed]);
}

#[test]
fn what_fails_after_the_manifest_is_not_told_again() {
    let (mut world, _) = pulling(granted_for_all());
    world.give(Input::Resolved { flight: FLIGHT, seen: true });
    let landed = world.give(Input::Pulled { flight: FLIGHT, result: Err(failure("short")) });
    assert_eq!(names(&landed)[..3], ["Release", "Withdraw", "Report"]);
    assert_eq!(world.told().len(), 1);
}

/// Clearance that waits for a blob is kept beyond the manifest, and ends with the blob's first byte.
#[test]
fn a_blob_that_is_asked_for_and_does_not_come_in_time_ends_the_attempt() {
    let begun = || {
        let (mut world, request) = pulling(granted_until_blob());
        assert_eq!(names(&world.give(Input::Resolved { flight: FLIGHT, seen: true })), ["Resolve"]);
        assert!(world.core.next_alarm().is_some(), "the manifest is not all that is waited for");
        (world, request)
    };
    let careful = |effect: &Effect| matches!(effect, Effect::StartPull { one_blob_first: true, .. });
    let (mut world, _) = begun();
    assert!(world.said.iter().any(careful), "one blob is asked for first");
    world.give(Input::BlobAwaited { flight: FLIGHT });
    let effects = world.let_pass(15_000);
    assert!(names(&effects).starts_with(&["Cancel", "Resolve", "Release", "Withdraw"]), "{:?}", names(&effects));
    let told = world.told()[1].failure.clone().unwrap();
    assert_eq!((told.class, told.stage), (FailureClass::RegistryUnavailable, Stage::Blob));
    assert!(told.cause.contains("has not given a blob"), "{}", told.cause);

    let (mut world, _) = begun();
    world.let_pass(15_000);
    assert_eq!(world.count("Cancel"), 0, "what asks for no blob waits for none");

    let (mut world, _) = begun();
    world.give(Input::BlobAwaited { flight: FLIGHT });
    assert_eq!(names(&world.give(Input::Reached { flight: FLIGHT, stage: Stage::Blob })), ["Resolve"]);
    assert_eq!(world.give(Input::Reached { flight: FLIGHT, stage: Stage::Blob }), [], "it is told once");
    world.let_pass(60_000);
    assert_eq!(world.count("Cancel"), 0);
    assert_eq!(world.core.next_alarm(), None);
}

#[test]
fn an_attempt_without_a_manifest_in_time_ends_as_failed() {
    let (mut world, request) = pulling(granted_for_all());
    let effects = world.let_pass(15_000);
    assert_eq!(names(&effects), ["Cancel", "Resolve", "Release", "Withdraw", "Report", "Record"]);
    world.settle(effects);
    let told = world.told()[0].failure.clone().unwrap();
    assert_eq!((told.class, told.authoritative), (FailureClass::RegistryUnavailable, false));
    let answer = world.answer_to(request);
    assert_eq!(answer.message, "no answer within 15s: docker.io has not given the manifest");
    assert_eq!(answer.reason, Some(Reason::ErrImagePull));
}

#[test]
fn a_manifest_that_cannot_be_seen_to_come_is_waited_for() {
    let (mut world, _) = pulling(granted_for_all());
    world.give(Input::Resolved { flight: FLIGHT, seen: false });
    assert_eq!(world.told(), []);
    world.let_pass(60_000);
    assert_eq!((world.count("Cancel"), world.core.flights(world.now).len()), (0, 1));
    assert_eq!(names(&world.pulled(FLIGHT)), ["Verify", "Resolve"]);
}

#[test]
fn an_abandoned_attempt_ends_without_a_word_and_begins_anew() {
    let (mut world, request) = pulling(granted());
    world.let_pass(4_000);
    let effects = world.clearance(FLIGHT, Some(Clearance::Abandoned));
    assert_eq!(names(&effects), ["Cancel", "Release", "RequestClearance"]);
    let asked = world.clearances_requested(FLIGHT);
    let (first, last) = (&asked[0].1, &asked[2].1);
    assert_eq!(first.clearance, last.clearance);
    assert_ne!(first.attempt, last.attempt);
    assert_eq!((world.told().len(), world.answers_to(request).len()), (0, 0));
    // What the first attempt's runtime says is nobody's any more.
    assert_eq!(world.pulled(FLIGHT), []);
    assert_eq!(names(&world.clearance(FLIGHT, granted())), ["AcquirePermit", "RequestClearance"], "Pulling is said once");
    world.grant(FLIGHT);
    world.give(Input::Rechecked { flight: FLIGHT, found: Ok(None) });
    world.pulled(FLIGHT);
    assert_eq!(world.told()[0].attempt, last.attempt);
    assert_eq!(world.count("Release"), 1);
}

#[test]
fn an_attempt_whose_manifest_cannot_be_seen_is_not_ended_because_others_are_answered() {
    let (mut world, request) = pulling(granted());
    world.give(Input::Resolved { flight: FLIGHT, seen: false });
    assert_eq!(names(&world.clearance(FLIGHT, Some(Clearance::Abandoned))), ["Withdraw"], "its leases are for others");
    assert_eq!(world.let_pass(60_000), [], "what is given up is not asked after");
    assert_eq!(names(&world.pulled(FLIGHT)), ["Verify"], "nobody waits for its word");
    let landed = world.verified(FLIGHT);
    assert_eq!(names(&landed)[..2], ["Release", "Report"], "it is given back once");
    world.settle(landed);
    assert_eq!(world.answer_to(request).outcome, OutcomeKind::Pulled);
}

#[test]
fn a_permit_that_comes_when_clearance_is_nearly_over_asks_again_with_the_permit_in_hand() {
    let (mut world, _) = allowed(granted_for_all());
    world.pass(7_501);
    assert_eq!(names(&world.grant(FLIGHT)), ["Recheck"]);
    let effects = world.give(Input::Rechecked { flight: FLIGHT, found: Ok(None) });
    assert_eq!(names(&effects), ["Withdraw", "RequestClearance"]);
    let asked = world.clearances_requested(FLIGHT);
    assert_ne!(asked[0].1.clearance, asked[2].1.clearance, "a standing pull that was given back does not come again");
    assert_eq!(asked[2].1.patience_ms, 100, "others wait for the permit");
    assert_eq!(names(&world.clearance(FLIGHT, granted_for_all())), ["StartPull", "RequestClearance"]);
}

#[test]
fn a_permit_in_hand_goes_back_when_clearance_does_not_come() {
    let (mut world, _) = allowed(granted_for_all());
    world.let_pass(15_000);
    assert_eq!(world.count("Withdraw"), 0, "the tracker lets others lead, and says if others fail");
    assert_eq!(names(&world.grant(FLIGHT)), ["Recheck"]);
    assert_eq!(names(&world.give(Input::Rechecked { flight: FLIGHT, found: Ok(None) })), ["Withdraw", "RequestClearance"]);
    assert_eq!(names(&world.clearance(FLIGHT, Some(Clearance::Waiting { held: None }))), ["Release"]);
    world.let_pass(1_000);
    assert_eq!(names(&world.clearance(FLIGHT, granted_for_all())), ["AcquirePermit", "RequestClearance"]);
    let permits: std::collections::BTreeSet<_> = world.said.iter().filter_map(permit_of).collect();
    assert_eq!(permits.len(), 2, "what was given back is not asked for again");
}

fn permit_of(effect: &Effect) -> Option<contract::PermitId> {
    match effect {
        Effect::AcquirePermit { permit, .. } => Some(*permit),
        _ => None,
    }
}

#[test]
fn clearance_that_is_lost_in_the_queue_is_asked_for_again_and_the_place_in_it_given_up() {
    for answer in [Clearance::Abandoned, Clearance::Refused(held()), Clearance::Waiting { held: None }] {
        let (mut world, _) = allowed(granted());
        assert_eq!(names(&world.clearance(FLIGHT, Some(answer))), ["Cancel", "Release", "RequestClearance"]);
        let asked = world.clearances_requested(FLIGHT);
        assert_ne!(asked[1].1.attempt, asked[2].1.attempt);
        assert_eq!(world.grant(FLIGHT), [], "what was given up brings nothing any more");
        assert_eq!(names(&world.clearance(FLIGHT, granted())), ["AcquirePermit", "RequestClearance"]);
        let permits: std::collections::BTreeSet<_> = world.said.iter().filter_map(permit_of).collect();
        assert_eq!(permits.len(), 2);
    }
}

#[test]
fn clearance_that_is_lost_with_the_permit_in_hand_is_asked_for_again_there() {
    for answer in [Clearance::Abandoned, Clearance::Refused(held()), Clearance::Waiting { held: None }] {
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
fn who_waits_in_the_queue_for_longer_than_its_clearance_lasts_still_hears_that_others_fail() {
    let (mut world, _) = allowed(granted_for_all());
    world.let_pass(20_000);
    assert_eq!(names(&world.clearance(FLIGHT, Some(Clearance::Abandoned))), ["Cancel", "Release", "RequestClearance"]);
    assert_eq!(names(&world.clearance(FLIGHT, granted_for_all())), ["AcquirePermit", "RequestClearance"]);
}

#[test]
fn the_nodes_own_queue_is_waited_for_without_limit_and_the_fleets_budget_is_not() {
    let (mut world, request) = allowed(granted());
    let effects = world.give(queued(None));
    assert_eq!(names(&effects), ["Record", "AcquirePermit"], "that it waits is told");
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
fn a_longer_stated_wait_for_the_budget_is_answered_at_once() {
    let (mut world, request) = allowed(granted());
    let effects = world.give(queued(Some(10_001)));
    assert_eq!(names(&effects), ["Cancel", "Release", "Withdraw", "Record"]);
    world.settle(effects);
    assert_eq!(world.answer_to(request).next_attempt_ms, Some(10_001));
}

#[test]
fn a_permit_refused_is_told_to_nobody_but_the_pod() {
    let (mut world, _) = allowed(granted_for_all());
    let answer = PermitAnswer::Refused { text: "pull QPS exceeded".to_owned() };
    let effects = world.give(Input::Permitted { flight: FLIGHT, answer });
    assert_eq!(names(&effects), ["Release", "Withdraw", "Report", "Record"]);
    assert_eq!(world.told(), [], "no registry was asked");
}

#[test]
fn an_image_that_came_meanwhile_gives_clearance_back_and_says_nothing() {
    let (mut world, request) = allowed(granted_for_all());
    world.pass(1_000);
    world.grant(FLIGHT);
    let effects = world.give(Input::Rechecked { flight: FLIGHT, found: Ok(Some(there())) });
    assert_eq!(names(&effects), ["Release", "Withdraw", "Record"]);
    world.settle(effects);
    assert_eq!(world.answer_to(request).outcome, OutcomeKind::Present);
}

#[test]
fn the_last_caller_to_leave_gives_back_what_its_flight_has() {
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
        assert_eq!((world.core.next_alarm(), world.told().len()), (None, 0), "{stage}");
        assert_eq!(world.clearance(FLIGHT, granted()), [], "{stage}");
    }
}

#[test]
fn a_login_that_changed_flies_by_itself() {
    let (mut world, _) = waiting();
    let (request, _) = world.ask(wanted("a:1", Always));
    let other = contract::Target { fingerprint: "new".to_owned(), ..target() };
    world.give(Input::LookedAround { request, target: Some(Arc::new(other)), free_bytes: None });
    let effects = world.give(Input::BackoffChecked { request, answer: BackoffAnswer::Allowed });
    assert_eq!(names(&effects), ["RequestClearance"]);
}

#[test]
fn a_pull_that_no_pod_asked_for_must_leave_room() {
    let policy = Policy { keep_free: Some(2_000), ..Policy::default() };
    for (asked_by, free, reason) in
        [(None, Some(1_999), Some(Reason::ErrImagePull)), (None, Some(2_000), None), (None, None, None), (pod("web"), Some(0), None)]
    {
        let mut world = World::pulling(policy);
        let ask = EnsureImage { pod: asked_by.clone(), ..wanted("a:1", Always) };
        let (request, effects) = world.ask(ask);
        assert_eq!(names(&effects), [if asked_by.is_some() { "CheckBackoff" } else { "LookAround" }]);
        let effects = world.give(Input::LookedAround { request, target: None, free_bytes: free });
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
            assert_eq!(world.reports(), [], "nothing was tried");
        }
    }
}

/// What a node's own rule says of its last failure.
fn own_hold() -> Clearance {
    Clearance::Waiting { held: Some(Refusal { learned_by: None, next_attempt_ms: 300_000, ..held() }) }
}

#[test]
fn a_caller_without_a_back_off_of_its_own_is_not_held_by_that_of_a_standing_pull() {
    let mut world = World::pulling(sharing());
    let of_pod = |name| EnsureImage { pod: pod(name), ..standing("a:1") };
    let (_, effects) = world.board_sharing(of_pod("held"));
    assert_eq!(names(&effects), ["RequestClearance"]);
    let effects = world.clearance(FLIGHT, Some(own_hold()));
    world.settle(effects);
    let old_question = world.clearances_requested(FLIGHT).len() as u64;
    let (plain, effects) = world.board_sharing(wanted("a:1", IfNotPresent));
    assert_eq!(names(&effects), ["RequestClearance"], "the tracker is asked for both");
    let asked = world.clearances_requested(FLIGHT).pop().unwrap().1;
    assert_eq!((asked.key.pod, asked.other_keys.len(), asked.other_keys[0].pod.clone()), (pod("held"), 1, None));
    assert_eq!(asked.clearance, world.clearances_requested(FLIGHT)[0].1.clearance, "it is the same standing pull: its leases stay");
    assert_eq!(world.give(Input::ClearanceAnswered { flight: FLIGHT, turn: old_question, answer: Some(own_hold()) }), []);
    assert_eq!(world.answers_to(plain), [], "what holds the other one does not refuse it");
    let (second, effects) = world.board_sharing(wanted("a:1", IfNotPresent));
    assert_eq!(names(&effects), [""; 0], "the same key is not asked for twice");
    let effects = world.clearance(FLIGHT, granted());
    world.settle(effects);
    world.grant(FLIGHT);
    world.give(Input::Rechecked { flight: FLIGHT, found: Ok(None) });
    world.pulled(FLIGHT);
    let landed = world.verified(FLIGHT);
    world.settle(landed);
    for request in [plain, second] {
        assert_eq!(world.answer_to(request).outcome, OutcomeKind::Pulled);
    }
    assert_eq!(world.core.standing_pulls(world.now), [], "the standing pull has its image too");
}

#[test]
fn a_flight_that_only_held_callers_are_left_of_goes_by_their_holds_again() {
    let mut world = World::pulling(sharing());
    world.board_sharing(EnsureImage { pod: pod("held"), ..standing("a:1") });
    world.clearance(FLIGHT, Some(own_hold()));
    let (plain, _) = world.board_sharing(wanted("a:1", IfNotPresent));
    let effects = world.give(Input::TimeOver { request: plain });
    assert_eq!(names(&effects), ["RequestClearance", "Answer"]);
    let asked = world.clearances_requested(FLIGHT).pop().unwrap().1;
    assert_eq!((asked.key.pod, asked.other_keys), (pod("held"), vec![]));
}

/// How far a request is when its caller goes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum At {
    LookingAround,
    CheckingBackoff,
    AwaitingClearance,
    Queued,
    Pulling,
    Verifying,
    Recording,
}

/// What brings a request so far.
type Step<'a> = (At, &'a dyn Fn(&mut World));

/// A node that shares, with one plain caller that has come so far.
fn caller_at(stage: At) -> (World, RequestId) {
    let mut world = World::pulling(sharing());
    let (request, _) = world.ask(wanted("a:1", Always));
    let looked = Input::LookedAround { request, target: Some(Arc::new(target())), free_bytes: None };
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
    if stage != At::LookingAround {
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
fn a_flight_ends_with_its_last_caller_wherever_it_is_and_goes_on_for_others() {
    use At::*;
    for (stage, ends) in [
        (LookingAround, &["Answer"][..]),
        (CheckingBackoff, &["Answer"]),
        (AwaitingClearance, &["Cancel", "Withdraw", "Answer"]),
        (Queued, &["Cancel", "Release", "Withdraw", "Answer"]),
        (Pulling, &["Cancel", "Release", "Withdraw", "Answer"]),
        (Verifying, &["Cancel", "Release", "Withdraw", "Answer"]),
        (Recording, &[]),
    ] {
        let (mut world, request) = caller_at(stage);
        assert_eq!(names(&world.give(Input::CallerGone { request })), ends, "{stage:?}");
        assert_eq!(world.give(Input::CallerGone { request }), [], "{stage:?}: said twice");
        if stage != Recording {
            assert_eq!((world.core.flights(world.now), world.core.next_alarm()), (vec![], None), "{stage:?}");
        }
        let waits = [AwaitingClearance, Queued, Pulling].contains(&stage);
        for other in [wanted("a:1", Always), standing("a:1")].into_iter().filter(|_| waits) {
            let (mut world, request) = caller_at(stage);
            let stands = other.wait_ms.is_some();
            world.board_sharing(other);
            let effects = world.give(Input::CallerGone { request });
            assert!(!names(&effects).contains(&"Cancel"), "{stage:?}, standing pull {stands}: {effects:?}");
            assert_eq!(world.core.flights(world.now).len(), 1, "{stage:?}, standing pull {stands}");
        }
    }
}

#[test]
fn a_standing_pull_stands_when_its_caller_goes() {
    let mut world = World::pulling(sharing());
    let (caller, _) = world.board_sharing(standing("a:1"));
    world.clearance(FLIGHT, granted());
    world.grant(FLIGHT);
    assert_eq!(world.give(Input::CallerGone { request: caller }), []);
    assert_eq!((world.core.standing_pulls(world.now).len(), world.core.flights(world.now).len()), (1, 1));
    assert_eq!(world.core.standing_pulls(world.now)[0].callers, 0);
}
