//! Explanations of pulls before they are made.
//!
//! Contract: a pull at that moment does what the explanation describes, and an explanation changes nothing.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use contract::FailureClass;
use contract::messages::pull_coordinator::{BLOBS_MOST, BlobSize, EndpointLogins, ExplainImage, Explanation, OutcomeKind, PullPolicy};
use image::{Digest, Platform};
use integration::{Plan, TestNode, ask, paused};
use runtimes::scripted::{ScriptedCall, ScriptedRuntime};
use runtimes::{ImageStatus, InspectFailure, PullFailure, SizeEstimate};

use PullPolicy::{Always, IfNotPresent, Never};

async fn node() -> (TestNode, ScriptedRuntime) {
    let runtime = ScriptedRuntime::new();
    runtime.put("there:v1", ImageStatus { image_ref: "ref".to_owned(), size_bytes: 5, ..ImageStatus::default() });
    let unclear = InspectFailure { text: "the store is closed".to_owned(), class: FailureClass::NodeLocal };
    runtime.answer_status("unclear:v1", [Err(unclear)]);
    let not_found = PullFailure { text: "gone".to_owned(), class: FailureClass::NotFound, ..PullFailure::default() };
    runtime.answer_pulls("gone:v1", [Err(not_found)]);
    (TestNode::start(Plan::with(runtime.clone())).await, runtime)
}

#[test]
fn explained_verdict_equals_the_outcome_of_a_pull() {
    let pulled = "it would be pulled";
    let present = "it is on the node: nothing would be pulled";
    let never = "it would fail with ErrImageNeverPull: it is not on the node";
    let unclear = "it would fail with ImageInspectError: the runtime cannot determine whether the image is present";
    let table = [
        ("absent:v1", Some(IfNotPresent), pulled, OutcomeKind::Pulled, ""),
        ("absent:v1", Some(Never), never, OutcomeKind::Failed, "ErrImageNeverPull"),
        ("there:v1", Some(IfNotPresent), present, OutcomeKind::Present, ""),
        ("there:v1", Some(Never), present, OutcomeKind::Present, ""),
        ("there:v1", Some(Always), pulled, OutcomeKind::Pulled, ""),
        ("there:v1", None, present, OutcomeKind::Present, ""),
        ("there", None, pulled, OutcomeKind::Pulled, ""),
        ("unclear:v1", Some(IfNotPresent), unclear, OutcomeKind::Failed, "ImageInspectError"),
        ("unclear:v1", Some(Never), unclear, OutcomeKind::Failed, "ImageInspectError"),
    ];
    for (image, policy, verdict, outcome, reason) in table {
        paused(async {
            let (node, _) = node().await;
            assert_eq!(node.explain(image, policy).await.unwrap().verdict, verdict, "{image} {policy:?}");
            let did = node.ensure(contract::messages::pull_coordinator::EnsureImage { policy, ..ask(image, Always) }).await;
            let word = did.reason.map(|reason| reason.to_string()).unwrap_or_default();
            assert_eq!((did.outcome, word.as_str()), (outcome, reason), "{image} {policy:?}");
        });
    }
}

#[test]
fn which_login_a_pull_would_show_is_explained() {
    paused(async {
        let (node, runtime) = node().await;
        let none =
            EndpointLogins { endpoint: "mirror:80".to_owned(), none_because: Some("none in a file".to_owned()), ..Default::default() };
        let some =
            EndpointLogins { endpoint: "registry:443".to_owned(), logins: vec!["login for registry".to_owned()], none_because: None };
        runtime.set_logins("absent:v1", vec![none.clone(), some.clone()]);
        assert_eq!(node.explain("absent:v1", None).await.unwrap().logins, [none, some]);
        assert_eq!(node.explain("there:v1", None).await.unwrap().logins, [], "this runtime does not report logins");
    });
}

#[test]
fn a_back_off_is_explained_with_its_cause_and_not_touched() {
    paused(async {
        let (node, _) = node().await;
        let failed = node.ensure(ask("gone:v1", Always)).await;
        let refused_before = node.backoffs().await.refused_total;
        for _ in 0..2 {
            let explanation = node.explain("gone:v1", Some(Always)).await.unwrap();
            let expected = Explanation {
                policy: "Always".to_owned(),
                present: Some(false),
                platform: Some(Platform::host().to_string()),
                next_attempt_ms: Some(10_000),
                cause: Some("ErrImagePull: gone".to_owned()),
                class: Some(FailureClass::NotFound),
                learned_ms_ago: Some(0),
                learned_trace_id: Some(failed.trace_id.clone()),
                verdict: "it would be refused with ImagePullBackOff for another 10s".to_owned(),
                ..Explanation::default()
            };
            assert_eq!(explanation, expected);
        }
        assert_eq!(node.backoffs().await.refused_total, refused_before);
        assert_eq!(node.ensure(ask("gone:v1", Always)).await.outcome, OutcomeKind::Backoff);
    });
}

