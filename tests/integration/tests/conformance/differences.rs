//! Kubelet's tests of parallel pulls, and the differences from kubelet.

use std::time::Duration;

use actors::Delivery;
use contract::Reason;
use contract::messages::pull_coordinator::{EnsureImage, OutcomeKind, PullPolicy};
use integration::{Plan, TestNode, UNLIMITED, ask, paused, pod, until};
use runtimes::scripted::{ScriptedCall, ScriptedRuntime};
use throttler::core::{OnExhausted, ThrottlePolicy};

use super::table::{fails, words};

const BOTH: [Delivery; 2] = [Delivery::Local, Delivery::Bus];

/// Kubelet's TestMaxParallelImagePullsLimit, with seven images, because Fleetpull pulls one image once for all callers.
#[test]
fn no_more_pulls_run_at_once_than_allowed() {
    for delivery in BOTH {
        paused(async {
            let runtime = ScriptedRuntime::new();
            let images: Vec<String> = (1..=7).map(|number| format!("image:{number}")).collect();
            for image in &images {
                runtime.hold(image);
            }
            let throttle = ThrottlePolicy { slots: 5, ..UNLIMITED };
            let node = TestNode::start(Plan { throttle, delivery, ..Plan::with(runtime.clone()) }).await;
            let pulls = || words(runtime.calls()).into_iter().filter(|call| *call == "PullImage").count();
            let begin = |image: &String| node.begin(ask(image, PullPolicy::IfNotPresent));
            let mut asks: Vec<_> = images[..5].iter().map(begin).collect();
            until("five pulls run", || async { pulls() == 5 }).await;
            asks.extend(images[5..].iter().map(begin));
            until("two pulls wait", || async { node.permits().await.queued == 2 }).await;
            assert_eq!(pulls(), 5);
            runtime.let_go(&images[0]);
            runtime.let_go(&images[1]);
            until("the two that waited run", || async { pulls() == 7 }).await;
            for image in &images[2..] {
                runtime.let_go(image);
            }
            for ask in asks {
                assert_eq!(ask.await.unwrap().outcome, OutcomeKind::Pulled);
            }
            assert_eq!(pulls(), 7);
            until("every permit is back", || async { node.permits().await.granted == 0 }).await;
        });
    }
}

/// Kubelet's TestParallelPodPullingTimeRecorderWithErr. The second pod asks with Always after the tag is resolved, because otherwise it
/// would share the first pod's pull and its success.
#[test]
fn two_pods_pull_one_image_and_one_fails() {
    for delivery in BOTH {
        paused(async {
            let runtime = ScriptedRuntime::new();
            let image = "missing_image:latest";
            runtime.hold(image);
            let success = runtimes::PulledImage { image_ref: "ref".to_owned(), ..runtimes::PulledImage::default() };
            runtime.answer_pulls(image, [Ok(success), fails("pull image error")]);
            let throttle = ThrottlePolicy { slots: 2, ..UNLIMITED };
            let node = TestNode::start(Plan { throttle, delivery, ..Plan::with(runtime.clone()) }).await;
            let of_pod = |name, policy| EnsureImage { pod: Some(pod(name)), ..ask("missing_image", policy) };
            let pull = ScriptedCall::Pull(image.to_owned());

            let first = node.begin(of_pod("1", PullPolicy::IfNotPresent));
            runtime.wait_for(&pull, 1).await;
            runtime.resolve(image);
            let second = node.begin(of_pod("2", PullPolicy::Always));
            runtime.wait_for(&pull, 2).await;
            runtime.let_go(image);
            let first = first.await.unwrap();
            assert_eq!((first.outcome, first.reason), (OutcomeKind::Pulled, None));
            runtime.let_go(image);
            let second = second.await.unwrap();
            assert_eq!((second.outcome, second.reason), (OutcomeKind::Failed, Some(Reason::ErrImagePull)));
            assert_eq!(second.message, "pull image error");

            for name in ["1", "2"] {
                let again = node.ensure(of_pod(name, PullPolicy::IfNotPresent)).await;
                assert_eq!(again.outcome, OutcomeKind::Present);
            }
            assert_eq!(runtime.calls().iter().filter(|call| **call == pull).count(), 2);
        });
    }
}

#[test]
fn unlike_kubelet_a_pull_without_a_token_waits_for_one() {
    for delivery in BOTH {
        paused(async {
            let runtime = ScriptedRuntime::new();
            let throttle = ThrottlePolicy { per_second: 0.1, burst: 1, ..UNLIMITED };
            let node = TestNode::start(Plan { throttle, delivery, ..Plan::with(runtime.clone()) }).await;
            let asks: Vec<_> = ["a:1", "b:1", "c:1"].into_iter().map(|image| node.begin(ask(image, PullPolicy::IfNotPresent))).collect();
            let mut waits = Vec::new();
            for ask in asks {
                let outcome = ask.await.unwrap();
                assert_eq!(outcome.outcome, OutcomeKind::Pulled, "{}", outcome.message);
                waits.push(outcome.waiting_ms.div_ceil(1_000));
            }
            assert_eq!(waits, [0, 10, 20]);
        });
    }
}

#[test]
fn a_pull_without_a_token_fails_as_in_kubelet_if_so_configured() {
    paused(async {
        let throttle = ThrottlePolicy { per_second: 5.0, burst: 1, on_exhausted: OnExhausted::Fail, ..UNLIMITED };
        let node = TestNode::start(Plan { throttle, ..Plan::with(ScriptedRuntime::new()) }).await;
        assert_eq!(node.ensure(ask("a:1", PullPolicy::Always)).await.outcome, OutcomeKind::Pulled);
        let refused = node.ensure(ask("a:2", PullPolicy::Always)).await;
        assert_eq!((refused.reason, refused.message.as_str()), (Some(Reason::ErrImagePull), "pull QPS exceeded"));
        assert_eq!(refused.next_attempt_ms, Some(10_000));
        assert_eq!(node.ensure(ask("a:2", PullPolicy::Always)).await.reason, Some(Reason::ImagePullBackOff));
    });
}

#[test]
fn unlike_kubelet_a_success_ends_the_back_off() {
    paused(async {
        let runtime = ScriptedRuntime::new();
        let success = runtimes::PulledImage { image_ref: "ref".to_owned(), ..runtimes::PulledImage::default() };
        runtime.answer_pulls("a:1", [fails("gone"), fails("gone"), Ok(success), fails("gone again")]);
        let node = TestNode::start(Plan::with(runtime)).await;
        let mut next_attempts = Vec::new();
        for seconds in [0, 10, 20, 1] {
            tokio::time::advance(Duration::from_secs(seconds)).await;
            next_attempts.push(node.ensure(ask("a:1", PullPolicy::Always)).await.next_attempt_ms);
        }
        assert_eq!(next_attempts, [Some(10_000), Some(20_000), None, Some(10_000)]);
    });
}
