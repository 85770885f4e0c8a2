//! Standing pulls, step by step.
//!
//! Contracts: a standing pull goes on through failures and refusals until the image is present, its time is over or it is cancelled. On a
//! node that shares the fleet decides when it goes on, otherwise its own back-off. A caller that repeats its id joins it; a caller that
//! disconnects leaves it; a detached caller is answered when it is stored. Their number is bounded. A standing pull outlives a restart with
//! its remaining time.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use contract::messages::backoff_tracker::{BackoffAnswer, Clearance, Refusal};
use contract::messages::pull_coordinator::{AnswerCounts, EnsureImage, OutcomeKind, PullOutcome, PullPolicy, StandingPullState};
use contract::{EventReason, FailureClass, StandingPullId, TraceContext};
use pull_coordinator::core::{Effect, FlightId, Input, KeptStandingPull, Policy, RequestId};

use super::world::{World, failure, flight_of, granted, names, pod, present_image, refusal, sharing, standing, wanted};
use EventReason::{BackOff, Failed, Pulling};

fn id(number: u8) -> StandingPullId {
    format!("{number:032x}").try_into().unwrap()
}

fn named(image: &str, number: u8) -> EnsureImage {
    EnsureImage { standing_pull: Some(id(number)), ..standing(image) }
}

/// Lets a flight fail. Alarms do not ring.
fn fail(world: &mut World, flight: FlightId) -> Vec<Effect> {
    world.grant(flight);
    let rechecked = world.give(Input::Rechecked { flight, found: Ok(None) });
    let finished = world.give(Input::Pulled { flight, result: Err(failure("gone")) });
    world.settle([rechecked, finished].concat())
}

/// Lets a flight pull its image.
fn bring(world: &mut World, flight: FlightId) {
    world.grant(flight);
    world.give(Input::Rechecked { flight, found: Ok(None) });
    world.pulled(flight);
    let finished = world.verified(flight);
    world.settle(finished);
}

/// Lets time pass until a run requests clearance or its permit; its Pulling event is recorded.
fn next_flight(world: &mut World, milliseconds: u64) -> FlightId {
    let effects = world.let_pass(milliseconds);
    let last = world.answer_until_clearance(effects);
    let flight = flight_of(&last);
    world.settle(last);
    flight
}

fn reasons(world: &World) -> Vec<EventReason> {
    let reason = |effect: &Effect| match effect {
        Effect::Record { event, .. } => Some(event.reason),
        _ => None,
    };
    world.all_effects.iter().filter_map(reason).collect()
}

#[test]
fn standing_pull_on_a_node_without_fleet_follows_its_own_backoff() {
    let mut world = World::new();
    let (caller, effects) = world.ask(named("a:1", 1));
    let effects = world.answer_until_clearance(effects);
    let flight = flight_of(&effects);
    world.settle(effects);
    fail(&mut world, flight);
    assert_eq!(world.answers_to(caller), [], "a failure does not end it");
    let status = world.core.standing_pulls(world.now).remove(0);
    assert_eq!((status.state, status.next_attempt_ms, status.callers), (StandingPullState::Held, Some(10_000), 1));
    assert_eq!((status.cause.as_str(), status.class), ("ErrImagePull: gone", Some(FailureClass::NotFound)));
    assert_eq!((world.let_pass(9_999), world.core.resting_count()), (vec![], 1));
    let flight = next_flight(&mut world, 1);
    assert_eq!(world.core.resting_count(), 0, "it is counted as a pull");
    bring(&mut world, flight);
    let answer = world.answer_to(caller);
    assert_eq!((answer.outcome, answer.standing_pull), (OutcomeKind::Pulled, Some(id(1))));
    assert_eq!(reasons(&world), [Pulling, Failed, Pulling, EventReason::Pulled]);
    assert_eq!((world.core.standing_pulls(world.now), world.core.next_alarm()), (vec![], None));
}

