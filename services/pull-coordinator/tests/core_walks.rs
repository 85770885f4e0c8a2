//! The core, step by step.
//!
//! Contracts: callers of one image share one pull, each with its own events and answer; policy Always joins only before the tag is
//! resolved; presence is checked again after a late permit or after another pull's end; a time-out ends its caller's wait alone, and the
//! pull with the last caller; the runtime's success is verified; late and repeated inputs change nothing; the answer comes after the
//! events.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use contract::messages::backoff_tracker::{BackoffAnswer, Refusal};
use contract::messages::pull_coordinator::{EnsureImage, OutcomeKind, PullPolicy};
use contract::messages::throttler::PermitAnswer;
use contract::{EventReason, FailureClass, Reason};
use pull_coordinator::core::{Effect, FlightId, Input, RequestId};

use super::world::{World, absent, cause, failure, flight_of, name, names, pod, present_image, wanted};
use EventReason::{Failed, Pulled, Pulling};
use PullPolicy::{Always, IfNotPresent};

fn with_pod(ask: EnsureImage, name: &str) -> EnsureImage {
    EnsureImage { pod: pod(name), ..ask }
}

#[test]
fn twenty_callers_of_an_absent_image_share_one_pull() {
    let mut world = World::new();
    let mut callers = Vec::new();
    // Three spellings of one image, by different pods and without a pod.
    for number in 0..20 {
        let image = ["busybox", "busybox:latest", "docker.io/library/busybox"][number % 3];
        let ask = if number < 5 { wanted(image, IfNotPresent) } else { with_pod(wanted(image, IfNotPresent), &number.to_string()) };
        callers.push(world.ask_until_flight(ask).0);
    }
    assert_eq!(world.count("AcquirePermit"), 1);
    let flight = FlightId(1);
    let listed = world.core.flights(world.now).remove(0);
    assert_eq!((listed.callers, listed.pods.len()), (20, 15), "callers without a pod are none");
    assert!(listed.pods.contains(&pod("7").unwrap()), "{listed:?}");
    assert_eq!(names(&world.grant(flight)), ["StartPull"]);
    world.pass(1_500);
    assert_eq!(names(&world.pulled(flight)), ["Verify"]);
    let finished = world.verified(flight);
    world.settle(finished);
    for caller in &callers {
        assert_eq!(world.reasons_of(*caller), [Pulling, Pulled]);
        let answer = world.answer_to(*caller);
        assert_eq!((answer.outcome, answer.image_ref.as_str(), answer.duration_ms), (OutcomeKind::Pulled, "sha256:pulled", 1_500));
    }
    assert_eq!((world.count("StartPull"), world.count("Release")), (1, 1));
    assert!(world.reports().iter().all(|report| report.failure.is_none()));
    let ids: std::collections::BTreeSet<_> = callers.iter().flat_map(|caller| world.events_of(*caller)).map(|event| event.id).collect();
    assert_eq!(ids.len(), 40, "every event is its own");
    assert!(world.core.flights(world.now).is_empty());
}

#[test]
fn failure_is_reported_for_each_caller_with_one_attempt_id() {
    let mut world = World::new();
    let first = world.ask_until_flight(with_pod(wanted("a:1", IfNotPresent), "x")).0;
    let second = world.ask_until_flight(wanted("a:1", IfNotPresent)).0;
    let flight = FlightId(1);
    world.grant(flight);
    let finished = world.give(Input::Pulled { flight, result: Err(failure("gone")) });
    world.settle(finished);
    let reports = world.reports();
    assert_eq!(reports.len(), 2);
    assert_eq!(reports[0].attempt, reports[1].attempt, "the tracker counts an attempt once for each key");
    assert_eq!((reports[0].key.pod.clone(), reports[1].key.pod.clone()), (pod("x"), None));
    for (caller, report) in [first, second].into_iter().zip(&reports) {
        assert_eq!(report.failure, Some(cause("ErrImagePull: gone")));
        assert_eq!(world.reasons_of(caller), [Pulling, Failed]);
        let answer = world.answer_to(caller);
        assert_eq!((answer.reason, answer.message.as_str()), (Some(Reason::ErrImagePull), "gone"));
        assert_eq!((answer.class, answer.next_attempt_ms), (Some(FailureClass::NotFound), Some(10_000)));
    }
}

