//! Standing pulls walked through by hand.
//!
//! Contracts: a standing pull goes on through failures and refusals until the image is there, its time is over or somebody ends it; on a node
//! that shares the fleet says when it goes on, else its own back-off; who asks again by its id joins it, who hangs up leaves it; who
//! detaches is answered when it is written down; there is a bound; it lives through a restart with the time that is left.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use contract::messages::backoff_tracker::{BackoffAnswer, Clearance, Refusal};
use contract::messages::pull_coordinator::{AnswerCounts, EnsureImage, OutcomeKind, PullOutcome, PullPolicy, StandingPullState};
use contract::{EventReason, FailureClass, StandingPullId, TraceContext};
use pull_coordinator::core::{Effect, FlightId, Input, KeptStandingPull, Policy, RequestId};

use super::world::{World, failure, flight_of, granted, held, names, pod, sharing, standing, there, wanted};
use EventReason::{BackOff, Failed, Pulling};

fn id(number: u8) -> StandingPullId {
    format!("{number:032x}").try_into().unwrap()
}

fn named(image: &str, number: u8) -> EnsureImage {
    EnsureImage { standing_pull: Some(id(number)), ..standing(image) }
}

/// Lets every open flight fail; the alarms that follow do not ring.
fn fail(world: &mut World, flight: FlightId) -> Vec<Effect> {
    world.grant(flight);
    let rechecked = world.give(Input::Rechecked { flight, found: Ok(None) });
    let landed = world.give(Input::Pulled { flight, result: Err(failure("gone")) });
    world.settle([rechecked, landed].concat())
}

/// Lets a flight bring its image.
fn bring(world: &mut World, flight: FlightId) {
    world.grant(flight);
    world.give(Input::Rechecked { flight, found: Ok(None) });
    world.pulled(flight);
    let landed = world.verified(flight);
    world.settle(landed);
}

/// Lets time pass until a run asks for clearance or for its permit; its Pulling is recorded.
fn next_flight(world: &mut World, milliseconds: u64) -> FlightId {
    let effects = world.let_pass(milliseconds);
    let last = world.on_to_clearance(effects);
    let flight = flight_of(&last);
    world.settle(last);
    flight
}

fn reasons(world: &World) -> Vec<EventReason> {
    let reason = |effect: &Effect| match effect {
        Effect::Record { event, .. } => Some(event.reason),
        _ => None,
    };
    world.said.iter().filter_map(reason).collect()
}

#[test]
fn a_standing_pull_of_a_node_alone_goes_on_by_its_own_back_off() {
    let mut world = World::new();
    let (caller, effects) = world.ask(named("a:1", 1));
    let effects = world.on_to_clearance(effects);
    let flight = flight_of(&effects);
    world.settle(effects);
    fail(&mut world, flight);
    assert_eq!(world.answers_to(caller), [], "a failure does not end it");
    let status = world.core.standing_pulls(world.now).remove(0);
    assert_eq!((status.state, status.next_attempt_ms, status.callers), (StandingPullState::Held, Some(10_000), 1));
    assert_eq!((status.cause.as_str(), status.class), ("ErrImagePull: gone", Some(FailureClass::NotFound)));
    assert_eq!(world.let_pass(9_999), []);
    let flight = next_flight(&mut world, 1);
    bring(&mut world, flight);
    let answer = world.answer_to(caller);
    assert_eq!((answer.outcome, answer.standing_pull), (OutcomeKind::Pulled, Some(id(1))));
    assert_eq!(reasons(&world), [Pulling, Failed, Pulling, EventReason::Pulled]);
    assert_eq!((world.core.standing_pulls(world.now), world.core.next_alarm()), (vec![], None));
}

#[test]
fn a_refusal_does_not_end_a_standing_pull_either() {
    let mut world = World::new();
    let (caller, effects) = world.ask(named("a:1", 1));
    let Effect::Inspect { request, .. } = effects[0] else { panic!("{effects:?}") };
    world.give(Input::Inspected { request, found: Ok(None) });
    let effects = world.give(Input::BackoffChecked { request, answer: BackoffAnswer::Refused(held()) });
    world.settle(effects);
    assert_eq!(world.answers_to(caller), []);
    assert_eq!(world.core.standing_pulls(world.now)[0].learned_by.as_deref(), Some("n9"));
    next_flight(&mut world, 8_000);
    assert_eq!(reasons(&world), [BackOff, Pulling]);
}