#[test]
fn refusal_does_not_end_a_standing_pull() {
    let mut world = World::new();
    let (caller, effects) = world.ask(named("a:1", 1));
    let Effect::Inspect { request, .. } = effects[0] else { panic!("{effects:?}") };
    world.give(Input::Inspected { request, found: Ok(None) });
    let effects = world.give(Input::BackoffChecked { request, answer: BackoffAnswer::Refused(refusal()) });
    world.settle(effects);
    assert_eq!(world.answers_to(caller), []);
    assert_eq!(world.core.standing_pulls(world.now)[0].learned_by.as_deref(), Some("n9"));
    next_flight(&mut world, 8_000);
    assert_eq!(reasons(&world), [BackOff, Pulling]);
}

#[test]
fn fleet_decides_when_a_standing_pull_goes_on() {
    let mut world = World::pulling(sharing());
    let (caller, effects) = world.ask_until_clearance(named("a:1", 1));
    assert_eq!(names(&effects), ["RequestClearance"], "a standing pull has no back-off check");
    let flight = flight_of(&effects);
    assert!(world.clearances_requested(flight)[0].1.standing);
    let effects = world.clearance(flight, Some(Clearance::Waiting { held: Some(refusal()) }));
    world.settle(effects);
    let status = world.core.standing_pulls(world.now).remove(0);
    assert_eq!((status.state, status.next_attempt_ms, status.learned_by.as_deref()), (StandingPullState::Held, Some(8_000), Some("n9")));
    // The same refusal again records no further event.
    for _ in 0..5 {
        let effects = world.let_pass(1_000);
        assert_eq!(names(&effects), ["RequestClearance"]);
        assert_eq!(names(&world.clearance(flight, Some(Clearance::Waiting { held: Some(refusal()) }))), [""; 0]);
    }
    world.let_pass(1_000);
    let effects = world.clearance(flight, granted());
    world.settle(effects);
    fail(&mut world, flight);
    assert_eq!(reasons(&world), [BackOff, Pulling, Failed]);
    // It requests clearance again at once: the fleet decides, not its own back-off.
    let flight = next_flight(&mut world, 0);
    assert_eq!(flight, FlightId(2));
    let effects = world.clearance(flight, granted());
    world.settle(effects);
    fail(&mut world, flight);
    assert_eq!(names(&world.let_pass(999)), [""; 0], "at most one run per second");
    let flight = next_flight(&mut world, 1);
    let effects = world.clearance(flight, granted());
    world.settle(effects);
    bring(&mut world, flight);
    assert_eq!(world.answer_to(caller).outcome, OutcomeKind::Pulled);
}

/// After a suspension the node's tracker may not answer in time, which counts as clearance. When the attempt fails, the standing pull asks
/// the tracker at once: another node's success may have closed the entry meanwhile.
#[test]
fn standing_pull_requests_clearance_again_after_a_failure_without_tracker() {
    let mut world = World::pulling(sharing());
    let (_, effects) = world.ask_until_clearance(named("a:1", 1));
    let flight = flight_of(&effects);
    let effects = world.clearance(flight, None);
    world.settle(effects);
    fail(&mut world, flight);
    let flight = next_flight(&mut world, 1_000);
    assert_eq!(world.clearances_requested(flight).len(), 1);
}

/// In an outage every node learns of every other node's attempt. A repeated cause is not recorded each time.
#[test]
fn waiting_standing_pull_records_new_causes_and_repeats_each_minute() {
    let mut world = World::pulling(sharing());
    let (_, effects) = world.ask_until_clearance(EnsureImage { wait_ms: Some(600_000), ..named("a:1", 1) });
    let flight = flight_of(&effects);
    let mut events_after = |refusal: Option<Refusal>| {
        let effects = world.clearance(flight, Some(Clearance::Waiting { held: refusal }));
        world.settle(effects);
        world.let_pass(20_000);
        reasons(&world).len()
    };
    let another = |number: u8| Refusal {
        learned_trace: TraceContext::parse(&format!("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b{number}-01")),
        learned_by: Some("n8".parse().unwrap()),
        ..refusal()
    };
    assert_eq!(events_after(Some(refusal())), 1);
    // Neither the same cause from another attempt nor a missing reason is new.
    assert_eq!(events_after(Some(another(1))), 1);
    assert_eq!(events_after(None), 1);
    assert_eq!(events_after(Some(another(2))), 2, "a minute later");
    let other = |class, cause: &str| Refusal { class, cause: cause.to_owned(), ..another(3) };
    assert_eq!(events_after(Some(other(FailureClass::RegistryUnavailable, "ErrImagePull: gone"))), 3);
    assert_eq!(events_after(Some(other(FailureClass::RegistryUnavailable, "ErrImagePull: refused"))), 4);
    assert_eq!(events_after(Some(other(FailureClass::RegistryUnavailable, "ErrImagePull: refused"))), 4);
    assert!(reasons(&world).iter().all(|reason| *reason == BackOff));
}

