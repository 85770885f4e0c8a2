//! Standing pulls, step by step.
//!
//! Contracts: a standing pull goes on through failures and refusals until the image is present, its time is over or it is cancelled. On a
//! node that shares the fleet decides when it goes on, otherwise its own back-off. A caller that repeats its id joins it; a caller that
//! disconnects leaves it; a detached caller is answered when it is stored. Their number is bounded. A standing pull outlives a restart with
//! its remaining time.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod sharing;
mod stored;

use contract::messages::backoff_tracker::BackoffAnswer;
use contract::messages::pull_coordinator::{AnswerCounts, EnsureImage, OutcomeKind, PullOutcome, PullPolicy, StandingPullState};
use contract::{EventReason, FailureClass, StandingPullId};
use pull_coordinator::core::{Effect, FlightId, Input, RequestId};

use super::world::{World, absent, failure, flight_of, names, present_image, refusal, standing, wanted};
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
    assert!(answer.waiting_ms >= 10_000, "the time since the first attempt: {}", answer.waiting_ms);
    assert_eq!(reasons(&world), [Pulling, Failed, Pulling, EventReason::Pulled]);
    assert_eq!((world.core.standing_pulls(world.now), world.core.next_alarm()), (vec![], None));
}

#[test]
fn refusal_does_not_end_a_standing_pull() {
    let mut world = World::new();
    let (caller, effects) = world.ask(named("a:1", 1));
    let Effect::Inspect { request, .. } = effects[0] else { panic!("{effects:?}") };
    world.give(absent(request));
    let effects = world.give(Input::BackoffChecked { request, answer: BackoffAnswer::Refused(refusal()) });
    world.settle(effects);
    assert_eq!(world.answers_to(caller), []);
    assert_eq!(world.core.standing_pulls(world.now)[0].learned_by.as_deref(), Some("n9"));
    next_flight(&mut world, 8_000);
    assert_eq!(reasons(&world), [BackOff, Pulling]);
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
    let there = Input::Inspected { request, found: Ok(Some(present_image())), target: None, free_bytes: None };
    let effects = world.give(there);
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
    assert_eq!(answer.message, "not there within 1s: the time given with --timeout is over");
    let status = world.core.standing_pulls(world.now).remove(0);
    assert_eq!((status.callers, status.attempts), (0, 1));
    assert_eq!(world.give(Input::TimeOver { request: hasty }), []);
    let (patient, _) = world.ask(EnsureImage { timeout_ms: Some(2_500), ..named("a:1", 1) });
    world.give(Input::TimeOver { request: patient });
    assert_eq!(world.answer_to(patient).message, "not there within 2.5s: the time given with --timeout is over");
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
            effects = world.give(absent(request));
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
