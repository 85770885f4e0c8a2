//! Many callers of one node, over the real actors with a paused clock.
//!
//! Contracts: twenty callers of one absent image are one pull, each with events of its own, and a failure advances the back-off of each key
//! by one step; a caller that disconnects ends only its own wait, and the runtime's pull if it was the last caller; presence is checked
//! again after a wait; a pull that takes too long ends; every permit is returned.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::time::Duration;

use actors::Delivery;
use contract::messages::pull_coordinator::{EnsureImage, OutcomeKind, PullOutcome, PullPolicy};
use contract::{EventReason, Reason};
use integration::{Plan, TestNode, UNLIMITED, ask, paused, pod, until};
use runtimes::scripted::{ScriptedCall, ScriptedRuntime};
use runtimes::{ImageStatus, PullFailure};
use throttler::core::ThrottlePolicy;
use tokio::task::JoinHandle;

const IMAGE: &str = "app:v1";
const BOTH: [Delivery; 2] = [Delivery::Local, Delivery::Bus];
const SERIAL: ThrottlePolicy = ThrottlePolicy { slots: 1, ..UNLIMITED };

fn pull_of(image: &str) -> ScriptedCall {
    ScriptedCall::Pull(image.to_owned())
}

fn pulls(runtime: &ScriptedRuntime) -> usize {
    runtime.calls().into_iter().filter(|call| matches!(call, ScriptedCall::Pull(_))).count()
}

fn hasty(image: &str, timeout_ms: u64) -> EnsureImage {
    EnsureImage { timeout_ms: Some(timeout_ms), ..ask(image, PullPolicy::IfNotPresent) }
}

async fn every_permit_is_back(node: &TestNode) {
    until("every permit is back", || async {
        let permits = node.permits().await;
        (permits.granted, permits.queued) == (0, 0)
    })
    .await;
}

/// Twenty callers of [`IMAGE`]: two for each of five pods, and ten without a pod.
async fn twenty_callers(node: &TestNode, runtime: &ScriptedRuntime) -> Vec<PullOutcome> {
    runtime.hold(IMAGE);
    let callers: Vec<JoinHandle<PullOutcome>> = (0..20)
        .map(|number| {
            let pod = (number < 10).then(|| pod(&(number % 5).to_string()));
            node.begin(EnsureImage { pod, ..ask(IMAGE, PullPolicy::IfNotPresent) })
        })
        .collect();
    until("all have boarded", || async { node.pulls().await.first().is_some_and(|pull| pull.callers == 20) }).await;
    runtime.let_go(IMAGE);
    let mut outcomes = Vec::new();
    for caller in callers {
        outcomes.push(caller.await.unwrap());
    }
    outcomes
}

#[test]
fn twenty_callers_are_one_pull_with_events_of_their_own() {
    for delivery in BOTH {
        paused(async {
            let runtime = ScriptedRuntime::new();
            let node = TestNode::start(Plan { delivery, ..Plan::with(runtime.clone()) }).await;
            let outcomes = twenty_callers(&node, &runtime).await;
            assert!(outcomes.iter().all(|outcome| outcome.outcome == OutcomeKind::Pulled), "{outcomes:?}");
            assert_eq!(pulls(&runtime), 1);
            let events = node.events().await;
            let count = |reason| events.iter().filter(|event| event.reason == reason).count();
            assert_eq!((events.len(), count(EventReason::Pulling), count(EventReason::Pulled)), (40, 20, 20));
            let traces: std::collections::BTreeSet<u128> = events.iter().map(|event| event.trace.trace_id).collect();
            assert_eq!(traces.len(), 20, "each caller has a trace of its own");
            assert!(node.pulls().await.is_empty());
            every_permit_is_back(&node).await;
        });
    }
}

#[test]
fn a_failure_steps_the_back_off_of_each_key_once() {
    for delivery in BOTH {
        paused(async {
            let runtime = ScriptedRuntime::new();
            runtime.answer_pulls(IMAGE, [Err(PullFailure { text: "gone".to_owned(), ..PullFailure::default() })]);
            let node = TestNode::start(Plan { delivery, ..Plan::with(runtime.clone()) }).await;
            let outcomes = twenty_callers(&node, &runtime).await;
            for outcome in &outcomes {
                assert_eq!((outcome.reason, outcome.next_attempt_ms), (Some(Reason::ErrImagePull), Some(10_000)));
            }
            let backoffs = node.backoffs().await;
            assert_eq!((backoffs.failures_total, backoffs.known, backoffs.held), (6, 6, 6), "five pods and the nameless one");
            assert_eq!(pulls(&runtime), 1);
        });
    }
}

#[test]
fn a_caller_that_hangs_up_ends_only_its_own_wait() {
    for delivery in BOTH {
        paused(async {
            let runtime = ScriptedRuntime::new();
            runtime.hold(IMAGE);
            let node = TestNode::start(Plan { delivery, ..Plan::with(runtime.clone()) }).await;
            let patient = node.begin(ask(IMAGE, PullPolicy::IfNotPresent));
            let hasty = node.ensure(hasty(IMAGE, 1_500)).await;
            assert!(hasty.timed_out);
            assert_eq!(hasty.message, "not there within 1.5s: the time given with --timeout is over");
            runtime.let_go(IMAGE);
            assert_eq!(patient.await.unwrap().outcome, OutcomeKind::Pulled);
            assert_eq!(pulls(&runtime), 1);
        });
    }
}