#[test]
fn standing_pull_status_keeps_the_last_cause_until_clearance() {
    let mut world = World::pulling(sharing());
    let (_, effects) = world.ask_until_clearance(named("a:1", 1));
    let flight = flight_of(&effects);
    let shown = |world: &World| {
        let status = world.core.standing_pulls(world.now).remove(0);
        (status.state, status.cause, status.class, status.next_attempt_ms)
    };
    assert_eq!(shown(&world), (StandingPullState::Waiting, String::new(), None, None), "the tracker has not answered");
    world.clearance(flight, Some(Clearance::Waiting { held: None }));
    let undecided = "still waiting for the result of another node's attempt".to_owned();
    assert_eq!(shown(&world), (StandingPullState::Waiting, undecided, None, None));
    world.let_pass(1_000);
    let effects = world.clearance(flight, Some(Clearance::Waiting { held: Some(refusal()) }));
    world.settle(effects);
    // The next attempt is due, and another node makes it.
    world.let_pass(9_000);
    world.clearance(flight, Some(Clearance::Waiting { held: None }));
    assert_eq!(shown(&world), (StandingPullState::Waiting, refusal().cause, Some(FailureClass::NotFound), Some(0)));
    world.let_pass(1_000);
    let effects = world.clearance(flight, granted());
    world.settle(effects);
    assert_eq!(shown(&world).1, "", "it waits for its node alone");
}

#[test]
fn caller_without_a_standing_pull_is_refused_while_the_standing_pull_waits() {
    let mut world = World::pulling(sharing());
    let (plain, effects) = world.ask_until_clearance(wanted("a:1", PullPolicy::IfNotPresent));
    let flight = flight_of(&effects);
    world.ask_until_clearance(named("a:1", 1));
    let effects = world.clearance(flight, Some(Clearance::Refused(refusal())));
    world.settle(effects);
    assert_eq!(world.answer_to(plain).outcome, OutcomeKind::Backoff);
    world.let_pass(1_000);
    assert!(world.clearances_requested(flight).last().unwrap().1.standing, "it stands from now on");
    assert_eq!(world.core.standing_pulls(world.now)[0].state, StandingPullState::Held);
}

#[test]
fn standing_pull_waits_for_the_fleet_without_limit() {
    let mut world = World::pulling(sharing());
    let (caller, effects) = world.ask_until_clearance(named("a:1", 1));
    let flight = flight_of(&effects);
    world.let_pass(30_000);
    world.clearance(flight, granted());
    let queued = contract::messages::throttler::PermitAnswer::Queued { ahead: 0, budget_wait_ms: Some(25_000) };
    assert_eq!(names(&world.give(Input::Permitted { flight, answer: queued })), ["AcquirePermit"]);
    assert_eq!(world.answers_to(caller), []);
}

#[test]
fn expired_standing_pull_answers_with_the_last_cause() {
    let mut world = World::pulling(sharing());
    let (caller, effects) = world.ask_until_clearance(named("a:1", 1));
    let flight = flight_of(&effects);
    let effects = world.clearance(flight, Some(Clearance::Waiting { held: Some(refusal()) }));
    world.settle(effects);
    let effects = world.let_pass(60_000);
    assert!(names(&effects).ends_with(&["Cancel", "Withdraw", "Answer"]), "{:?}", names(&effects));
    let answer = world.answer_to(caller);
    assert!(answer.timed_out);
    assert_eq!(answer.message, "not there within 1m0s: the time given with --wait is over; the last answer was: ErrImagePull: gone");
    assert_eq!((answer.class, answer.learned_by.as_deref()), (Some(FailureClass::NotFound), Some("n9")));
    assert_eq!((answer.learned_ms_ago, answer.next_attempt_ms), (Some(62_000), Some(0)), "aged with the time");
    assert_eq!((world.core.standing_pulls(world.now), world.core.next_alarm()), (vec![], None));
}

