//! Kubelet's image manager tests as a table over the real actors, with a paused clock.
//!
//! Contracts: each row of kubelet's table gives the same runtime calls, reasons, messages and events, serial and parallel,
//! with local delivery and with every message over a bus. Where Fleetpull does otherwise on purpose, a test below says so by its
//! name: it waits for a token instead of failing, pulls once for many, and forgets the back-off at a success.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::time::Duration;

use actors::Delivery;
use backoff_tracker::core::BackoffPolicy;
use contract::messages::pull_coordinator::{EnsureImage, OutcomeKind, PullPolicy};
use contract::{EventReason, Reason};
use integration::{Plan, TestNode, UNLIMITED, ask, paused, pod, until};
use runtimes::scripted::{ScriptedCall, ScriptedRuntime};
use runtimes::{ImageStatus, InspectFailure, PullFailure};
use throttler::core::{OnExhausted, ThrottlePolicy};

use EventReason::{BackOff, Failed, InspectFailed, Pulled, Pulling};

const BOTH: [Delivery; 2] = [Delivery::Local, Delivery::Bus];
const SERIAL: ThrottlePolicy = ThrottlePolicy { slots: 1, ..UNLIMITED };
/// Kubelet's tests begin at 1 s and end at 60 s.
const QUICK: BackoffPolicy = BackoffPolicy { initial: Duration::from_secs(1), max: Duration::from_secs(60) };
const INSPECT: &[&str] = &["ImageStatus"];
const INSPECT_AND_PULL: &[&str] = &["ImageStatus", "PullImage"];

/// What one call of kubelet's table expects.
#[derive(Clone, Copy)]
struct Expected {
    runtime: &'static [&'static str],
    reason: Option<Reason>,
    events: &'static [EventReason],
    message: &'static str,
}

/// One row of kubelet's table.
struct Row {
    name: &'static str,
    image: &'static str,
    policy: PullPolicy,
    inspect_error: Option<&'static str>,
    pull_error: Option<&'static str>,
    bucket: Option<(f64, u32)>,
    calls: Vec<Expected>,
}

fn row(name: &'static str, image: &'static str, policy: PullPolicy, calls: Vec<Expected>) -> Row {
    Row { name, image, policy, inspect_error: None, pull_error: None, bucket: None, calls }
}

fn expected(runtime: &'static [&'static str], reason: Option<Reason>, events: &'static [EventReason], message: &'static str) -> Expected {
    Expected { runtime, reason, events, message }
}

