//! Attempts with clearance: their results, the time they get, and their end when the fleet gives them up.

use std::time::Duration;

use contract::messages::backoff_tracker::Clearance;
use contract::messages::pull_coordinator::OutcomeKind;
use contract::{EventReason, FailureClass, Reason, Stage};
use pull_coordinator::core::{Effect, Failure, Input};

use super::{FLIGHT, pulling};
use crate::world::{failure, granted, granted_for_all, granted_until_blob, names};
use EventReason::{Failed, Pulling};

#[test]
fn resolved_failure_has_all_that_the_runtime_knows() {
    let (mut world, request) = pulling(granted_for_all());
    let failure = Failure {
        authoritative: true,
        endpoint: Some("mirror.example:443".to_owned()),
        no_such_platform: true,
        retry_after: Some(Duration::from_secs(20)),
        ..failure("gone")
    };
    let finished = world.give(Input::Pulled { flight: FLIGHT, result: Err(failure) });
    assert_eq!(names(&finished), ["Resolve", "Release", "Withdraw", "Report", "Record"]);
    world.settle(finished);
    let resolved = world.resolves()[0].failure.clone().unwrap();
    assert_eq!(world.reports()[0].failure.as_ref(), Some(&resolved));
    let span = world.clearances_requested(FLIGHT)[0].1.attempt_span;
    assert!(span.is_some() && world.reports()[0].attempt_span == span, "of the same attempt");
    assert_eq!((resolved.cause.as_str(), resolved.class, resolved.authoritative), ("ErrImagePull: gone", FailureClass::NotFound, true));
    assert_eq!(
        (resolved.endpoint.as_deref(), resolved.no_such_platform, resolved.retry_after_ms),
        (Some("mirror.example:443"), true, Some(20_000))
    );
    assert_eq!(world.reasons_of(request), [Pulling, Failed]);
}

#[test]
fn failure_after_the_manifest_is_not_resolved_again() {
    let (mut world, _) = pulling(granted_for_all());
    world.give(Input::Resolved { flight: FLIGHT, seen: true });
    let finished = world.give(Input::Pulled { flight: FLIGHT, result: Err(failure("short")) });
    assert_eq!(names(&finished)[..3], ["Release", "Withdraw", "Report"]);
    assert_eq!(world.resolves().len(), 1);
}

/// Clearance for the blob stage lasts beyond the manifest, until the blob's first byte.
#[test]
fn attempt_ends_when_a_requested_blob_is_late() {
    let begun = || {
        let (mut world, request) = pulling(granted_until_blob());
        assert_eq!(names(&world.give(Input::Resolved { flight: FLIGHT, seen: true })), ["Resolve"]);
        assert!(world.core.next_alarm().is_some(), "clearance lasts until a blob answers");
        (world, request)
    };
    let careful = |effect: &Effect| matches!(effect, Effect::StartPull { one_blob_first: true, .. });
    let (mut world, _) = begun();
    assert!(world.all_effects.iter().any(careful), "one blob is asked for first");
    world.give(Input::BlobAwaited { flight: FLIGHT });
    let effects = world.let_pass(15_000);
    assert!(names(&effects).starts_with(&["Cancel", "Resolve", "Release", "Withdraw"]), "{:?}", names(&effects));
    let resolved = world.resolves()[1].failure.clone().unwrap();
    assert_eq!((resolved.class, resolved.stage), (FailureClass::RegistryUnavailable, Stage::Blob));
    assert!(resolved.cause.contains("has not sent a requested blob"), "{}", resolved.cause);

    let (mut world, _) = begun();
    world.let_pass(15_000);
    assert_eq!(world.count("Cancel"), 0, "a pull that asks for no blob waits for none");

    let (mut world, _) = begun();
    world.give(Input::BlobAwaited { flight: FLIGHT });
    assert_eq!(names(&world.give(Input::Reached { flight: FLIGHT, stage: Stage::Blob })), ["Resolve"]);
    assert_eq!(world.give(Input::Reached { flight: FLIGHT, stage: Stage::Blob }), [], "it is resolved once");
    world.let_pass(60_000);
    assert_eq!(world.count("Cancel"), 0);
    assert_eq!(world.core.next_alarm(), None);
}

#[test]
fn attempt_without_a_manifest_in_time_ends_as_failed() {
    let (mut world, request) = pulling(granted_for_all());
    let effects = world.let_pass(15_000);
    assert_eq!(names(&effects), ["Cancel", "Resolve", "Release", "Withdraw", "Report", "Record"]);
    world.settle(effects);
    let resolved = world.resolves()[0].failure.clone().unwrap();
    assert_eq!((resolved.class, resolved.authoritative), (FailureClass::RegistryUnavailable, false));
    let answer = world.answer_to(request);
    assert_eq!(answer.message, "no answer within 15s: docker.io has not sent the manifest");
    assert_eq!(answer.reason, Some(Reason::ErrImagePull));
}

#[test]
fn runtime_that_hides_the_manifest_is_waited_for() {
    let (mut world, _) = pulling(granted_for_all());
    world.give(Input::Resolved { flight: FLIGHT, seen: false });
    assert_eq!(world.resolves(), []);
    world.let_pass(60_000);
    assert_eq!((world.count("Cancel"), world.core.flights(world.now).len()), (0, 1));
    assert_eq!(names(&world.pulled(FLIGHT)), ["Verify", "Resolve"]);
}

#[test]
fn attempt_that_the_fleet_gave_up_restarts_without_a_report() {
    let (mut world, request) = pulling(granted());
    world.let_pass(4_000);
    let effects = world.clearance(FLIGHT, Some(Clearance::Abandoned));
    assert_eq!(names(&effects), ["Cancel", "Release", "RequestClearance"]);
    let asked = world.clearances_requested(FLIGHT);
    let (first, last) = (&asked[0].1, &asked[2].1);
    assert_eq!(first.clearance, last.clearance);
    assert_ne!(first.attempt, last.attempt);
    assert_eq!((world.resolves().len(), world.answers_to(request).len()), (0, 0));
    // Results of the first attempt are ignored.
    assert_eq!(world.pulled(FLIGHT), []);
    assert_eq!(names(&world.clearance(FLIGHT, granted())), ["AcquirePermit", "RequestClearance"], "Pulling is recorded once");
    world.grant(FLIGHT);
    world.give(Input::Rechecked { flight: FLIGHT, found: Ok(None) });
    world.pulled(FLIGHT);
    assert_eq!(world.resolves()[0].attempt, last.attempt);
    assert_eq!(world.count("Release"), 1);
}

#[test]
fn attempt_with_a_hidden_manifest_goes_on_when_the_fleet_gives_it_up() {
    let (mut world, request) = pulling(granted());
    world.give(Input::Resolved { flight: FLIGHT, seen: false });
    assert_eq!(names(&world.clearance(FLIGHT, Some(Clearance::Abandoned))), ["Withdraw"], "its leases are free for other nodes");
    assert_eq!(world.let_pass(60_000), [], "a clearance given up is not requested again");
    assert_eq!(names(&world.pulled(FLIGHT)), ["Verify"], "the tracker no longer waits for this attempt");
    let finished = world.verified(FLIGHT);
    assert_eq!(names(&finished)[..2], ["Release", "Report"], "it is withdrawn once");
    world.settle(finished);
    assert_eq!(world.answer_to(request).outcome, OutcomeKind::Pulled);
}
