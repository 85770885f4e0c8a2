//! Registries that fail or send false content.
//!
//! Checks for each fault its class, its text, the number of requests, that no incomplete image is visible, and that another image can be
//! pulled.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::time::Duration;

use super::oci_support::{Node, assert_complete, registry};
use contract::FailureClass::{self, ContentInvalid, Denied, NotFound, RateLimited, RegistryUnavailable, Unknown};
use memory_registry::{BodyFault, Fault, FaultAction, MadeImage, MemoryRegistry};
use runtimes::PullFailure;
use serde_json::json;
use support::held_port::HeldPort;

/// The longest text of the embedded runtime, in bytes.
const TEXT_MAX_BYTES: usize = 1_500;
const REGISTRY: (&str, &str) = ("docker-distribution-api-version", "registry/2.0");

fn impatient() -> Node {
    Node::with(|options| {
        options.timeouts.first_byte = Duration::from_millis(400);
        options.timeouts.no_progress = Duration::from_millis(400);
    })
}

/// A registry with a good image `good/app:1`, and `bad/app:1` of other content.
async fn filled() -> MemoryRegistry {
    let registry = registry().await;
    registry.add_image("good/app", "1", &MadeImage::of_layers([30_000]));
    registry.add_image("bad/app", "1", &MadeImage::of_layers([400_000, 30_000]).seeded(2));
    registry
}

/// Pulls the bad image, and checks the invariants after a failure.
async fn failure_of(registry: &MemoryRegistry, node: &Node) -> PullFailure {
    let image = format!("{}/bad/app:1", registry.host());
    let failure = node.pull(&image).await.expect_err("the pull fails");
    assert!(failure.text.len() < TEXT_MAX_BYTES, "{}", failure.text.len());
    assert!(!failure.text.contains('<') && !failure.text.contains("X-Secret"), "{failure}");
    assert!(!failure.text.contains(char::is_control), "{failure:?}");
    assert_eq!(failure.text.starts_with("RegistryUnavailable: "), failure.class == RegistryUnavailable, "{failure}");
    assert_eq!(node.status(&image).await, None);
    let index = std::fs::read_to_string(node.store().join("index.json")).unwrap_or_default();
    assert!(!index.contains("bad/app"), "{index}");
    for blob in node.blobs() {
        use sha2::{Digest, Sha256};
        let content = std::fs::read(node.store().join("blobs/sha256").join(&blob)).unwrap();
        assert_eq!(image::Digest::from_sha256(Sha256::digest(content).into()).hex(), blob);
    }
    let good = node.pull(&format!("{}/good/app:1", registry.host())).await;
    assert!(good.is_ok(), "another image is unharmed: {good:?}");
    failure
}

/// A fault, the expected class and words, and the most failing requests at the registry.
struct Case {
    name: &'static str,
    fault: Fault,
    class: FailureClass,
    expected: &'static str,
    failing_max: u64,
}

fn case(name: &'static str, fault: Fault, class: FailureClass, expected: &'static str, failing_max: u64) -> Case {
    Case { name, fault, class, expected, failing_max }
}

const MANIFEST: &str = "/bad/app/manifests/";
const BLOB: &str = "/bad/app/blobs/";