#[test]
fn expired_standing_pull_ends_its_running_pull_unless_that_has_ended() {
    let mut world = World::new();
    let (caller, effects) = world.ask(named("a:1", 1));
    let effects = world.answer_until_clearance(effects);
    world.settle(effects);
    world.grant(FlightId(1));
    let effects = world.let_pass(60_000);
    assert_eq!(names(&effects), ["Cancel", "Release", "Answer"]);
    assert!(world.answer_to(caller).timed_out);

    let mut world = World::new();
    let (caller, effects) = world.ask(named("a:1", 1));
    let effects = world.answer_until_clearance(effects);
    world.settle(effects);
    world.grant(FlightId(1));
    world.pulled(FlightId(1));
    let finished = world.verified(FlightId(1));
    assert_eq!(world.let_pass(60_000), [], "its image is present, and the event is being recorded");
    world.settle(finished);
    assert_eq!(world.answer_to(caller).outcome, OutcomeKind::Pulled);
}

#[test]
fn second_request_with_the_same_id_joins() {
    let mut world = World::new();
    let (first, _) = world.ask(named("a:1", 1));
    let (second, effects) = world.ask(named("a:1", 1));
    assert_eq!(effects, []);
    let (other, _) = world.ask(named("b:1", 1));
    let answer = world.answer_to(other);
    assert_eq!(
        (answer.outcome, answer.message.as_str()),
        (OutcomeKind::Failed, "the standing pull of this id is for \"a:1\": choose another id")
    );
    let Effect::Inspect { request, .. } = world.all_effects[0].clone() else { panic!("it looks first") };
    let effects = world.give(Input::Inspected { request, found: Ok(Some(present_image())) });
    world.settle(effects);
    for caller in [first, second] {
        assert_eq!(world.answer_to(caller).outcome, OutcomeKind::Present);
    }
}

#[test]
fn caller_that_disconnects_leaves_the_standing_pull() {
    let mut world = World::new();
    let (hasty, _) = world.ask(EnsureImage { timeout_ms: Some(1_000), ..named("a:1", 1) });
    assert_eq!(names(&world.give(Input::TimeOver { request: hasty })), ["Answer"]);
    let answer = world.answer_to(hasty);
    assert_eq!((answer.timed_out, answer.standing_pull), (true, Some(id(1))));
    let status = world.core.standing_pulls(world.now).remove(0);
    assert_eq!((status.callers, status.attempts), (0, 1));
    assert_eq!(world.give(Input::TimeOver { request: hasty }), []);
}

fn cancel(number: u8) -> Input {
    Input::StandingPullCancelled { standing_pull: id(number), by: "alice@host".to_owned() }
}

#[test]
fn cancelled_standing_pull_ends_its_attempt_if_no_other_caller_waits() {
    let mut world = World::new();
    let (caller, effects) = world.ask(named("a:1", 1));
    let effects = world.answer_until_clearance(effects);
    world.settle(effects);
    let (second, effects) = world.ask(named("a:1", 2));
    let effects = world.answer_until_clearance(effects);
    world.settle(effects);
    world.grant(FlightId(1));
    world.give(Input::Rechecked { flight: FlightId(1), found: Ok(None) });
    assert!(world.core.flights(world.now)[0].pulling);
    let ended = names(&world.give(cancel(1)));
    assert!(!ended.contains(&"Cancel"), "{ended:?}: the other standing pull has it as caller");
    let ended = names(&world.give(cancel(2)));
    assert!(ended.contains(&"Cancel") && ended.contains(&"Release"), "{ended:?}");
    assert_eq!(world.core.flights(world.now), []);
    for caller in [caller, second] {
        let answer = world.answer_to(caller);
        assert_eq!((answer.outcome, answer.timed_out), (OutcomeKind::Failed, false));
        assert_eq!(answer.message, "the standing pull of \"a:1\" was cancelled by alice@host");
    }
    // An older command does not send a name.
    let (caller, _) = world.ask(named("b:1", 3));
    world.give(Input::StandingPullCancelled { standing_pull: id(3), by: String::new() });
    assert_eq!(world.answer_to(caller).message, "the standing pull of \"b:1\" was cancelled");
}