#[test]
fn on_a_node_that_shares_the_fleet_says_when_a_standing_pull_goes_on() {
    let mut world = World::pulling(sharing());
    let (caller, effects) = world.board_sharing(named("a:1", 1));
    assert_eq!(names(&effects), ["RequestClearance"], "a standing pull is not checked, but held where clearance is given");
    let flight = flight_of(&effects);
    assert!(world.clearances_requested(flight)[0].1.standing);
    let told = world.clearance(flight, Some(Clearance::Waiting { held: Some(held()) }));
    world.settle(told);
    let status = world.core.standing_pulls(world.now).remove(0);
    assert_eq!((status.state, status.next_attempt_ms, status.learned_by.as_deref()), (StandingPullState::Held, Some(8_000), Some("n9")));
    // It has said what holds it, however often it hears so.
    for _ in 0..5 {
        let effects = world.let_pass(1_000);
        assert_eq!(names(&effects), ["RequestClearance"]);
        assert_eq!(names(&world.clearance(flight, Some(Clearance::Waiting { held: Some(held()) }))), [""; 0]);
    }
    world.let_pass(1_000);
    let effects = world.clearance(flight, granted());
    world.settle(effects);
    fail(&mut world, flight);
    assert_eq!(reasons(&world), [BackOff, Pulling, Failed]);
    // It has waited long enough already: it asks for clearance again at once, whatever its own back-off says.
    let flight = next_flight(&mut world, 0);
    assert_eq!(flight, FlightId(2));
    let effects = world.clearance(flight, granted());
    world.settle(effects);
    fail(&mut world, flight);
    assert_eq!(names(&world.let_pass(999)), [""; 0], "not more than one run a second, should the fleet allow all");
    let flight = next_flight(&mut world, 1);
    let effects = world.clearance(flight, granted());
    world.settle(effects);
    bring(&mut world, flight);
    assert_eq!(world.answer_to(caller).outcome, OutcomeKind::Pulled);
}

/// A node that was suspended takes the silence of its own tracker for clearance. The tracker answers again by the time the attempt has failed:
/// a success of another node releases the image there, so the pull does not rest by itself.
#[test]
fn a_standing_pull_that_a_silent_tracker_let_go_asks_it_again_when_it_has_failed() {
    let mut world = World::pulling(sharing());
    let (_, effects) = world.board_sharing(named("a:1", 1));
    let flight = flight_of(&effects);
    let effects = world.clearance(flight, None);
    world.settle(effects);
    fail(&mut world, flight);
    let flight = next_flight(&mut world, 1_000);
    assert_eq!(world.clearances_requested(flight).len(), 1);
}

/// In an outage each attempt of whichever node is heard by all.
#[test]
fn a_standing_pull_that_waits_says_what_is_new_and_each_minute_that_it_waits() {
    let mut world = World::pulling(sharing());
    let (_, effects) = world.board_sharing(EnsureImage { wait_ms: Some(600_000), ..named("a:1", 1) });
    let flight = flight_of(&effects);
    let mut hears = |held: Option<Refusal>| {
        let told = world.clearance(flight, Some(Clearance::Waiting { held }));
        world.settle(told);
        world.let_pass(20_000);
        reasons(&world).len()
    };
    let another = |number: u8| Refusal {
        learned_trace: TraceContext::parse(&format!("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b{number}-01")),
        learned_by: Some("n8".parse().unwrap()),
        ..held()
    };
    assert_eq!(hears(Some(held())), 1);
    // What another attempt shows as well, and what nobody says for a while.
    assert_eq!(hears(Some(another(1))), 1);
    assert_eq!(hears(None), 1);
    assert_eq!(hears(Some(another(2))), 2, "a minute later");
    let other = |class, cause: &str| Refusal { class, cause: cause.to_owned(), ..another(3) };
    assert_eq!(hears(Some(other(FailureClass::RegistryUnavailable, "ErrImagePull: gone"))), 3);
    assert_eq!(hears(Some(other(FailureClass::RegistryUnavailable, "ErrImagePull: refused"))), 4);
    assert_eq!(hears(Some(other(FailureClass::RegistryUnavailable, "ErrImagePull: refused"))), 4);
    assert!(reasons(&world).iter().all(|reason| *reason == BackOff));
}