/// Kubelet's `GetImageRef` and `GetImageSize` are both `ImageStatus`.
fn table() -> Vec<Row> {
    use PullPolicy::{Always, IfNotPresent, Never};
    const INVALID: Option<Reason> = Some(Reason::InvalidImageName);
    const HEX: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    const SIGNATURE: &str = "image pull failed for typo_image because the signature validation failed";
    const HELD: &str = "Back-off pulling image \"typo_image\": SignatureValidationFailed: image pull failed for typo_image because the signature validation failed";
    let pulled_always = expected(&["PullImage", "ImageStatus"], None, &[Pulling, Pulled], "");
    let present = expected(INSPECT, None, &[Pulled], "Container image \"present_image\" already present on machine");
    let never = expected(
        INSPECT,
        Some(Reason::ErrImageNeverPull),
        &[EventReason::ErrImageNeverPull],
        "Container image \"missing_image\" is not present with pull policy of Never",
    );
    let inspect =
        expected(INSPECT, Some(Reason::ImageInspectError), &[InspectFailed], "Failed to inspect image \"\": unknown inspectError");
    let not_found = expected(INSPECT_AND_PULL, Some(Reason::ErrImagePull), &[Pulling, Failed], "404");
    let held = expected(INSPECT, Some(Reason::ImagePullBackOff), &[BackOff], "Back-off pulling image \"typo_image\": ErrImagePull: 404");
    let exceeded = expected(&[], Some(Reason::ErrImagePull), &[Pulling, Failed], "pull QPS exceeded");
    let held_for_it = expected(
        &[],
        Some(Reason::ImagePullBackOff),
        &[BackOff],
        "Back-off pulling image \"present_image\": ErrImagePull: pull QPS exceeded",
    );
    let unsigned = expected(INSPECT_AND_PULL, Some(Reason::SignatureValidationFailed), &[Pulling, Failed], SIGNATURE);
    let held_unsigned = expected(INSPECT, Some(Reason::ImagePullBackOff), &[BackOff], HELD);
    vec![
        row(
            "image missing, pull",
            "missing_image",
            IfNotPresent,
            vec![expected(&["ImageStatus", "PullImage", "ImageStatus"], None, &[Pulling, Pulled], "")],
        ),
        row("image present, allow all, don't pull ", "present_image", IfNotPresent, vec![present; 3]),
        row("image present, pull", "present_image", Always, vec![pulled_always; 3]),
        row("image missing, never pull", "missing_image", Never, vec![never; 3]),
        Row {
            inspect_error: Some("unknown inspectError"),
            ..row("image missing, pull if not present, fail on image inspect", "missing_image", IfNotPresent, vec![inspect; 3])
        },
        Row {
            pull_error: Some("404"),
            ..row("image missing, unable to fetch", "typo_image", IfNotPresent, vec![not_found, not_found, held, not_found, held, held])
        },
        Row { bucket: Some((400.0, 600)), ..row("image present and qps>0, pull", "present_image", Always, vec![pulled_always; 3]) },
        Row {
            bucket: Some((2_000.0, 0)),
            ..row("image present and excessive qps rate, pull", "present_image", Always, vec![exceeded, exceeded, held_for_it])
        },
        row(
            "invalid image name, no pull",
            "FAILED_IMAGE",
            Always,
            vec![
                expected(
                    &[],
                    INVALID,
                    &[InspectFailed],
                    "Failed to apply default image tag \"FAILED_IMAGE\": couldn't parse image name \"FAILED_IMAGE\": invalid reference \
                     format: repository name (library/FAILED_IMAGE) must be lowercase",
                );
                3
            ],
        ),
        row(
            "invalid image name with http, no pull",
            "http://url",
            Always,
            vec![
                expected(
                    &[],
                    INVALID,
                    &[InspectFailed],
                    "Failed to apply default image tag \"http://url\": couldn't parse image name \"http://url\": invalid reference format",
                );
                3
            ],
        ),
        row(
            "invalid image name with sha256, no pull",
            HEX,
            Always,
            vec![
                expected(
                    &[],
                    INVALID,
                    &[InspectFailed],
                    "Failed to apply default image tag \"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\": couldn't parse \
                     image name \"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\": invalid repository name \
                     (ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad), cannot specify 64-byte hexadecimal strings",
                );
                3
            ],
        ),
        Row {
            pull_error: Some("SignatureValidationFailed"),
            ..row(
                "image missing, SignatureValidationFailed",
                "typo_image",
                IfNotPresent,
                vec![unsigned, unsigned, held_unsigned, unsigned, held_unsigned],
            )
        },
    ]
}

fn runtime_for(row: &Row) -> ScriptedRuntime {
    let runtime = ScriptedRuntime::new();
    runtime.put("present_image:latest", ImageStatus { image_ref: "present_image".to_owned(), size_bytes: 5, ..ImageStatus::default() });
    let asked = format!("{}:latest", row.image);
    if let Some(text) = row.inspect_error {
        runtime.answer_status(&asked, [Err(InspectFailure { text: text.to_owned(), class: contract::FailureClass::Unknown })]);
    }
    if let Some(text) = row.pull_error {
        runtime.answer_pulls(&asked, [fails(text)]);
    }
    runtime
}

