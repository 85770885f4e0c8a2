//! Callers that leave, at every stage of their request.

use contract::messages::backoff_tracker::BackoffAnswer;
use contract::messages::pull_coordinator::PullPolicy;
use pull_coordinator::core::{Input, RequestId};

use super::{FLIGHT, allowed, pulling, waiting};
use crate::world::{World, absent, granted, granted_for_all, names, sharing, standing, wanted};
use PullPolicy::Always;

#[test]
fn last_caller_to_leave_returns_permit_and_clearance() {
    for (stage, given_back) in [
        ("clearance", &["Cancel", "Withdraw", "Answer"][..]),
        ("queue", &["Cancel", "Release", "Withdraw", "Answer"]),
        ("pull", &["Cancel", "Release", "Withdraw", "Answer"]),
    ] {
        let (mut world, request) = match stage {
            "clearance" => waiting(),
            "queue" => allowed(granted_for_all()),
            _ => pulling(granted_for_all()),
        };
        assert_eq!(names(&world.give(Input::TimeOver { request })), given_back, "{stage}");
        assert_eq!((world.core.next_alarm(), world.resolves().len()), (None, 0), "{stage}");
        assert_eq!(world.clearance(FLIGHT, granted()), [], "{stage}");
    }
}

/// How far a request is when its caller leaves.
#[derive(Clone, Copy, Debug, PartialEq)]
enum At {
    Inspecting,
    CheckingBackoff,
    AwaitingClearance,
    Queued,
    Pulling,
    Verifying,
    Recording,
}

/// A stage, and the input that brings a request there.
type Step<'a> = (At, &'a dyn Fn(&mut World));

/// A node that shares, with one caller without a standing pull whose request is at `stage`.
fn caller_at(stage: At) -> (World, RequestId) {
    let mut world = World::pulling(sharing());
    let (request, _) = world.ask(wanted("a:1", Always));
    let steps: [Step<'_>; 6] = [
        (At::CheckingBackoff, &|world| drop(world.give(absent(request)))),
        (At::AwaitingClearance, &|world| drop(world.give(Input::BackoffChecked { request, answer: BackoffAnswer::Allowed }))),
        (At::Queued, &|world| {
            world.clearance(FLIGHT, granted());
            world.give(Input::Recorded { request });
        }),
        (At::Pulling, &|world| drop(world.grant(FLIGHT))),
        (At::Verifying, &|world| drop(world.pulled(FLIGHT))),
        (At::Recording, &|world| drop(world.verified(FLIGHT))),
    ];
    if stage != At::Inspecting {
        for (reached, step) in steps {
            step(&mut world);
            if reached == stage {
                break;
            }
        }
    }
    (world, request)
}

#[test]
fn flight_ends_with_its_last_caller_at_any_stage() {
    use At::*;
    for (stage, ends) in [
        (Inspecting, &["Answer"][..]),
        (CheckingBackoff, &["Answer"]),
        (AwaitingClearance, &["Cancel", "Withdraw", "Answer"]),
        (Queued, &["Cancel", "Release", "Withdraw", "Answer"]),
        (Pulling, &["Cancel", "Release", "Withdraw", "Answer"]),
        (Verifying, &["Cancel", "Release", "Withdraw", "Answer"]),
        (Recording, &[]),
    ] {
        let (mut world, request) = caller_at(stage);
        assert_eq!(names(&world.give(Input::CallerAbandoned { request })), ends, "{stage:?}");
        assert_eq!(world.give(Input::CallerAbandoned { request }), [], "{stage:?}: given twice");
        if stage != Recording {
            assert_eq!((world.core.flights(world.now), world.core.next_alarm()), (vec![], None), "{stage:?}");
        }
        let waits = [AwaitingClearance, Queued, Pulling].contains(&stage);
        for other in [wanted("a:1", Always), standing("a:1")].into_iter().filter(|_| waits) {
            let (mut world, request) = caller_at(stage);
            let stands = other.wait_ms.is_some();
            world.ask_until_clearance(other);
            let effects = world.give(Input::CallerAbandoned { request });
            assert!(!names(&effects).contains(&"Cancel"), "{stage:?}, standing pull {stands}: {effects:?}");
            assert_eq!(world.core.flights(world.now).len(), 1, "{stage:?}, standing pull {stands}");
        }
    }
}

#[test]
fn standing_pull_goes_on_when_its_caller_leaves() {
    let mut world = World::pulling(sharing());
    let (caller, _) = world.ask_until_clearance(standing("a:1"));
    world.clearance(FLIGHT, granted());
    world.grant(FLIGHT);
    assert_eq!(world.give(Input::CallerAbandoned { request: caller }), []);
    assert_eq!((world.core.standing_pulls(world.now).len(), world.core.flights(world.now).len()), (1, 1));
    assert_eq!(world.core.standing_pulls(world.now)[0].callers, 0);
}
