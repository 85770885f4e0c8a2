//! Standing pulls that are stored: callers that detach and equal pulls that become one, and standing pulls after a restart.

use std::time::Duration;

use contract::messages::pull_coordinator::{EnsureImage, PullPolicy};
use pull_coordinator::core::{Effect, Input, KeptStandingPull, Policy};

use super::{bring, cancel, id, named};
use crate::world::{World, flight_of, names, pod, standing};

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
    assert_eq!(names(&effects), ["Answer"], "a failed write is not repeated at once");
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

#[test]
fn failed_write_is_repeated_after_a_pause_until_it_succeeds() {
    let mut world = World::pulling(writing());
    let (_, effects) = world.ask(named("a:1", 1));
    assert_eq!(names(&effects), ["KeepStandingPulls", "Inspect"]);
    for _ in 0..2 {
        assert_eq!(world.give(Input::StandingPullsKept { error: Some("disk full".to_owned()) }), []);
        assert_eq!(world.let_pass(9_999), []);
        assert_eq!(names(&world.let_pass(1)), ["KeepStandingPulls"]);
    }
    assert_eq!(world.give(Input::StandingPullsKept { error: None }), []);
    assert_eq!(world.let_pass(30_000), [], "it is stored");
}

/// A caller that got no answer, or that joins later, would wait for ever if nothing were written for it.
#[test]
fn detached_caller_after_a_failed_write_is_answered_by_another_write() {
    for (waits_first, number, wait_ms) in [(false, 1, 60_000), (false, 2, 60_000), (false, 2, 1_000), (true, 1, 60_000)] {
        let mut world = World::pulling(writing());
        let (first, _) = world.ask(EnsureImage { detach: !waits_first, ..detached("a:1", 1) });
        world.give(Input::StandingPullsKept { error: Some("disk full".to_owned()) });
        assert_eq!(world.answers_to(first).len(), usize::from(!waits_first));
        let (again, effects) = world.ask(EnsureImage { wait_ms: Some(wait_ms), ..detached("a:1", number) });
        assert_eq!(names(&effects), ["KeepStandingPulls"], "{waits_first} {number} {wait_ms}");
        assert_eq!(names(&world.give(Input::StandingPullsKept { error: None })), ["Answer"]);
        let answer = world.answer_to(again);
        assert!(answer.stands && answer.standing_pull == Some(id(1)), "{answer:?}");
    }
}

#[test]
fn detached_caller_waits_for_a_hanging_write_until_its_time_is_over() {
    let mut world = World::pulling(writing());
    let (late, _) = world.ask(EnsureImage { timeout_ms: Some(1_000), ..detached("a:1", 1) });
    let (abandoned, _) = world.ask(detached("a:1", 1));
    assert_eq!(names(&world.give(Input::TimeOver { request: late })), ["Answer"]);
    let answer = world.answer_to(late);
    assert!(answer.stands && answer.standing_pull == Some(id(1)), "{answer:?}");
    assert!(answer.message.contains("its file is still being written"), "{answer:?}");
    world.give(Input::CallerAbandoned { request: abandoned });
    assert!(!world.core.is_pending(late) && !world.core.is_pending(abandoned));
    assert_eq!(names(&world.give(Input::StandingPullsKept { error: None })), [""; 0]);
    assert_eq!(world.core.standing_count(), 1, "it goes on");
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
fn standing_pull_that_began_before_the_clock_was_set_keeps_its_age_and_its_end() {
    let mut world = World::pulling(writing());
    let (caller, effects) = world.ask(named("a:1", 1));
    let effects = world.answer_until_clearance(effects);
    let flight = flight_of(&effects);
    world.settle(effects);
    world.give(Input::StandingPullsKept { error: None });
    world.pass(10_000);
    assert_eq!(world.give(Input::AlarmRang), [], "the clock runs on");
    world.now.wall += Duration::from_secs(1_700_000_000);
    let effects = world.give(Input::AlarmRang);
    let [Effect::KeepStandingPulls { standing_pulls }] = effects.as_slice() else { panic!("{effects:?}") };
    assert_eq!((standing_pulls[0].since_ms, standing_pulls[0].until_ms), (1_700_000_000_000, 1_700_000_060_000));
    assert_eq!(world.give(Input::StandingPullsKept { error: None }), []);
    assert_eq!(world.give(Input::AlarmRang), [], "it is written once");
    let status = world.core.standing_pulls(world.now).remove(0);
    assert_eq!((status.since_ms, status.left_ms), (10_000, 50_000));

    let mut restarted = World::pulling(writing());
    restarted.now.wall = world.now.wall + Duration::from_secs(5);
    restarted.give(Input::StandingPullsLoaded { standing_pulls: standing_pulls.clone() });
    let status = restarted.core.standing_pulls(restarted.now).remove(0);
    assert_eq!((status.since_ms, status.left_ms), (15_000, 45_000));

    bring(&mut world, flight);
    assert_eq!(world.answer_to(caller).waiting_ms, 10_000);
}
