//! Flights with clearance that wait for their permit: in the node's queue and for the fleet's budget.

use std::collections::BTreeSet;

use contract::messages::backoff_tracker::{Clearance, Refusal};
use contract::messages::pull_coordinator::{OutcomeKind, PullPolicy};
use contract::messages::throttler::PermitAnswer;
use contract::{EventReason, FailureClass, PermitId};
use pull_coordinator::core::{Effect, Input};

use super::{FLIGHT, allowed};
use crate::world::{granted, granted_for_all, names, present_image, refusal, wanted};
use EventReason::{BackOff, Pulling};

fn queued(budget_wait_ms: Option<u64>) -> Input {
    Input::Permitted { flight: FLIGHT, answer: PermitAnswer::Queued { ahead: 0, budget_wait_ms } }
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
    let permits: BTreeSet<_> = world.all_effects.iter().filter_map(permit_of).collect();
    assert_eq!(permits.len(), 2, "a returned permit is not asked for again");
}

fn permit_of(effect: &Effect) -> Option<PermitId> {
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
        let permits: BTreeSet<_> = world.all_effects.iter().filter_map(permit_of).collect();
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
        "Back-off pulling image \"a:1\": ErrImagePull: the fleet's budget for registry.example is used up, its turn comes in 6s"
    );
    assert_eq!(world.reasons_of(request), [Pulling, EventReason::Throttled, BackOff]);
}

#[test]
fn caller_that_joins_a_queued_flight_gets_its_own_event_about_the_wait() {
    let (mut world, first) = allowed(granted());
    let effects = world.give(queued(None));
    world.settle(effects);
    world.pass(4_000);
    let (second, effects) = world.ask_until_clearance(wanted("a:1", PullPolicy::IfNotPresent));
    world.settle(effects);
    world.pass(6_000);
    let effects = world.give(queued(None));
    world.settle(effects);
    for (request, waited_ms) in [(first, 0), (second, 6_000)] {
        assert_eq!(world.reasons_of(request), [Pulling, EventReason::Throttled]);
        assert_eq!(world.events_of(request)[1].waiting_ms, Some(waited_ms));
    }
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
fn caller_that_left_the_budgets_queue_is_refused_for_what_it_waits_for_now() {
    let unconfirmed = Some(Refusal { unconfirmed: true, ..refusal() });
    let undecided = "no clearance within 10s: still waiting for the result of another node's attempt";
    for (held, class, cause) in [(unconfirmed, FailureClass::NotFound, "gone"), (None, FailureClass::Unknown, undecided)] {
        let (mut world, request) = allowed(granted());
        let effects = world.give(queued(Some(6_000)));
        world.settle(effects);
        let effects = world.clearance(FLIGHT, Some(Clearance::Waiting { held: None }));
        assert_eq!(names(&effects), ["Cancel", "Release", "RequestClearance"], "it leaves the queue");
        for _ in 0..10 {
            world.clearance(FLIGHT, Some(Clearance::Waiting { held: held.clone() }));
            let effects = world.let_pass(1_000);
            world.settle(effects);
        }
        let answer = world.answer_to(request);
        assert_eq!((answer.outcome, answer.class), (OutcomeKind::Backoff, Some(class)));
        assert_eq!(answer.message, format!("Back-off pulling image \"a:1\": ErrImagePull: {cause}"));
    }
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