#[test]
fn what_held_a_standing_pull_is_told_until_it_has_clearance_again() {
    let mut world = World::pulling(sharing());
    let (_, effects) = world.board_sharing(named("a:1", 1));
    let flight = flight_of(&effects);
    let told = |world: &World| {
        let status = world.core.standing_pulls(world.now).remove(0);
        (status.state, status.cause, status.class, status.next_attempt_ms)
    };
    assert_eq!(told(&world), (StandingPullState::Waiting, String::new(), None, None), "the tracker has not said anything");
    world.clearance(flight, Some(Clearance::Waiting { held: None }));
    let no_word = "another node is finding out whether it can be had".to_owned();
    assert_eq!(told(&world), (StandingPullState::Waiting, no_word, None, None));
    world.let_pass(1_000);
    let effects = world.clearance(flight, Some(Clearance::Waiting { held: Some(held()) }));
    world.settle(effects);
    // Its next attempt is due, and somebody else's.
    world.let_pass(9_000);
    world.clearance(flight, Some(Clearance::Waiting { held: None }));
    assert_eq!(told(&world), (StandingPullState::Waiting, held().cause, Some(FailureClass::NotFound), Some(0)));
    world.let_pass(1_000);
    let effects = world.clearance(flight, granted());
    world.settle(effects);
    assert_eq!(told(&world).1, "", "it waits for nothing but its node");
}

#[test]
fn who_has_no_standing_pull_is_refused_beside_one_who_has() {
    let mut world = World::pulling(sharing());
    let (plain, effects) = world.board_sharing(wanted("a:1", PullPolicy::IfNotPresent));
    let flight = flight_of(&effects);
    world.board_sharing(named("a:1", 1));
    let effects = world.clearance(flight, Some(Clearance::Refused(held())));
    world.settle(effects);
    assert_eq!(world.answer_to(plain).outcome, OutcomeKind::Backoff);
    world.let_pass(1_000);
    assert!(world.clearances_requested(flight).last().unwrap().1.standing, "from now on it stands");
    assert_eq!(world.core.standing_pulls(world.now)[0].state, StandingPullState::Held);
}

#[test]
fn a_standing_pull_is_not_refused_for_waiting_long() {
    let mut world = World::pulling(sharing());
    let (caller, effects) = world.board_sharing(named("a:1", 1));
    let flight = flight_of(&effects);
    world.let_pass(30_000);
    world.clearance(flight, granted());
    let queued = contract::messages::throttler::PermitAnswer::Queued { ahead: 0, budget_wait_ms: Some(25_000) };
    assert_eq!(names(&world.give(Input::Permitted { flight, answer: queued })), ["AcquirePermit"]);
    assert_eq!(world.answers_to(caller), []);
}