#[test]
fn always_joins_only_before_the_tag_is_resolved() {
    let mut world = World::new();
    world.ask_until_flight(wanted("a:1", IfNotPresent));
    let flight = FlightId(1);
    world.ask_until_flight(wanted("a:1", Always));
    assert_eq!(world.count("AcquirePermit"), 1, "it joined while the flight was queued");
    world.grant(flight);
    world.ask_until_flight(wanted("a:1", Always));
    assert_eq!(world.count("AcquirePermit"), 1, "it joined while nothing was resolved");
    world.give(Input::Resolved { flight, seen: false });
    let (_, effects) = world.ask_until_flight(wanted("a:1", Always));
    assert_eq!(flight_of(&effects), FlightId(2), "a resolved tag may be older than the request");
    let (_, effects) = world.ask_until_flight(wanted("a:1", IfNotPresent));
    assert_eq!(names(&effects), ["Record"], "policy IfNotPresent joins");
    world.grant(FlightId(2));
    world.pulled(FlightId(2));
    let (_, effects) = world.ask_until_flight(wanted("a:1", Always));
    assert_eq!(flight_of(&effects), FlightId(3), "a pull that is over is resolved, whether the runtime showed it or not");
}

#[test]
fn each_platform_has_a_flight_of_its_own() {
    let mut world = World::new();
    for platform in [None, Some("linux/arm64"), Some("linux/amd64"), Some("linux/arm64")] {
        world.ask_until_flight(EnsureImage { platform: platform.map(str::to_owned), ..wanted("a:1", IfNotPresent) });
    }
    assert_eq!(world.count("AcquirePermit"), 3);
}

#[test]
fn presence_is_rechecked_if_the_caller_with_policy_always_has_left() {
    let mut world = World::new();
    let leaves = world.ask_until_flight(wanted("a:1", Always)).0;
    let stays = world.ask_until_flight(wanted("a:1", IfNotPresent)).0;
    world.pass(4_000);
    world.give(Input::TimeOver { request: leaves });
    assert_eq!(names(&world.grant(FlightId(1))), ["Recheck"]);
    let effects = world.give(Input::Rechecked { flight: FlightId(1), found: Ok(Some(present_image())) });
    world.settle(effects);
    assert_eq!(world.answer_to(stays).outcome, OutcomeKind::Present);
}

#[test]
fn presence_is_rechecked_after_a_late_permit() {
    let mut world = World::new();
    let caller = world.ask_until_flight(wanted("a:1", IfNotPresent)).0;
    world.pass(4_000);
    assert_eq!(names(&world.grant(FlightId(1))), ["Recheck"]);
    world.pass(10);
    let effects = world.give(Input::Rechecked { flight: FlightId(1), found: Ok(Some(present_image())) });
    assert_eq!(names(&effects), ["Release", "Record"]);
    world.settle(effects);
    let answer = world.answer_to(caller);
    assert_eq!((answer.outcome, answer.image_ref.as_str(), answer.waiting_ms), (OutcomeKind::Present, "sha256:there", 4_010));
    assert_eq!(world.reasons_of(caller), [Pulling, Pulled]);
    let end = &world.events_of(caller)[1];
    assert_eq!(end.message, "Container image \"a:1\" already present on machine");
    assert!(end.is_durable() && end.waiting_ms == Some(4_010), "it follows Pulling, which is stored: {end:?}");
}

#[test]
fn pull_follows_the_recheck_if_the_image_is_absent_or_the_runtime_fails() {
    for found in [Ok(None), Err(failure("the store is closed"))] {
        let mut world = World::new();
        world.ask_until_flight(wanted("a:1", IfNotPresent));
        world.pass(4_000);
        world.grant(FlightId(1));
        assert_eq!(names(&world.give(Input::Rechecked { flight: FlightId(1), found })), ["StartPull"]);
    }
}