#[test]
fn a_pull_under_way_is_known_by_any_spelling() {
    paused(async {
        let (node, runtime) = node().await;
        runtime.hold("app:v1");
        let pulling = node.begin(ask("app:v1", IfNotPresent));
        runtime.wait_for(&ScriptedCall::Pull("app:v1".to_owned()), 1).await;
        let explanation = node.explain("docker.io/library/app:v1", Some(IfNotPresent)).await.unwrap();
        assert!(explanation.in_flight);
        assert_eq!(explanation.verdict, "it is being pulled now: a pull would wait for that one");
        runtime.let_go("app:v1");
        pulling.await.unwrap();
        assert!(!node.explain("app:v1", Some(IfNotPresent)).await.unwrap().in_flight);
    });
}

#[test]
fn unreadable_reference_is_refused_with_kubelets_text() {
    paused(async {
        let (node, _) = node().await;
        let refusal = node.explain("NO GOOD", None).await.unwrap_err().to_string();
        assert!(refusal.contains("couldn't parse image name \"NO GOOD\""), "{refusal}");
    });
}

/// A digest of no blob in the tests.
fn digest(number: u8) -> Digest {
    Digest::parse(&format!("sha256:{number:064x}")).unwrap()
}

fn with_size_estimate(image: &str, policy: PullPolicy) -> ExplainImage {
    ExplainImage { image: image.to_owned(), policy: Some(policy), estimate_size: true, ..ExplainImage::default() }
}

#[test]
fn size_estimate_asks_the_registry_only_if_a_pull_would() {
    paused(async {
        let (node, runtime) = node().await;
        let size_estimate = || SizeEstimate { digest: digest(1), blobs: vec![(digest(2), 500), (digest(3), 30)] };
        runtime.set_size_estimate("absent:v1", Ok(size_estimate()));
        runtime.set_size_estimate("gone:v1", Err(PullFailure { text: "404".to_owned(), ..PullFailure::default() }));
        let asked = |image: &str| runtime.calls().contains(&ScriptedCall::EstimateSize(image.to_owned()));
        let never = node.explained(with_size_estimate("absent:v1", Never)).await.unwrap();
        assert_eq!((never.estimate_error.as_deref(), asked("absent:v1")), (Some("the policy is Never: no registry is asked"), false));
        let estimate = node.explained(with_size_estimate("absent:v1", IfNotPresent)).await.unwrap().size_estimate.unwrap();
        assert_eq!(estimate.blobs.iter().map(|blob| blob.bytes).collect::<Vec<_>>(), [500, 30]);
        assert_eq!(estimate.digest, Some(digest(1).to_string()));
        runtime.store_blob(digest(3));
        // A blob that is named twice is fetched once.
        let blobs = [estimate.blobs.clone(), estimate.blobs].concat();
        let lacking = ExplainImage { estimate_size: false, blobs, ..with_size_estimate("absent:v1", IfNotPresent) };
        assert_eq!(node.explained(lacking).await.unwrap().missing_bytes, Some(500));
        assert_eq!(
            node.explained(with_size_estimate("there:v1", Always)).await.unwrap().estimate_error,
            None,
            "a runtime that cannot ask gives no error"
        );

        assert_eq!(node.explained(with_size_estimate("gone:v1", Always)).await.unwrap().estimate_error.as_deref(), Some("404"));
        assert_eq!(node.backoffs().await.known, 0, "that it failed is no knowledge");
        let calls = runtime.calls().len();
        node.ensure(ask("gone:v1", Always)).await;
        let held = node.explained(with_size_estimate("gone:v1", Always)).await.unwrap().estimate_error.unwrap();
        assert_eq!(held, "its registry is not asked for another 10s, because of ErrImagePull: gone");
        assert!(!runtime.calls()[calls..].contains(&ScriptedCall::EstimateSize("gone:v1".to_owned())));
    });
}

#[test]
fn more_blobs_than_an_image_has_are_refused() {
    paused(async {
        let (node, _) = node().await;
        let blobs = vec![BlobSize { digest: digest(1).to_string(), bytes: u64::MAX }; BLOBS_MOST + 1];
        let refusal = node.explained(ExplainImage { blobs, ..with_size_estimate("absent:v1", Always) }).await.unwrap_err().to_string();
        assert!(refusal.contains("1002 blobs"), "{refusal}");
        for blobs in [vec![BlobSize { digest: "sha256:1".to_owned(), bytes: 1 }], vec![BlobSize::default()]] {
            assert!(node.explained(ExplainImage { blobs, ..with_size_estimate("absent:v1", Always) }).await.is_err());
        }
        let odd = ExplainImage { platform: Some("linux".to_owned()), ..with_size_estimate("absent:v1", Always) };
        assert!(node.explained(odd).await.unwrap_err().to_string().contains("linux"));
    });
}
