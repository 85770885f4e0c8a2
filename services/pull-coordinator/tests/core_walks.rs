//! The core walked through by hand.
//!
//! Contracts: many callers are one pull, each with events and an answer of its own; Always joins only before the tag is resolved;
//! presence is looked at again when the turn came late or when somebody else's pull ended meanwhile; a time-out ends one wait
//! alone, and the pull with the last; what the runtime claims is verified; what comes late or twice changes nothing; the answer
//! comes after the events.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use contract::messages::backoff_tracker::{BackoffAnswer, Refusal};
use contract::messages::pull_coordinator::{EnsureImage, OutcomeKind, PullPolicy};
use contract::messages::throttler::PermitAnswer;
use contract::{EventReason, FailureClass, Reason};
use pull_coordinator::core::{Effect, FlightId, Input, RequestId};

use super::world::{World, cause, failure, flight_of, name, names, pod, there, wanted};
use EventReason::{Failed, Pulled, Pulling};
use PullPolicy::{Always, IfNotPresent};

fn with_pod(ask: EnsureImage, name: &str) -> EnsureImage {
    EnsureImage { pod: pod(name), ..ask }
}

#[test]
fn twenty_callers_of_a_missing_image_are_one_pull() {
    let mut world = World::new();
    let mut callers = Vec::new();
    // Spelled in three ways, by pods of their own and by the nameless one.
    for number in 0..20 {
        let image = ["busybox", "busybox:latest", "docker.io/library/busybox"][number % 3];
        let ask = if number < 5 { wanted(image, IfNotPresent) } else { with_pod(wanted(image, IfNotPresent), &number.to_string()) };
        callers.push(world.board(ask).0);
    }
    assert_eq!(world.count("AcquirePermit"), 1);
    let flight = FlightId(1);
    assert_eq!(names(&world.grant(flight)), ["StartPull"]);
    world.pass(1_500);
    assert_eq!(names(&world.pulled(flight)), ["Verify"]);
    let landed = world.verified(flight);
    world.settle(landed);
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
fn a_failure_is_reported_for_each_caller_as_one_attempt() {
    let mut world = World::new();
    let first = world.board(with_pod(wanted("a:1", IfNotPresent), "x")).0;
    let second = world.board(wanted("a:1", IfNotPresent)).0;
    let flight = FlightId(1);
    world.grant(flight);
    let landed = world.give(Input::Pulled { flight, result: Err(failure("gone")) });
    world.settle(landed);
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
    world.board(wanted("a:1", IfNotPresent));
    let flight = FlightId(1);
    world.board(wanted("a:1", Always));
    assert_eq!(world.count("AcquirePermit"), 1, "it joined while the flight was queued");
    world.grant(flight);
    world.board(wanted("a:1", Always));
    assert_eq!(world.count("AcquirePermit"), 1, "it joined while nothing was resolved");
    world.give(Input::Resolved { flight, seen: false });
    let (_, effects) = world.board(wanted("a:1", Always));
    assert_eq!(flight_of(&effects), FlightId(2), "what is resolved may be older than the standing pull");
    let (_, effects) = world.board(wanted("a:1", IfNotPresent));
    assert_eq!(names(&effects), ["Record"], "whoever takes any version joins");
    world.grant(FlightId(2));
    world.pulled(FlightId(2));
    let (_, effects) = world.board(wanted("a:1", Always));
    assert_eq!(flight_of(&effects), FlightId(3), "a pull that is over is resolved, whether the runtime said so or not");
}

#[test]
fn platforms_are_pulled_apart() {
    let mut world = World::new();
    for platform in [None, Some("linux/arm64"), Some("linux/amd64"), Some("linux/arm64")] {
        world.board(EnsureImage { platform: platform.map(str::to_owned), ..wanted("a:1", IfNotPresent) });
    }
    assert_eq!(world.count("AcquirePermit"), 3);
}

#[test]
fn presence_is_looked_at_again_when_the_turn_came_late() {
    let mut world = World::new();
    let caller = world.board(wanted("a:1", IfNotPresent)).0;
    world.pass(4_000);
    assert_eq!(names(&world.grant(FlightId(1))), ["Recheck"]);
    world.pass(10);
    let effects = world.give(Input::Rechecked { flight: FlightId(1), found: Ok(Some(there())) });
    assert_eq!(names(&effects), ["Release", "Record"]);
    world.settle(effects);
    let answer = world.answer_to(caller);
    assert_eq!((answer.outcome, answer.image_ref.as_str(), answer.waiting_ms), (OutcomeKind::Present, "sha256:there", 4_010));
    assert_eq!(world.reasons_of(caller), [Pulling, Pulled]);
    assert_eq!(world.events_of(caller)[1].message, "Container image \"a:1\" already present on machine");
}

#[test]
fn a_late_turn_pulls_when_the_image_is_still_absent_or_nobody_can_say() {
    for found in [Ok(None), Err(failure("the store is closed"))] {
        let mut world = World::new();
        world.board(wanted("a:1", IfNotPresent));
        world.pass(4_000);
        world.grant(FlightId(1));
        assert_eq!(names(&world.give(Input::Rechecked { flight: FlightId(1), found })), ["StartPull"]);
    }
}

#[test]
fn always_is_never_satisfied_by_presence() {
    let mut world = World::new();
    world.board(wanted("a:1", Always));
    world.pass(4_000);
    assert_eq!(names(&world.grant(FlightId(1))), ["StartPull"]);
    // Neither when it joins a flight that is looking again.
    let mut world = World::new();
    world.board(wanted("a:1", IfNotPresent));
    world.pass(4_000);
    world.grant(FlightId(1));
    world.board(wanted("a:1", Always));
    assert_eq!(names(&world.give(Input::Rechecked { flight: FlightId(1), found: Ok(Some(there())) })), ["StartPull"]);
}

#[test]
fn whoever_looked_before_anothers_pull_ended_looks_again() {
    let mut world = World::new();
    world.board(wanted("a:1", IfNotPresent));
    world.grant(FlightId(1));
    // The runtime says "absent" to the second caller, and then the first one's pull ends before the back-off is checked.
    let (second, _) = world.ask(wanted("a:1", IfNotPresent));
    world.give(Input::Inspected { request: second, found: Ok(None) });
    world.pulled(FlightId(1));
    let landed = world.verified(FlightId(1));
    world.settle(landed);
    world.give(Input::BackoffChecked { request: second, answer: BackoffAnswer::Allowed });
    world.give(Input::Recorded { request: second });
    assert_eq!(names(&world.grant(FlightId(2))), ["Recheck"]);
    let effects = world.give(Input::Rechecked { flight: FlightId(2), found: Ok(Some(there())) });
    world.settle(effects);
    assert_eq!(world.answer_to(second).outcome, OutcomeKind::Present);
    assert_eq!(world.count("StartPull"), 1);
}

#[test]
fn a_time_out_ends_only_its_own_wait() {
    let mut world = World::new();
    let hasty = world.board(EnsureImage { timeout_ms: Some(1_000), ..wanted("a:1", IfNotPresent) }).0;
    let patient = world.board(wanted("a:1", IfNotPresent)).0;
    let flight = FlightId(1);
    world.grant(flight);
    world.pass(1_000);
    assert_eq!(names(&world.give(Input::TimeOver { request: hasty })), ["Answer"]);
    let answer = world.answer_to(hasty);
    assert!(answer.timed_out);
    assert_eq!((answer.outcome, answer.reason, answer.waiting_ms), (OutcomeKind::Failed, None, 1_000));
    assert_eq!(answer.message, "not there within 1s: the time given with --timeout is over");
    world.pulled(flight);
    let landed = world.verified(flight);
    world.settle(landed);
    assert_eq!(world.answer_to(patient).outcome, OutcomeKind::Pulled);
    assert_eq!(world.reports().len(), 1, "who left reports nothing");
}

#[test]
fn the_flight_ends_with_the_last_who_wants_it_and_before_the_answer() {
    // An answer tells the shell to forget what is not in flight any more, so the order matters.
    for stage in ["queued", "rechecking", "pulling", "verifying"] {
        let mut world = World::new();
        let callers = [world.board(wanted("a:1", IfNotPresent)).0, world.board(wanted("a:1", IfNotPresent)).0];
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
        // What the runtime or the throttler says afterwards is nobody's.
        assert_eq!(world.grant(flight), []);
        assert_eq!(world.pulled(flight), []);
        assert_eq!(world.verified(flight), []);
    }
}

#[test]
fn a_time_out_waits_for_the_event_that_is_being_recorded() {
    let mut world = World::new();
    let (request, _) = world.ask(wanted("a:1", Always));
    world.give(Input::BackoffChecked { request, answer: BackoffAnswer::Allowed });
    let effects = world.give(Input::TimeOver { request });
    assert_eq!(names(&effects), ["Cancel", "Release"]);
    assert_eq!(names(&world.give(Input::Recorded { request })), ["Answer"]);
}

#[test]
fn the_answer_comes_after_the_events_and_the_report() {
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
    assert_eq!(world.give(Input::Reported { request, next_attempt_ms: Some(99) }), [], "what is reported twice changes nothing");
    assert_eq!(names(&world.give(Input::Recorded { request })), ["Answer"]);
    assert_eq!(world.answer_to(request).next_attempt_ms, Some(10_000));
}

#[test]
fn a_success_without_an_image_is_a_failure() {
    let mut world = World::new();
    let request = world.board(wanted("a:1", Always)).0;
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
fn a_runtime_that_cannot_verify_has_pulled_all_the_same() {
    let mut world = World::new();
    let request = world.board(wanted("a:1", Always)).0;
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
fn a_refused_permit_is_a_failed_pull_with_back_off_as_in_kubelet() {
    let mut world = World::new();
    let request = world.board(wanted("a:1", Always)).0;
    let answer = PermitAnswer::Refused { text: "pull QPS exceeded".to_owned() };
    let effects = world.give(Input::Permitted { flight: FlightId(1), answer });
    assert_eq!(names(&effects), ["Release", "Report", "Record"]);
    world.settle(effects);
    assert_eq!(world.reports()[0].failure.as_ref().unwrap().cause, "ErrImagePull: pull QPS exceeded");
    assert_eq!(world.reports()[0].attempt_span, None, "the registry was not asked");
    assert_eq!(world.answer_to(request).message, "pull QPS exceeded");
}

#[test]
fn a_queued_permit_is_asked_for_again_by_the_same_name() {
    let mut world = World::new();
    let (_, effects) = world.board(wanted("a:1", Always));
    let again = world.give(Input::Permitted { flight: FlightId(1), answer: PermitAnswer::Queued { ahead: 3, budget_wait_ms: None } });
    let acquire = |effects: &[Effect]| effects.iter().find(|effect| name(effect) == "AcquirePermit").cloned().unwrap();
    assert_eq!(acquire(&effects), acquire(&again));
}

#[test]
fn durations_are_counted_as_kubelet_counts_them() {
    let mut world = World::new();
    let first = world.board(wanted("a:1", Always)).0;
    world.pass(2_000);
    world.grant(FlightId(1));
    world.pass(1_000);
    let late = world.board(wanted("a:1", IfNotPresent)).0;
    world.pass(500);
    world.pulled(FlightId(1));
    let landed = world.verified(FlightId(1));
    world.settle(landed);
    let event = world.events_of(first)[1].clone();
    assert_eq!(event.message, "Successfully pulled image \"a:1\" in 1.5s (3.5s including waiting). Image size: 5 bytes.");
    assert_eq!((event.duration_ms, event.waiting_ms), (Some(1_500), Some(2_000)));
    // Who came late has not waited longer than it was there.
    let event = world.events_of(late)[1].clone();
    assert_eq!(event.message, "Successfully pulled image \"a:1\" in 500ms (500ms including waiting). Image size: 5 bytes.");
}

#[test]
fn a_held_image_is_refused_with_its_cause_in_the_answer_alone() {
    let mut world = World::new();
    let (request, _) = world.ask(wanted("a:1", Always));
    let held =
        Refusal { cause: "ErrImagePull: gone".to_owned(), class: FailureClass::NotFound, next_attempt_ms: 7_000, ..Refusal::default() };
    let effects = world.give(Input::BackoffChecked { request, answer: BackoffAnswer::Refused(held) });
    world.settle(effects);
    let answer = world.answer_to(request);
    assert_eq!(answer.outcome, OutcomeKind::Backoff);
    assert_eq!(answer.message, "Back-off pulling image \"a:1\": ErrImagePull: gone");
    assert_eq!((answer.class, answer.next_attempt_ms), (Some(FailureClass::NotFound), Some(7_000)));
    assert_eq!(world.events_of(request)[0].message, "Back-off pulling image \"a:1\"");
}

#[test]
fn inputs_for_nobody_change_nothing() {
    let mut world = World::new();
    let (request, flight) = (RequestId(77), FlightId(77));
    for input in [
        Input::Inspected { request, found: Ok(None) },
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
fn a_reference_or_platform_that_cannot_be_read_is_an_event_and_an_answer() {
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
    }
}