fn answers() -> Vec<Case> {
    let json = |code: &str| format!(r#"{{"errors":[{{"code":"{code}","message":"no, see https://help.example/x?X-Secret=1"}}]}}"#);
    let page = "<html><body><h1>Welcome to the hotel</h1></body></html>";
    let answer = |status: u16, headers: &[(&str, &str)], body: &str| Fault::answer(MANIFEST, status, headers, body);
    vec![
        case("unknown tag", answer(404, &[], &json("MANIFEST_UNKNOWN")), NotFound, "404 Not Found (MANIFEST_UNKNOWN: no, see", 1),
        case("unknown name", answer(404, &[], &json("NAME_UNKNOWN")), NotFound, "check the image's name and tag", 1),
        case("bare registry 404", answer(404, &[REGISTRY], ""), NotFound, "404 Not Found for manifest 1", 1),
        case("404 of a proxy", answer(404, &[], page), Unknown, "web page", 1),
        case("denied", answer(403, &[], &json("DENIED")), Denied, "403 Forbidden (DENIED", 1),
        case("403 of a proxy", answer(403, &[("content-type", "text/html")], page), Unknown, "web page", 1),
        case("too many", answer(429, &[("retry-after", "77")], &json("TOOMANYREQUESTS")), RateLimited, ", Retry-After 77s; ", 1),
        case("too many, bare", answer(429, &[], ""), RateLimited, "429 Too Many Requests", 1),
        case("server error", answer(500, &[], &json("UNKNOWN")), RegistryUnavailable, "500 Internal Server Error (UNKNOWN", 1),
        case("503 of a proxy", answer(503, &[], page), RegistryUnavailable, "503 Service Unavailable", 1),
        case("page instead of a manifest", answer(200, &[("content-type", "text/html")], page), Unknown, "web page", 0),
        case("page with the content type of JSON", answer(200, &[("content-type", "application/json")], page), Unknown, "web page", 0),
        case("no JSON", answer(200, &[], "certainly"), ContentInvalid, "cannot be read", 0),
        case("empty", answer(200, &[], ""), ContentInvalid, "cannot be read", 0),
        case(
            "media type with the codes of a terminal",
            answer(200, &[("content-type", "application/vnd.oci.image.manifest.v1+json")], r#"{"mediaType":"\u001b[2Jx"}"#),
            ContentInvalid,
            "states that it is [2Jx",
            0,
        ),
        case("schema 1", answer(200, &[], r#"{"schemaVersion":1}"#), ContentInvalid, "schema 1", 0),
        case("no range was asked for", answer(416, &[], ""), Unknown, "416 Range Not Satisfiable for manifest 1", 1),
        case("teapot", answer(418, &[], ""), Unknown, "418", 1),
        case("error without end", answer(404, &[], &"x".repeat(100_000)), Unknown, "404", 1),
        case(
            "long message",
            answer(403, &[], &format!(r#"{{"errors":[{{"code":"DENIED","message":"{}"}}]}}"#, "y".repeat(9_000))),
            Denied,
            "yyy",
            1,
        ),
        case("redirect to itself", answer(307, &[("location", "http://{host}/v2/bad/app/manifests/1")], ""), Unknown, "circle", 0),
        case("redirect to nowhere", answer(302, &[], ""), Unknown, "redirects to nowhere", 0),
        case("redirect to a file", answer(302, &[("location", "file:///etc/passwd")], ""), Unknown, "redirects to nowhere", 0),
    ]
}

fn connections() -> Vec<Case> {
    let header = |name: &str, value: &str| Fault::new(MANIFEST, FaultAction::Header { name: name.to_owned(), value: value.to_owned() });
    vec![
        case("no answer", Fault::new(MANIFEST, FaultAction::Hang), RegistryUnavailable, "no answer within 400ms", 1),
        case(
            "headers of megabytes",
            header("ratelimit-limit", &"9".repeat(2 << 20)),
            Unknown,
            "more headers than are read: 100, or 400 KiB",
            0,
        ),
        case("closed", Fault::new(MANIFEST, FaultAction::Close), RegistryUnavailable, "connection broke before an answer", 1),
        case("manifest cut", Fault::body(MANIFEST, BodyFault::CutAfter(20)), RegistryUnavailable, "broke after", 0),
        case("manifest stalls", Fault::body(MANIFEST, BodyFault::StallAfter(20)), RegistryUnavailable, "no data for 400ms", 0),
        case("blob without answer", Fault::new(BLOB, FaultAction::Hang), RegistryUnavailable, "no answer within 400ms", 3),
        case("blob closed", Fault::new(BLOB, FaultAction::Close), RegistryUnavailable, "broke before an answer", 3),
        case("blob never moves", Fault::body(BLOB, BodyFault::StallAfter(0)), RegistryUnavailable, "no data for", 0),
    ]
}

fn lies() -> Vec<Case> {
    let header =
        |value: &str| Fault::new(MANIFEST, FaultAction::Header { name: "docker-content-digest".to_owned(), value: value.to_owned() });
    vec![
        case("short manifest", Fault::body(MANIFEST, BodyFault::ShortBy(9)), ContentInvalid, "another digest|not the sha256", 0),
        case("corrupt manifest", Fault::body(MANIFEST, BodyFault::CorruptAt(40)), ContentInvalid, "not the sha256", 0),
        case("endless manifest", Fault::body(MANIFEST, BodyFault::Endless), ContentInvalid, "longer than 4 MiB", 0),
        case("foreign digest header", header(&format!("sha256:{}", "0".repeat(64))), ContentInvalid, "not the sha256:000", 0),
        case("corrupt blob", Fault::body(BLOB, BodyFault::CorruptAt(7)), ContentInvalid, "another digest", 0),
        case("short blob", Fault::body(BLOB, BodyFault::ShortBy(7)), ContentInvalid, "is announced with", 0),
        case("endless blob", Fault::body(BLOB, BodyFault::Endless), ContentInvalid, "is longer than", 0),
        case("page instead of a blob", Fault::answer(BLOB, 200, &[("content-type", "text/html")], "<html>"), Unknown, "web page", 0),
        case("blob not there", Fault::answer(BLOB, 404, &[], r#"{"errors":[{"code":"BLOB_UNKNOWN"}]}"#), NotFound, "BLOB_UNKNOWN", 3),
        case("unasked part", Fault::answer(BLOB, 206, &[("content-range", "bytes 5-9/10")], "12345"), ContentInvalid, "another part", 0),
        case("no range was asked for", Fault::answer(BLOB, 416, &[], ""), Unknown, "416 Range Not Satisfiable for blob", 3),
    ]
}

#[tokio::test]
async fn every_fault_is_reported_and_harms_no_other_image() {
    for case in answers().into_iter().chain(connections()).chain(lies()) {
        let registry = filled().await;
        registry.faults().add(case.fault);
        let failure = failure_of(&registry, &impatient()).await;
        assert_eq!(failure.class, case.class, "{}: {failure}", case.name);
        assert!(case.expected.split('|').any(|part| failure.text.contains(part)), "{}: {failure}", case.name);
        assert_eq!(failure.endpoint.as_deref(), Some(registry.host()), "{}", case.name);
        let failing = registry.counts().failing;
        assert!(failing <= case.failing_max, "{}: {failing} failing requests", case.name);
    }
}

#[tokio::test]
async fn retry_after_is_passed_on() {
    let registry = filled().await;
    registry.faults().add(Fault::answer(MANIFEST, 503, &[("retry-after", "77")], ""));
    let failure = failure_of(&registry, &impatient()).await;
    assert_eq!((failure.class, failure.retry_after), (RegistryUnavailable, Some(Duration::from_secs(77))));
}

#[tokio::test]
async fn chain_of_redirects_is_bounded() {
    let registry = filled().await;
    for hop in 0..10 {
        let location = format!("/v2/bad/app/manifests/hop{}", hop + 1);
        let from = if hop == 0 { "/bad/app/manifests/1".to_owned() } else { format!("/hop{hop}") };
        registry.faults().add(Fault::answer(&from, 302, &[("location", &location)], ""));
    }
    let failure = failure_of(&registry, &impatient()).await;
    assert!(failure.text.contains("more than 5 redirects"), "{failure}");
    assert!(registry.requests().iter().filter(|request| request.path.contains("/bad/")).count() <= 6);
}

#[tokio::test]
async fn false_manifests_are_refused() {
    let oci = "application/vnd.oci.image.manifest.v1+json";
    let blob = |digest: String, size: i64| json!({"mediaType": "application/octet-stream", "digest": digest, "size": size});
    let digest = |letter: &str| format!("sha256:{}", letter.repeat(64));
    let image = |layers: Vec<serde_json::Value>| json!({"schemaVersion": 2, "config": blob(digest("a"), 3), "layers": layers}).to_string();
    let many = (0..2_000).map(|_| blob(digest("b"), 1)).collect();
    for (name, content, expected) in [
        ("64 MB", format!("{}{}", image(vec![]), " ".repeat(64 << 20)), "longer than 4 MiB"),
        ("path as digest", image(vec![blob("sha256:../../../../etc/passwd".to_owned(), 3)]), "cannot be read"),
        ("digest too short", image(vec![blob("sha256:abc".to_owned(), 3)]), "cannot be read"),
        ("negative size", image(vec![blob(digest("b"), -3)]), "cannot be read"),
        ("2,000 layers", image(many), "names 2000 layers"),
        ("no config", json!({"schemaVersion": 2, "layers": []}).to_string(), "names no config"),
    ] {
        let registry = filled().await;
        registry.put_manifest("bad/app", Some("1"), oci, content);
        let failure = failure_of(&registry, &impatient()).await;
        assert_eq!(failure.class, ContentInvalid, "{name}");
        assert!(failure.text.contains(expected), "{name}: {failure}");
    }
}

#[tokio::test]
async fn wrong_blob_size_is_refused() {
    let registry = filled().await;
    let config = registry.put_blob("bad/app", "{}");
    for size in [1_u64, 3, 1 << 62] {
        let content = json!({"schemaVersion": 2, "config": {"digest": config.digest, "size": size}, "layers": []}).to_string();
        registry.put_manifest("bad/app", Some("1"), "application/vnd.oci.image.manifest.v1+json", content);
        let failure = failure_of(&registry, &impatient()).await;
        assert_eq!(failure.class, ContentInvalid, "{size}");
        assert!(failure.text.contains("is announced with 2 bytes"), "{failure}");
    }
}

#[tokio::test]
async fn list_without_the_platform_is_reported() {
    let registry = filled().await;
    registry.add_image("bad/app", "1", &MadeImage::of_layers([1_000]).for_platforms(["linux/s390x", "windows/amd64"]));
    let failure = failure_of(&registry, &impatient()).await;
    assert_eq!(failure.class, ContentInvalid);
    assert!(
        failure.text.contains("no match for platform linux/") && failure.text.contains("it has linux/s390x, windows/amd64"),
        "{failure}"
    );
    assert_eq!(registry.counts().failing, 0);
}

#[tokio::test]
async fn single_image_of_another_platform_is_refused_if_one_is_named() {
    let registry = registry().await;
    registry.add_image("app", "1", &MadeImage::of_layers([1_000]));
    let image = format!("{}/app:1", registry.host());
    let failure = impatient().pull_for(&image, Some("linux/s390x")).await.unwrap_err();
    assert_eq!(failure.class, ContentInvalid);
    assert!(failure.text.contains("the image is for linux/"), "{failure}");
    assert_eq!(registry.counts().requests, 2, "manifest and config");
}

#[tokio::test]
async fn lists_of_lists_of_lists_are_refused() {
    let registry = filled().await;
    let media_type = "application/vnd.oci.image.index.v1+json";
    let platform = json!({"os": "linux", "architecture": image::Platform::host().architecture()});
    let mut below = registry.put_manifest("bad/app", None, media_type, json!({"schemaVersion": 2, "manifests": []}).to_string());
    for _ in 0..5 {
        let content =
            json!({"schemaVersion": 2, "manifests": [{"mediaType": media_type, "digest": below, "size": 1, "platform": platform}]})
                .to_string();
        below = registry.put_manifest("bad/app", Some("1"), media_type, content);
    }
    let failure = failure_of(&registry, &impatient()).await;
    assert_eq!(failure.class, ContentInvalid);
}

#[tokio::test]
async fn content_is_checked_against_the_requested_digest() {
    let registry = filled().await;
    let other = format!("sha256:{}", "1".repeat(64));
    registry.faults().add(Fault::answer("/bad/app/manifests/sha256", 200, &[], r#"{"schemaVersion":2}"#));
    let failure = impatient().pull(&format!("{}/bad/app@{other}", registry.host())).await.unwrap_err();
    assert_eq!(failure.class, ContentInvalid);
    assert!(failure.text.contains("another digest"), "{failure}");
}

#[tokio::test]
async fn missing_registry_is_reported() {
    let port = HeldPort::any();
    let address = port.address();
    let refused = "connection refused; check that the registry is up";
    for (image, expected) in [(format!("{address}/app:1"), refused), ("registry.invalid/app:1".to_owned(), "check the registry's name")] {
        let failure = impatient().pull(&image).await.unwrap_err();
        assert_eq!(failure.class, RegistryUnavailable, "{failure}");
        assert!(failure.text.starts_with("RegistryUnavailable: ") && failure.text.contains(expected), "{failure}");
    }
}

#[tokio::test]
async fn repeated_pull_succeeds_and_reuses_good_blobs() {
    let registry = filled().await;
    let added = registry.add_image("bad/app", "1", &MadeImage::of_layers([900_000, 5_000, 6_000]));
    let largest = &added.manifests[0].layers[0].digest;
    registry.faults().add(Fault::body(largest, BodyFault::CorruptAt(800_000)).times(1));
    let node = impatient();
    failure_of(&registry, &node).await;
    registry.reset_counts();
    node.pull(&format!("{}/bad/app:1", registry.host())).await.unwrap();
    assert_complete(&node, &added.manifests[0]);
    assert!(registry.blobs_served().contains_key(largest));
}
