//! Kubelet's TestParallelPuller and TestSerializedPuller as data.

use std::time::Duration;

use backoff_tracker::core::BackoffPolicy;
use clock::ClockDriver;
use contract::messages::pull_coordinator::{EnsureImage, PullPolicy};
use contract::{EventReason, Reason};
use integration::{Plan, TestNode, ask, pod};
use runtimes::scripted::{ScriptedCall, ScriptedRuntime};
use runtimes::{ImageStatus, InspectFailure, PullFailure};
use throttler::core::ThrottlePolicy;

use EventReason::{BackOff, Failed, InspectFailed, Pulled, Pulling};

/// The back-off of kubelet's tests: it begins at 1 s and ends at 60 s.
const QUICK: BackoffPolicy = BackoffPolicy { initial: Duration::from_secs(1), max: Duration::from_secs(60) };
const INSPECT: &[&str] = &["ImageStatus"];
const INSPECT_AND_PULL: &[&str] = &["ImageStatus", "PullImage"];

/// The expected result of one call in kubelet's table.
#[derive(Clone, Copy)]
struct Expected {
    runtime: &'static [&'static str],
    reason: Option<Reason>,
    events: &'static [EventReason],
    message: &'static str,
}

/// One row of kubelet's table.
pub(crate) struct Row {
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
pub(crate) fn rows() -> Vec<Row> {
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

fn prepare(runtime: &ScriptedRuntime, row: &Row) {
    runtime.put("present_image:latest", ImageStatus { image_ref: "present_image".to_owned(), size_bytes: 5, ..ImageStatus::default() });
    let asked = format!("{}:latest", row.image);
    if let Some(text) = row.inspect_error {
        runtime.answer_status(&asked, [Err(InspectFailure { text: text.to_owned(), class: contract::FailureClass::Unknown })]);
    }
    if let Some(text) = row.pull_error {
        runtime.answer_pulls(&asked, [fails(text)]);
    }
}

pub(crate) fn fails<T>(text: &str) -> Result<T, PullFailure> {
    Err(PullFailure { text: text.to_owned(), ..PullFailure::default() })
}

pub(crate) fn words(calls: Vec<ScriptedCall>) -> Vec<&'static str> {
    let word = |call| match call {
        ScriptedCall::Status(_) => "ImageStatus",
        ScriptedCall::Pull(_) => "PullImage",
        ScriptedCall::GivenUp(_) => "given up",
        ScriptedCall::Probe(_) => "probe",
        ScriptedCall::EstimateSize(_) => "size estimate",
    };
    calls.into_iter().map(word).collect()
}

/// Runs one row on a node with this plan.
pub(crate) async fn run(row: &Row, plan: Plan, runtime: &ScriptedRuntime, driver: &ClockDriver) {
    let throttle = match row.bucket {
        Some((per_second, burst)) => ThrottlePolicy { per_second, burst, ..plan.throttle },
        None => plan.throttle,
    };
    let how = format!("{throttle:?}, {:?}", plan.delivery);
    prepare(runtime, row);
    let node = TestNode::start(Plan { throttle, backoff: QUICK, ..plan }).await;
    let mut seen = 0;
    for (number, expected) in row.calls.iter().enumerate() {
        let place = format!("{}, call {}, {how}", row.name, number + 1);
        driver.advance(Duration::from_secs(1));
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