fn fails<T>(text: &str) -> Result<T, PullFailure> {
    Err(PullFailure { text: text.to_owned(), ..PullFailure::default() })
}

fn words(calls: Vec<ScriptedCall>) -> Vec<&'static str> {
    let word = |call| match call {
        ScriptedCall::Status(_) => "ImageStatus",
        ScriptedCall::Pull(_) => "PullImage",
        ScriptedCall::GivenUp(_) => "given up",
    };
    calls.into_iter().map(word).collect()
}

async fn run(row: &Row, throttle: ThrottlePolicy, delivery: Delivery) {
    let throttle = match row.bucket {
        Some((per_second, burst)) => ThrottlePolicy { per_second, burst, ..throttle },
        None => throttle,
    };
    let runtime = runtime_for(row);
    let node = TestNode::start(Plan { throttle, delivery, backoff: QUICK, ..Plan::with(runtime.clone()) }).await;
    let mut seen = 0;
    for (number, expected) in row.calls.iter().enumerate() {
        let place = format!("{}, call {}, {throttle:?}, {delivery:?}", row.name, number + 1);
        tokio::time::advance(Duration::from_secs(1)).await;
        let outcome = node.ensure(EnsureImage { pod: Some(pod("bar")), ..ask(row.image, row.policy) }).await;
        assert_eq!(outcome.reason, expected.reason, "{place}");
        assert_eq!(outcome.message, expected.message, "{place}");
        assert_eq!(outcome.image_ref.is_empty(), expected.reason.is_some(), "{place}");
        assert_eq!(words(runtime.take_calls()), expected.runtime, "{place}");
        let events = node.events().await;
        let new: Vec<EventReason> = events[seen..].iter().map(|event| event.reason).collect();
        assert_eq!(new, expected.events, "{place}");
        seen = events.len();
    }
}

#[test]
fn kubelets_table_holds_serial_and_parallel_over_both_deliveries() {
    let table = table();
    assert_eq!(table.len(), 12);
    for row in &table {
        for throttle in [SERIAL, UNLIMITED] {
            for delivery in BOTH {
                paused(run(row, throttle, delivery));
            }
        }
    }
}

#[test]
fn kubelets_table_holds_when_a_pull_without_a_token_fails() {
    for row in &table() {
        paused(run(row, ThrottlePolicy { on_exhausted: OnExhausted::Fail, ..UNLIMITED }, Delivery::Local));
    }
}

/// Kubelet's TestMaxParallelImagePullsLimit. Ours pulls seven images: of one image it would pull once for all.
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

/// Kubelet's TestParallelPodPullingTimeRecorderWithErr. Ours lets the second pod ask with Always after the tag is resolved: else
/// it would share the first one's pull, and its success.
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
fn a_pull_without_a_token_fails_as_in_kubelet_when_told_so() {
    paused(async {
        let throttle = ThrottlePolicy { per_second: 5.0, burst: 1, on_exhausted: OnExhausted::Fail, ..UNLIMITED };
        let node = TestNode::start(Plan { throttle, ..Plan::with(ScriptedRuntime::new()) }).await;
        assert_eq!(node.ensure(ask("a:1", PullPolicy::Always)).await.outcome, OutcomeKind::Pulled);
        let refused = node.ensure(ask("a:2", PullPolicy::Always)).await;
        assert_eq!((refused.reason, refused.message.as_str()), (Some(Reason::ErrImagePull), "pull QPS exceeded"));
        assert_eq!(refused.next_try_ms, Some(10_000));
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
        let mut next_tries = Vec::new();
        for seconds in [0, 10, 20, 1] {
            tokio::time::advance(Duration::from_secs(seconds)).await;
            next_tries.push(node.ensure(ask("a:1", PullPolicy::Always)).await.next_try_ms);
        }
        assert_eq!(next_tries, [Some(10_000), Some(20_000), None, Some(10_000)]);
    });
}