#[test]
fn the_pull_ends_with_its_last_caller() {
    for delivery in BOTH {
        paused(async {
            let runtime = ScriptedRuntime::new();
            runtime.hold(IMAGE);
            let node = TestNode::start(Plan { delivery, throttle: SERIAL, ..Plan::with(runtime.clone()) }).await;
            let callers = [node.begin(hasty(IMAGE, 1_000)), node.begin(hasty(IMAGE, 2_000))];
            for caller in callers {
                assert!(caller.await.unwrap().timed_out);
            }
            until("the runtime's pull is given up", || async { runtime.calls().contains(&ScriptedCall::GivenUp(IMAGE.to_owned())) }).await;
            every_permit_is_back(&node).await;
            assert_eq!(node.ensure(ask("other:v1", PullPolicy::IfNotPresent)).await.outcome, OutcomeKind::Pulled);
        });
    }
}

#[test]
fn a_caller_that_hangs_up_leaves_the_queue() {
    for delivery in BOTH {
        paused(async {
            let runtime = ScriptedRuntime::new();
            runtime.hold(IMAGE);
            let node = TestNode::start(Plan { delivery, throttle: SERIAL, ..Plan::with(runtime.clone()) }).await;
            let first = node.begin(ask(IMAGE, PullPolicy::IfNotPresent));
            runtime.wait_for(&pull_of(IMAGE), 1).await;
            let queued = node.ensure(hasty("other:v1", 25_000)).await;
            assert!(queued.timed_out);
            until("nobody waits", || async { node.permits().await.queued == 0 }).await;
            runtime.let_go(IMAGE);
            assert_eq!(first.await.unwrap().outcome, OutcomeKind::Pulled);
            every_permit_is_back(&node).await;
            assert_eq!(pulls(&runtime), 1);
        });
    }
}

#[test]
fn presence_is_looked_at_again_after_a_wait() {
    for delivery in BOTH {
        paused(async {
            let runtime = ScriptedRuntime::new();
            runtime.hold(IMAGE);
            let node = TestNode::start(Plan { delivery, throttle: SERIAL, ..Plan::with(runtime.clone()) }).await;
            let first = node.begin(ask(IMAGE, PullPolicy::IfNotPresent));
            runtime.wait_for(&pull_of(IMAGE), 1).await;
            let second = node.begin(ask("other:v1", PullPolicy::IfNotPresent));
            until("one waits", || async { node.permits().await.queued == 1 }).await;
            tokio::time::advance(Duration::from_secs(4)).await;
            // Another process pulls the image meanwhile.
            runtime.put("other:v1", ImageStatus { image_ref: "theirs".to_owned(), size_bytes: 5, ..ImageStatus::default() });
            runtime.let_go(IMAGE);
            first.await.unwrap();
            let second = second.await.unwrap();
            assert_eq!((second.outcome, second.image_ref.as_str()), (OutcomeKind::Present, "theirs"));
            assert!(second.waiting_ms >= 4_000, "{}", second.waiting_ms);
            assert_eq!(pulls(&runtime), 1);
            every_permit_is_back(&node).await;
        });
    }
}

#[test]
fn a_long_pull_keeps_its_permit_and_one_too_long_ends() {
    for delivery in BOTH {
        paused(async {
            let runtime = ScriptedRuntime::new();
            runtime.hold(IMAGE);
            let limit = Some(Duration::from_secs(600));
            let node = TestNode::start(Plan { delivery, throttle: SERIAL, pull_timeout: limit, ..Plan::with(runtime.clone()) }).await;
            let long = node.begin(ask(IMAGE, PullPolicy::IfNotPresent));
            runtime.wait_for(&pull_of(IMAGE), 1).await;
            let waiting = node.begin(ask("other:v1", PullPolicy::IfNotPresent));
            tokio::time::sleep(Duration::from_secs(300)).await;
            assert_eq!(pulls(&runtime), 1, "the permit outlives its lease of 30 s while the pull goes on");
            let long = long.await.unwrap();
            assert_eq!(long.reason, Some(Reason::ErrImagePull));
            assert_eq!(long.message, "the pull took longer than pull.timeout = 10m0s: raise it, or find out why the registry is slow");
            assert_eq!(long.duration_ms, 600_000);
            assert_eq!(waiting.await.unwrap().outcome, OutcomeKind::Pulled);
            assert_eq!(node.permits().await.reclaimed_total, 0);
        });
    }
}

#[test]
fn a_pull_ends_when_its_caller_abandons_it_unless_another_caller_wants_it() {
    for (delivery, others) in BOTH.into_iter().flat_map(|delivery| [(delivery, false), (delivery, true)]) {
        paused(async {
            let runtime = ScriptedRuntime::new();
            runtime.hold(IMAGE);
            let node = TestNode::start(Plan { delivery, ..Plan::with(runtime.clone()) }).await;
            let abandoned = node.begin(ask(IMAGE, PullPolicy::IfNotPresent));
            runtime.wait_for(&pull_of(IMAGE), 1).await;
            let other = others.then(|| node.begin(ask(IMAGE, PullPolicy::IfNotPresent)));
            let waits = 1 + u32::from(others);
            until("all wait", || async { node.pulls().await.first().is_some_and(|pull| pull.callers == waits) }).await;
            abandoned.abort();
            match other {
                None => {
                    tokio::time::sleep(Duration::from_secs(10)).await;
                    assert!(runtime.calls().contains(&ScriptedCall::GivenUp(IMAGE.to_owned())), "{delivery:?}");
                    every_permit_is_back(&node).await;
                    assert!(node.pulls().await.is_empty(), "{delivery:?}");
                }
                Some(other) => {
                    tokio::time::sleep(Duration::from_secs(10)).await;
                    assert_eq!(node.pulls().await[0].callers, 1, "{delivery:?}");
                    runtime.let_go(IMAGE);
                    assert_eq!(other.await.unwrap().outcome, OutcomeKind::Pulled, "{delivery:?}");
                }
            }
        });
    }
}