#[test]
fn policy_always_pulls_a_present_image() {
    let mut world = World::new();
    world.ask_until_flight(wanted("a:1", Always));
    world.pass(4_000);
    assert_eq!(names(&world.grant(FlightId(1))), ["StartPull"]);
    // It does not join a flight that is rechecking either.
    let mut world = World::new();
    world.ask_until_flight(wanted("a:1", IfNotPresent));
    world.pass(4_000);
    world.grant(FlightId(1));
    world.ask_until_flight(wanted("a:1", Always));
    assert_eq!(names(&world.give(Input::Rechecked { flight: FlightId(1), found: Ok(Some(present_image())) })), ["StartPull"]);
}

#[test]
fn request_that_inspected_before_another_pull_ended_rechecks() {
    let mut world = World::new();
    world.ask_until_flight(wanted("a:1", IfNotPresent));
    world.grant(FlightId(1));
    // The runtime answers "absent" to the second caller; then the first caller's pull ends before the second's back-off check.
    let (second, _) = world.ask(wanted("a:1", IfNotPresent));
    world.give(absent(second));
    world.pulled(FlightId(1));
    let finished = world.verified(FlightId(1));
    world.settle(finished);
    world.give(Input::BackoffChecked { request: second, answer: BackoffAnswer::Allowed });
    world.give(Input::Recorded { request: second });
    assert_eq!(names(&world.grant(FlightId(2))), ["Recheck"]);
    let effects = world.give(Input::Rechecked { flight: FlightId(2), found: Ok(Some(present_image())) });
    world.settle(effects);
    assert_eq!(world.answer_to(second).outcome, OutcomeKind::Present);
    assert_eq!(world.count("StartPull"), 1);
}

#[test]
fn time_out_ends_the_wait_of_its_caller_alone() {
    let mut world = World::new();
    let hasty = world.ask_until_flight(EnsureImage { timeout_ms: Some(1_000), ..wanted("a:1", IfNotPresent) }).0;
    let patient = world.ask_until_flight(wanted("a:1", IfNotPresent)).0;
    let flight = FlightId(1);
    world.grant(flight);
    world.pass(1_000);
    assert_eq!(names(&world.give(Input::TimeOver { request: hasty })), ["Answer"]);
    let answer = world.answer_to(hasty);
    assert!(answer.timed_out);
    assert_eq!((answer.outcome, answer.reason, answer.waiting_ms), (OutcomeKind::Failed, None, 1_000));
    assert_eq!(answer.message, "not there within 1s: the time given with --timeout is over");
    world.pulled(flight);
    let finished = world.verified(flight);
    world.settle(finished);
    assert_eq!(world.answer_to(patient).outcome, OutcomeKind::Pulled);
    assert_eq!(world.reports().len(), 1, "a caller that left reports nothing");
}

#[test]
fn flight_ends_with_its_last_caller_and_before_the_answer() {
    // The order matters: at an answer the shell forgets flights that are over.
    for stage in ["queued", "rechecking", "pulling", "verifying"] {
        let mut world = World::new();
        let callers = [world.ask_until_flight(wanted("a:1", IfNotPresent)).0, world.ask_until_flight(wanted("a:1", IfNotPresent)).0];
        let flight = FlightId(1);
        if stage == "rechecking" {
            world.pass(4_000);
        }
        if stage != "queued" {
            world.grant(flight);
        }
        if stage == "verifying" {
            world.pulled(flight);
        }
        assert_eq!(names(&world.give(Input::TimeOver { request: callers[0] })), ["Answer"], "{stage}");
        let effects = world.give(Input::TimeOver { request: callers[1] });
        assert_eq!(names(&effects), ["Cancel", "Release", "Answer"], "{stage}");
        assert!(world.core.flights(world.now).is_empty());
        // Later answers of the runtime and the throttler are ignored.
        assert_eq!(world.grant(flight), []);
        assert_eq!(world.pulled(flight), []);
        assert_eq!(world.verified(flight), []);
    }
}