#[test]
fn a_standing_pull_whose_time_is_over_says_what_held_it() {
    let mut world = World::pulling(sharing());
    let (caller, effects) = world.board_sharing(named("a:1", 1));
    let flight = flight_of(&effects);
    let told = world.clearance(flight, Some(Clearance::Waiting { held: Some(held()) }));
    world.settle(told);
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
fn a_standing_pull_under_way_at_its_end_ends_its_pull_unless_it_has_ended_already() {
    let mut world = World::new();
    let (caller, effects) = world.ask(named("a:1", 1));
    let effects = world.on_to_clearance(effects);
    world.settle(effects);
    world.grant(FlightId(1));
    let effects = world.let_pass(60_000);
    assert_eq!(names(&effects), ["Cancel", "Release", "Answer"]);
    assert!(world.answer_to(caller).timed_out);

    let mut world = World::new();
    let (caller, effects) = world.ask(named("a:1", 1));
    let effects = world.on_to_clearance(effects);
    world.settle(effects);
    world.grant(FlightId(1));
    world.pulled(FlightId(1));
    let landed = world.verified(FlightId(1));
    assert_eq!(world.let_pass(60_000), [], "its image is there, and that is being recorded");
    world.settle(landed);
    assert_eq!(world.answer_to(caller).outcome, OutcomeKind::Pulled);
}

#[test]
fn asking_again_by_the_same_id_joins() {
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
    let Effect::Inspect { request, .. } = world.said[0].clone() else { panic!("it looks first") };
    let effects = world.give(Input::Inspected { request, found: Ok(Some(there())) });
    world.settle(effects);
    for caller in [first, second] {
        assert_eq!(world.answer_to(caller).outcome, OutcomeKind::Present);
    }
}

#[test]
fn who_hangs_up_leaves_the_standing_pull_standing() {
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
fn a_cancelled_standing_pull_ends_its_running_attempt_if_no_other_caller_waits_for_it() {
    let mut world = World::new();
    let (caller, effects) = world.ask(named("a:1", 1));
    let effects = world.on_to_clearance(effects);
    world.settle(effects);
    let (second, effects) = world.ask(named("a:1", 2));
    let effects = world.on_to_clearance(effects);
    world.settle(effects);
    world.grant(FlightId(1));
    world.give(Input::Rechecked { flight: FlightId(1), found: Ok(None) });
    assert!(world.core.flights(world.now)[0].pulling);
    let ended = names(&world.give(cancel(1)));
    assert!(!ended.contains(&"Cancel"), "{ended:?}: the other standing pull wants it");
    let ended = names(&world.give(cancel(2)));
    assert!(ended.contains(&"Cancel") && ended.contains(&"Release"), "{ended:?}");
    assert_eq!(world.core.flights(world.now), []);
    for caller in [caller, second] {
        let answer = world.answer_to(caller);
        assert_eq!((answer.outcome, answer.timed_out), (OutcomeKind::Failed, false));
        assert_eq!(answer.message, "the standing pull of \"a:1\" was cancelled by alice@host");
    }
    // An older version does not say who it was.
    let (caller, _) = world.ask(named("b:1", 3));
    world.give(Input::StandingPullCancelled { standing_pull: id(3), by: String::new() });
    assert_eq!(world.answer_to(caller).message, "the standing pull of \"b:1\" was cancelled");
}

#[test]
fn a_cancelled_standing_pull_ends_with_an_answer_and_others_fly_on() {
    let mut world = World::new();
    let (caller, effects) = world.ask(named("a:1", 1));
    let effects = world.on_to_clearance(effects);
    world.settle(effects);
    let (plain, _) = world.board(wanted("a:1", PullPolicy::IfNotPresent));
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
fn who_detaches_is_answered_when_the_standing_pull_is_written_down() {
    let mut world = World::pulling(writing());
    let (caller, effects) = world.ask(EnsureImage { detach: true, ..named("a:1", 1) });
    assert_eq!(names(&effects), ["KeepStandingPulls", "Inspect"]);
    // While it is being written another one comes: that is written next.
    let (second, effects) = world.ask(EnsureImage { detach: true, ..named("b:1", 2) });
    assert_eq!(names(&effects), ["Inspect"]);
    assert_eq!(names(&world.give(Input::StandingPullsKept { error: None })), ["Answer", "KeepStandingPulls"]);
    let answer = world.answer_to(caller);
    assert_eq!((answer.stands, answer.standing_pull, answer.message.as_str()), (true, Some(id(1)), ""));
    assert_eq!(world.answers_to(second), []);
    let effects = world.give(Input::StandingPullsKept { error: Some("disk full".to_owned()) });
    assert_eq!(names(&effects), ["Answer"], "it is not tried again and again");
    assert_eq!(world.answer_to(second).message, "the standing pull goes on, but not beyond a restart of the agent: disk full");
    assert_eq!(world.give(Input::StandingPullsKept { error: None }), [], "twice");
    assert_eq!(world.core.standing_pulls(world.now).len(), 2);
    // An end is written too.
    assert_eq!(world.core.writing_of_standing_pulls(), None);
    assert_eq!(names(&world.give(cancel(1))), ["KeepStandingPulls"]);
    let first = world.core.writing_of_standing_pulls().unwrap();
    world.give(cancel(2));
    let second = world.core.writing_of_standing_pulls().unwrap();
    world.give(Input::StandingPullsKept { error: None });
    assert!(world.core.is_written(first) && !world.core.is_written(second), "that began before the end of the other");
    world.give(Input::StandingPullsKept { error: None });
    assert!(world.core.is_written(second));
}

fn detached(image: &str, number: u8) -> EnsureImage {
    EnsureImage { detach: true, ..named(image, number) }
}

#[test]
fn the_same_detached_pull_twice_is_one_standing_pull_for_the_longer_time() {
    let mut world = World::pulling(writing());
    let (first, _) = world.ask(detached("busybox", 1));
    world.give(Input::StandingPullsKept { error: None });
    assert_eq!(world.answer_to(first).message, "");
    world.pass(5_000);
    let (longer, effects) = world.ask(EnsureImage { wait_ms: Some(90_000), ..detached("docker.io/library/busybox:latest", 2) });
    assert_eq!(names(&effects), ["KeepStandingPulls"], "its longer time is to live through a restart");
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
fn a_longer_time_is_confirmed_when_it_is_written_itself() {
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
fn what_is_another_standing_pull_is_not_joined() {
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
        // Left to the default, which is IfNotPresent for this tag.
        (detached("a:1", 1), EnsureImage { policy: None, ..detached("a:1", 2) }, true),
        // A command that waits ends its own with Ctrl-C.
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
fn a_standing_pull_that_has_its_tag_resolved_is_not_joined_by_one_that_wants_the_newest() {
    let newest = |number| EnsureImage { policy: Some(PullPolicy::Always), ..detached("a:1", number) };
    let mut world = World::new();
    let (_, effects) = world.ask(newest(1));
    let effects = world.on_to_clearance(effects);
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
fn a_standing_pull_that_nobody_waits_for_is_counted_when_it_ends() {
    let mut world = World::new();
    let (waits, effects) = world.ask(named("a:1", 1));
    let effects = world.on_to_clearance(effects);
    let first = flight_of(&effects);
    world.settle(effects);
    let (_, effects) = world.ask(EnsureImage { detach: true, ..named("b:1", 2) });
    let effects = world.on_to_clearance(effects);
    let second = flight_of(&effects);
    world.settle(effects);
    bring(&mut world, first);
    assert_eq!(world.answer_to(waits).outcome, OutcomeKind::Pulled);
    assert_eq!(world.core.ended_unheard(), AnswerCounts::default(), "whoever answers counts that one");
    bring(&mut world, second);
    assert_eq!(world.core.ended_unheard(), AnswerCounts { pulled_total: 1, ..AnswerCounts::default() });
}

#[test]
fn without_a_file_who_detaches_is_answered_at_once() {
    let mut world = World::new();
    let (caller, effects) = world.ask(EnsureImage { detach: true, ..standing("a:1") });
    assert_eq!(names(&effects), ["Inspect", "Answer"]);
    assert!(world.answer_to(caller).stands && world.answer_to(caller).standing_pull.is_some());
}

#[test]
fn a_standing_pull_lives_through_a_restart_with_the_time_that_is_left() {
    let kept =
        |number, image: &str, until_ms| KeptStandingPull { standing_pull: id(number), ask: named(image, number), since_ms: 0, until_ms };
    let mut world = World::pulling(writing());
    world.pass(40_000);
    let standing_pulls = vec![kept(1, "a:1", 60_000), kept(2, "b:1", 39_000), kept(1, "a:1", 70_000), kept(3, "NO GOOD", 70_000)];
    assert_eq!(world.give(Input::StandingPullsLoaded { standing_pulls }), []);
    let effects = world.let_pass(0);
    assert_eq!(names(&effects), ["Inspect", "KeepStandingPulls"], "one goes on, the other was over while the agent was away");
    let status = world.core.standing_pulls(world.now).remove(0);
    assert_eq!((status.standing_pull, status.since_ms, status.left_ms, status.callers), (id(1), 40_000, 20_000, 0));
    let (caller, effects) = world.ask(named("a:1", 1));
    assert_eq!(effects, [], "who asks again joins it");
    world.let_pass(20_000);
    assert_eq!(world.answer_to(caller).message, "not there within 1m0s: the time given with --wait is over");
}

#[test]
fn a_clock_that_is_not_set_lets_no_standing_pull_stand_for_longer_than_was_asked() {
    let mut world = World::pulling(writing());
    let kept = KeptStandingPull { standing_pull: id(1), ask: named("a:1", 1), since_ms: 1_700_000_000_000, until_ms: 1_700_000_060_000 };
    world.give(Input::StandingPullsLoaded { standing_pulls: vec![kept] });
    assert_eq!(world.core.standing_pulls(world.now)[0].left_ms, 60_000);
    world.let_pass(60_000);
    assert_eq!(world.core.standing_pulls(world.now), []);
}

#[test]
fn a_node_keeps_a_thousand_standing_pulls_and_no_more() {
    let mut world = World::new();
    for _ in 0..1_000 {
        world.ask(standing("a:1"));
    }
    let (one_more, _) = world.ask(standing("a:1"));
    let answer: PullOutcome = world.answer_to(one_more);
    assert_eq!((answer.outcome, answer.class), (OutcomeKind::Failed, Some(FailureClass::NodeLocal)));
    assert_eq!(
        answer.message,
        "1000 standing pulls are kept on this node, more are not: end some with fleetpull cancel, or pull without --wait"
    );
    assert_eq!(world.core.standing_pulls(world.now).len(), 1_000);
}

#[test]
fn what_cannot_be_pulled_at_all_is_answered_at_once() {
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
fn inputs_for_no_standing_pull_change_nothing() {
    let mut world = World::new();
    for input in [cancel(7), Input::StandingPullsKept { error: None }, Input::AlarmRang] {
        assert_eq!(world.give(input.clone()), [], "{input:?}");
    }
    assert_eq!(world.answers_to(RequestId(1)), []);
}
