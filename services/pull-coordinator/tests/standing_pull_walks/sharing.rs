//! Standing pulls on a node that shares: the fleet decides when they go on.

use contract::messages::backoff_tracker::{Clearance, Refusal};
use contract::messages::pull_coordinator::{EnsureImage, OutcomeKind, PullPolicy, StandingPullState};
use contract::messages::throttler::PermitAnswer;
use contract::{EventReason, FailureClass, TraceContext};
use pull_coordinator::core::{FlightId, Input};

use super::{bring, fail, named, next_flight, reasons};
use crate::world::{World, flight_of, granted, names, refusal, sharing, wanted};
use EventReason::{BackOff, Failed, Pulling};

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

#[test]
fn standing_pull_names_the_time_of_an_attempt_alone() {
    let by_no_attempt = Refusal { learned_by: None, learned_trace: None, learned_ms_ago: 0, ..refusal() };
    let own_attempt = Refusal { learned_by: None, learned_ms_ago: 0, ..refusal() };
    for (held, learned_ms_ago) in [(by_no_attempt, None), (own_attempt, Some(3_000)), (refusal(), Some(5_000))] {
        let mut world = World::pulling(sharing());
        let (_, effects) = world.ask_until_clearance(named("a:1", 1));
        let effects = world.clearance(flight_of(&effects), Some(Clearance::Refused(held)));
        world.settle(effects);
        world.pass(3_000);
        assert_eq!(world.core.standing_pulls(world.now)[0].learned_ms_ago, learned_ms_ago);
    }
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
    let queued = PermitAnswer::Queued { ahead: 0, budget_wait_ms: Some(25_000) };
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