#[test]
fn cancelled_standing_pull_is_answered_and_the_flight_goes_on_for_others() {
    let mut world = World::new();
    let (caller, effects) = world.ask(named("a:1", 1));
    let effects = world.answer_until_clearance(effects);
    world.settle(effects);
    let (plain, _) = world.ask_until_flight(wanted("a:1", PullPolicy::IfNotPresent));
    assert_eq!(names(&world.give(cancel(1))), ["Answer"]);
    assert_eq!(world.answer_to(caller).message, "the standing pull of \"a:1\" was cancelled by alice@host");
    assert!(!world.answer_to(caller).timed_out);
    assert_eq!(world.give(cancel(1)), [], "twice");
    bring(&mut world, FlightId(1));
    assert_eq!(world.answer_to(plain).outcome, OutcomeKind::Pulled);
}

fn writing() -> Policy {
    Policy { writes_standing_pulls: true, ..Policy::default() }
}

#[test]
fn detached_caller_is_answered_when_the_standing_pull_is_stored() {
    let mut world = World::pulling(writing());
    let (caller, effects) = world.ask(EnsureImage { detach: true, ..named("a:1", 1) });
    assert_eq!(names(&effects), ["KeepStandingPulls", "Inspect"]);
    // A second standing pull begins during the write: the next write contains it.
    let (second, effects) = world.ask(EnsureImage { detach: true, ..named("b:1", 2) });
    assert_eq!(names(&effects), ["Inspect"]);
    assert_eq!(names(&world.give(Input::StandingPullsKept { error: None })), ["Answer", "KeepStandingPulls"]);
    let answer = world.answer_to(caller);
    assert_eq!((answer.stands, answer.standing_pull, answer.message.as_str()), (true, Some(id(1)), ""));
    assert_eq!(world.answers_to(second), []);
    let effects = world.give(Input::StandingPullsKept { error: Some("disk full".to_owned()) });
    assert_eq!(names(&effects), ["Answer"], "a failed write is not repeated");
    assert_eq!(world.answer_to(second).message, "the standing pull goes on, but not beyond a restart of the agent: disk full");
    assert_eq!(world.give(Input::StandingPullsKept { error: None }), [], "twice");
    assert_eq!((world.core.standing_pulls(world.now).len(), world.core.standing_count()), (2, 2));
    // The end of a standing pull is written too.
    assert_eq!(world.core.writing_of_standing_pulls(), None);
    assert_eq!(names(&world.give(cancel(1))), ["KeepStandingPulls"]);
    let first = world.core.writing_of_standing_pulls().unwrap();
    world.give(cancel(2));
    let second = world.core.writing_of_standing_pulls().unwrap();
    world.give(Input::StandingPullsKept { error: None });
    assert!(world.core.is_written(first) && !world.core.is_written(second), "that write began before the other's end");
    world.give(Input::StandingPullsKept { error: None });
    assert!(world.core.is_written(second));
}

fn detached(image: &str, number: u8) -> EnsureImage {
    EnsureImage { detach: true, ..named(image, number) }
}

#[test]
fn equal_detached_pulls_become_one_with_the_longer_time() {
    let mut world = World::pulling(writing());
    let (first, _) = world.ask(detached("busybox", 1));
    world.give(Input::StandingPullsKept { error: None });
    assert_eq!(world.answer_to(first).message, "");
    world.pass(5_000);
    let (longer, effects) = world.ask(EnsureImage { wait_ms: Some(90_000), ..detached("docker.io/library/busybox:latest", 2) });
    assert_eq!(names(&effects), ["KeepStandingPulls"], "the longer time is stored");
    assert_eq!(world.answers_to(longer), []);
    world.give(Input::StandingPullsKept { error: None });
    let answer = world.answer_to(longer);
    assert_eq!((answer.stands, answer.standing_pull), (true, Some(id(1))));
    assert_eq!(answer.message, "already standing for 5s, and for 1m30s more");
    let (shorter, effects) = world.ask(EnsureImage { wait_ms: Some(1_000), ..detached("busybox", 3) });
    assert_eq!(names(&effects), ["Answer"], "it stands for longer already");
    assert_eq!(world.answer_to(shorter).standing_pull, Some(id(1)));
    assert_eq!(world.core.standing_pulls(world.now)[0].left_ms, 90_000);
    let effects = world.let_pass(89_999);
    world.settle(effects);
    assert_eq!(world.core.standing_pulls(world.now).len(), 1);
    world.let_pass(1);
    assert_eq!(world.core.standing_pulls(world.now), []);
}

