//! Callers that join a flight or do not, and whose back-off the flight follows.

use std::sync::Arc;

use contract::messages::backoff_tracker::{BackoffAnswer, Clearance, Refusal};
use contract::messages::pull_coordinator::{EnsureImage, OutcomeKind, PullPolicy};
use contract::messages::throttler::PermitAnswer;
use pull_coordinator::core::Input;

use super::{FLIGHT, waiting};
use crate::world::{World, granted, names, pod, refusal, sharing, standing, target, wanted};
use PullPolicy::{Always, IfNotPresent};

#[test]
fn changed_login_gets_a_flight_of_its_own() {
    let (mut world, _) = waiting();
    let (request, _) = world.ask(wanted("a:1", Always));
    let other = contract::Target { fingerprint: "new".to_owned(), ..target() };
    world.give(Input::Inspected { request, found: Ok(None), target: Some(Arc::new(other)), free_bytes: None });
    let effects = world.give(Input::BackoffChecked { request, answer: BackoffAnswer::Allowed });
    assert_eq!(names(&effects), ["RequestClearance"]);
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

#[test]
fn caller_that_joins_is_refused_at_once_if_the_budget_is_known_to_take_longer() {
    for (waited_ms, wait_ms, is_refused) in [(0, 10_001, true), (1_999, 12_000, true), (2_000, 12_000, false), (0, 10_000, false)] {
        let mut world = World::pulling(sharing());
        world.ask_until_clearance(standing("a:1"));
        let effects = world.clearance(FLIGHT, granted());
        world.settle(effects);
        let answer = PermitAnswer::Queued { ahead: 0, budget_wait_ms: Some(wait_ms) };
        let effects = world.give(Input::Permitted { flight: FLIGHT, answer });
        world.settle(effects);
        world.pass(waited_ms);
        let (plain, effects) = world.ask_until_clearance(wanted("a:1", IfNotPresent));
        world.settle(effects);
        let outcomes: Vec<OutcomeKind> = world.answers_to(plain).iter().map(|answer| answer.outcome).collect();
        let expected = if is_refused { vec![OutcomeKind::Backoff] } else { Vec::new() };
        assert_eq!(outcomes, expected, "{wait_ms} ms, {waited_ms} ms ago");
        if is_refused {
            assert_eq!(world.answer_to(plain).next_attempt_ms, Some(wait_ms - waited_ms), "what is left of the wait");
        }
        assert_eq!(world.core.standing_pulls(world.now).len(), 1, "the standing pull goes on");
    }
}