#[test]
fn time_out_answer_waits_for_the_event_under_way() {
    let mut world = World::new();
    let (request, _) = world.ask(wanted("a:1", Always));
    world.give(Input::BackoffChecked { request, answer: BackoffAnswer::Allowed });
    let effects = world.give(Input::TimeOver { request });
    assert_eq!(names(&effects), ["Cancel", "Release"]);
    assert_eq!(names(&world.give(Input::Recorded { request })), ["Answer"]);
}

#[test]
fn answer_comes_after_the_events_and_the_report() {
    let mut world = World::new();
    let (request, _) = world.ask(wanted("a:1", Always));
    let effects = world.give(Input::BackoffChecked { request, answer: BackoffAnswer::Allowed });
    assert_eq!(names(&effects), ["Record", "AcquirePermit"]);
    let flight = FlightId(1);
    world.grant(flight);
    let effects = world.give(Input::Pulled { flight, result: Err(failure("gone")) });
    assert_eq!(names(&effects), ["Release", "Report"], "Failed waits until Pulling is recorded");
    assert_eq!(world.give(Input::Reported { request, next_attempt_ms: Some(10_000) }), []);
    assert_eq!(names(&world.give(Input::Recorded { request })), ["Record"]);
    assert_eq!(world.reasons_of(request), [Pulling, Failed]);
    assert_eq!(world.give(Input::Reported { request, next_attempt_ms: Some(99) }), [], "a second Reported changes nothing");
    assert_eq!(names(&world.give(Input::Recorded { request })), ["Answer"]);
    assert_eq!(world.answer_to(request).next_attempt_ms, Some(10_000));
}

#[test]
fn reported_success_without_an_image_is_a_failure() {
    let mut world = World::new();
    let request = world.ask_until_flight(wanted("a:1", Always)).0;
    let flight = FlightId(1);
    world.grant(flight);
    world.pulled(flight);
    let effects = world.give(Input::Verified { flight, found: Ok(None) });
    world.settle(effects);
    let answer = world.answer_to(request);
    assert_eq!(answer.reason, Some(Reason::ErrImagePull));
    assert_eq!(answer.message, "image pull failed for unknown error: the runtime reported success, but the image is not there");
    assert!(world.reports()[0].failure.is_some());
}

#[test]
fn failed_verification_does_not_fail_the_pull() {
    let mut world = World::new();
    let request = world.ask_until_flight(wanted("a:1", Always)).0;
    let flight = FlightId(1);
    world.grant(flight);
    world.pulled(flight);
    let effects = world.give(Input::Verified { flight, found: Err(failure("busy")) });
    world.settle(effects);
    let answer = world.answer_to(request);
    assert_eq!((answer.outcome, answer.size_bytes), (OutcomeKind::Pulled, 0));
    assert!(world.events_of(request)[1].message.ends_with("Image size: 0 bytes."));
}

#[test]
fn refused_permit_fails_the_pull_with_backoff_as_in_kubelet() {
    let mut world = World::new();
    let request = world.ask_until_flight(wanted("a:1", Always)).0;
    let answer = PermitAnswer::Refused { text: "pull QPS exceeded".to_owned() };
    let effects = world.give(Input::Permitted { flight: FlightId(1), answer });
    assert_eq!(names(&effects), ["Release", "Report", "Record"]);
    world.settle(effects);
    assert_eq!(world.reports()[0].failure.as_ref().unwrap().cause, "ErrImagePull: pull QPS exceeded");
    assert_eq!(world.reports()[0].attempt_span, None, "the registry was not asked");
    assert_eq!(world.answer_to(request).message, "pull QPS exceeded");
}

#[test]
fn queued_permit_is_asked_for_again_with_the_same_id() {
    let mut world = World::new();
    let (_, effects) = world.ask_until_flight(wanted("a:1", Always));
    let again = world.give(Input::Permitted { flight: FlightId(1), answer: PermitAnswer::Queued { ahead: 3, budget_wait_ms: None } });
    let acquire = |effects: &[Effect]| effects.iter().find(|effect| name(effect) == "AcquirePermit").cloned().unwrap();
    assert_eq!(acquire(&effects), acquire(&again));
}