#[test]
fn extended_standing_pull_is_confirmed_when_the_extension_is_stored() {
    let mut world = World::pulling(writing());
    let (first, _) = world.ask(detached("a:1", 1));
    world.pass(1_000);
    let (longer, effects) = world.ask(detached("a:1", 2));
    assert_eq!(names(&effects), [""; 0], "the first is being written");
    assert_eq!(names(&world.give(Input::StandingPullsKept { error: None })), ["KeepStandingPulls"]);
    assert_eq!((world.answers_to(first), world.answers_to(longer)), (vec![], vec![]));
    assert_eq!(names(&world.give(Input::StandingPullsKept { error: None })), ["Answer", "Answer"]);
    assert_eq!((world.answer_to(first).standing_pull, world.answer_to(longer).standing_pull), (Some(id(1)), Some(id(1))));
}

#[test]
fn detached_pull_with_other_fields_is_not_joined() {
    let (always, never_detached) = (Some(PullPolicy::Always), named("a:1", 1));
    let for_pod = EnsureImage { pod: pod("web"), ..detached("a:1", 1) };
    let for_platform = EnsureImage { platform: Some("linux/arm64".to_owned()), ..detached("a:1", 1) };
    for (stands, comes, joins) in [
        (detached("a:1", 1), detached("a:1", 2), true),
        (for_pod.clone(), EnsureImage { standing_pull: Some(id(2)), ..for_pod.clone() }, true),
        (for_pod, detached("a:1", 2), false),
        (for_platform, detached("a:1", 2), false),
        (detached("a:1", 1), detached("a:2", 2), false),
        (detached("a:1", 1), EnsureImage { policy: always, ..detached("a:1", 2) }, false),
        // Without a policy: IfNotPresent by default for this tag.
        (detached("a:1", 1), EnsureImage { policy: None, ..detached("a:1", 2) }, true),
        // A waiting command cancels its own standing pull on Ctrl-C.
        (never_detached, detached("a:1", 2), false),
        (detached("a:1", 1), named("a:1", 2), false),
    ] {
        let mut world = World::new();
        world.ask(stands.clone());
        world.ask(comes.clone());
        assert_eq!(world.core.standing_pulls(world.now).len(), if joins { 1 } else { 2 }, "{stands:?} {comes:?}");
    }
}

#[test]
fn detached_pull_with_policy_always_joins_no_resolved_standing_pull() {
    let newest = |number| EnsureImage { policy: Some(PullPolicy::Always), ..detached("a:1", number) };
    let mut world = World::new();
    let (_, effects) = world.ask(newest(1));
    let effects = world.answer_until_clearance(effects);
    let flight = flight_of(&effects);
    world.settle(effects);
    world.grant(flight);
    world.ask(newest(2));
    assert_eq!(world.core.standing_pulls(world.now).len(), 1, "the tag is still to be resolved");
    world.give(Input::Resolved { flight, seen: true });
    world.ask(newest(3));
    assert_eq!(world.core.standing_pulls(world.now).len(), 2);
}

#[test]
fn standing_pull_without_caller_is_counted_when_it_ends() {
    let mut world = World::new();
    let (waits, effects) = world.ask(named("a:1", 1));
    let effects = world.answer_until_clearance(effects);
    let first = flight_of(&effects);
    world.settle(effects);
    let (_, effects) = world.ask(EnsureImage { detach: true, ..named("b:1", 2) });
    let effects = world.answer_until_clearance(effects);
    let second = flight_of(&effects);
    world.settle(effects);
    bring(&mut world, first);
    assert_eq!(world.answer_to(waits).outcome, OutcomeKind::Pulled);
    assert_eq!(world.core.ended_without_caller(), AnswerCounts::default(), "a standing pull with a caller is counted with its answer");
    bring(&mut world, second);
    assert_eq!(world.core.ended_without_caller(), AnswerCounts { pulled_total: 1, ..AnswerCounts::default() });
}

#[test]
fn detached_caller_is_answered_at_once_without_a_store() {
    let mut world = World::new();
    let (caller, effects) = world.ask(EnsureImage { detach: true, ..standing("a:1") });
    assert_eq!(names(&effects), ["Inspect", "Answer"]);
    assert!(world.answer_to(caller).stands && world.answer_to(caller).standing_pull.is_some());
}

#[test]
fn standing_pull_outlives_a_restart_with_its_remaining_time() {
    let kept =
        |number, image: &str, until_ms| KeptStandingPull { standing_pull: id(number), ask: named(image, number), since_ms: 0, until_ms };
    let mut world = World::pulling(writing());
    world.pass(40_000);
    let standing_pulls = vec![kept(1, "a:1", 60_000), kept(2, "b:1", 39_000), kept(1, "a:1", 70_000), kept(3, "NO GOOD", 70_000)];
    assert_eq!(world.give(Input::StandingPullsLoaded { standing_pulls }), []);
    let effects = world.let_pass(0);
    assert_eq!(names(&effects), ["Inspect", "KeepStandingPulls"], "one goes on, the other's time ended while the agent was down");
    let status = world.core.standing_pulls(world.now).remove(0);
    assert_eq!((status.standing_pull, status.since_ms, status.left_ms, status.callers), (id(1), 40_000, 20_000, 0));
    let (caller, effects) = world.ask(named("a:1", 1));
    assert_eq!(effects, [], "a request with its id joins it");
    world.let_pass(20_000);
    assert_eq!(world.answer_to(caller).message, "not there within 1m0s: the time given with --wait is over");
}

#[test]
fn unset_clock_extends_no_standing_pull() {
    let mut world = World::pulling(writing());
    let kept = KeptStandingPull { standing_pull: id(1), ask: named("a:1", 1), since_ms: 1_700_000_000_000, until_ms: 1_700_000_060_000 };
    world.give(Input::StandingPullsLoaded { standing_pulls: vec![kept] });
    assert_eq!(world.core.standing_pulls(world.now)[0].left_ms, 60_000);
    world.let_pass(60_000);
    assert_eq!(world.core.standing_pulls(world.now), []);
}

#[test]
fn standing_pulls_are_bounded_to_one_thousand() {
    let mut world = World::new();
    for _ in 0..1_000 {
        world.ask(standing("a:1"));
    }
    let (one_more, _) = world.ask(standing("a:1"));
    let answer: PullOutcome = world.answer_to(one_more);
    assert_eq!((answer.outcome, answer.class), (OutcomeKind::Failed, Some(FailureClass::NodeLocal)));
    assert_eq!(
        answer.message,
        "1000 standing pulls are kept on this node, which is the limit: cancel some with fleetpull cancel, or pull without --wait"
    );
    assert_eq!(world.core.standing_pulls(world.now).len(), 1_000);
}

#[test]
fn unpullable_request_with_wait_is_answered_at_once() {
    for ask in [
        EnsureImage { image: "NO GOOD".to_owned(), ..standing("a:1") },
        EnsureImage { platform: Some("linux".to_owned()), ..standing("a:1") },
        EnsureImage { policy: Some(PullPolicy::Never), ..standing("a:1") },
        EnsureImage { wait_ms: Some(0), ..standing("NO GOOD") },
    ] {
        let mut world = World::new();
        let (caller, mut effects) = world.ask(ask);
        if let Some(Effect::Inspect { request, .. }) = effects.first().cloned() {
            effects = world.give(Input::Inspected { request, found: Ok(None) });
        }
        world.settle(effects);
        assert_eq!(world.answer_to(caller).outcome, OutcomeKind::Failed);
        assert_eq!(world.core.standing_pulls(world.now), []);
    }
}

#[test]
fn inputs_for_unknown_standing_pulls_change_nothing() {
    let mut world = World::new();
    for input in [cancel(7), Input::StandingPullsKept { error: None }, Input::AlarmRang] {
        assert_eq!(world.give(input.clone()), [], "{input:?}");
    }
    assert_eq!(world.answers_to(RequestId(1)), []);
}