#[test]
fn durations_are_counted_as_in_kubelet() {
    let mut world = World::new();
    let first = world.ask_until_flight(wanted("a:1", Always)).0;
    world.pass(2_000);
    world.grant(FlightId(1));
    world.pass(1_000);
    let late = world.ask_until_flight(wanted("a:1", IfNotPresent)).0;
    world.pass(500);
    world.pulled(FlightId(1));
    let finished = world.verified(FlightId(1));
    world.settle(finished);
    let event = world.events_of(first)[1].clone();
    assert_eq!(event.message, "Successfully pulled image \"a:1\" in 1.5s (3.5s including waiting). Image size: 5 bytes.");
    assert_eq!((event.duration_ms, event.waiting_ms), (Some(1_500), Some(2_000)));
    // A caller that joined late has not waited longer than since it joined.
    let event = world.events_of(late)[1].clone();
    assert_eq!(event.message, "Successfully pulled image \"a:1\" in 500ms (500ms including waiting). Image size: 5 bytes.");
}

#[test]
fn backed_off_image_is_refused_with_the_cause_in_the_answer_alone() {
    let mut world = World::new();
    let (request, _) = world.ask(wanted("a:1", Always));
    let refusal =
        Refusal { cause: "ErrImagePull: gone".to_owned(), class: FailureClass::NotFound, next_attempt_ms: 7_000, ..Refusal::default() };
    let effects = world.give(Input::BackoffChecked { request, answer: BackoffAnswer::Refused(refusal) });
    world.settle(effects);
    let answer = world.answer_to(request);
    assert_eq!(answer.outcome, OutcomeKind::Backoff);
    assert_eq!(answer.message, "Back-off pulling image \"a:1\": ErrImagePull: gone");
    assert_eq!((answer.class, answer.next_attempt_ms), (Some(FailureClass::NotFound), Some(7_000)));
    assert_eq!(world.events_of(request)[0].message, "Back-off pulling image \"a:1\"");
}

#[test]
fn inputs_for_unknown_requests_change_nothing() {
    let mut world = World::new();
    let (request, flight) = (RequestId(77), FlightId(77));
    for input in [
        absent(request),
        Input::BackoffChecked { request, answer: BackoffAnswer::Allowed },
        Input::Permitted { flight, answer: PermitAnswer::Granted { lease_ms: 1 } },
        Input::Rechecked { flight, found: Ok(None) },
        Input::Resolved { flight, seen: false },
        Input::Pulled { flight, result: Err(failure("gone")) },
        Input::Verified { flight, found: Ok(None) },
        Input::Reported { request, next_attempt_ms: None },
        Input::Recorded { request },
        Input::TimeOver { request },
    ] {
        assert_eq!(world.give(input.clone()), [], "{input:?}");
    }
}

#[test]
fn unreadable_reference_or_platform_gives_an_event_and_an_answer() {
    let bad_platform = EnsureImage { platform: Some("linux".to_owned()), ..wanted("a:1", Always) };
    for ask in [wanted("NO GOOD", Always), bad_platform] {
        let mut world = World::new();
        let (request, effects) = world.ask(ask);
        assert_eq!(names(&effects), ["Record"]);
        assert_eq!(world.give(Input::TimeOver { request }), [], "its answer is on its way");
        world.settle(effects);
        let answer = world.answer_to(request);
        assert_eq!(answer.reason, Some(Reason::InvalidImageName));
        assert_eq!(world.events_of(request)[0].message, answer.message);
        assert_eq!(world.reasons_of(request), [EventReason::InspectFailed]);
        let details = world.events_of(request)[0].details.clone();
        assert_eq!(details.and_then(|details| details.cause).as_deref(), Some("invalid_name"), "the runtime is not to blame");
    }
}
