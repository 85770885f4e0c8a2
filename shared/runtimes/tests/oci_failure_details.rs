//! Details in the embedded runtime's answers: whether a failure is authoritative, the registry's limits, and `Retry-After`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::time::Duration;

use super::oci_support::{LIMIT, Node, keyring, registry, request};
use contract::FailureClass::{self, ContentInvalid, Denied, NotFound, RateLimited, RegistryUnavailable, Unknown};
use contract::messages::throttler::RegistryLimit;
use image::Reference;
use memory_registry::{Auth, BodyFault, Fault, FaultAction, MadeImage, MemoryRegistry, Options, TokenAuth};
use runtimes::{ImageRuntime, LookFor, Looked, Probe, Progress};

const REGISTRY: (&str, &str) = ("docker-distribution-api-version", "registry/2.0");
const PAGE: &str = "<html><body>The service is down</body></html>";
const MANIFEST: &str = "/manifests/";

async fn filled() -> MemoryRegistry {
    let registry = registry().await;
    registry.add_image("demo/app", "1", &MadeImage::of_layers([50_000]));
    registry
}

fn image(registry: &MemoryRegistry) -> String {
    format!("{}/demo/app:1", registry.host())
}

fn hub_headers(remaining: &str) -> Vec<(String, String)> {
    let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    vec![header("ratelimit-limit", "100;w=21600"), header("ratelimit-remaining", remaining), header("docker-ratelimit-source", "192.0.2.7")]
}

fn hub_limit(remaining: u64) -> RegistryLimit {
    RegistryLimit { source: Some("192.0.2.7".to_owned()), limit: 100, remaining, window_ms: 21_600_000, reset_ms: None }
}

#[tokio::test]
async fn registrys_own_answer_is_distinguished_from_a_proxys() {
    let json = |code: &str| format!(r#"{{"errors":[{{"code":"{code}","message":"no"}}]}}"#);
    for (status, headers, body, class, authoritative) in [
        (404, &[][..], json("MANIFEST_UNKNOWN"), NotFound, true),
        (404, &[REGISTRY], String::new(), NotFound, true),
        (404, &[], PAGE.to_owned(), Unknown, false),
        (404, &[REGISTRY], PAGE.to_owned(), Unknown, false),
        (404, &[], String::new(), Unknown, false),
        (403, &[], json("DENIED"), Denied, true),
        (429, &[], String::new(), RateLimited, true),
        (429, &[], PAGE.to_owned(), RateLimited, true),
        (500, &[], json("UNKNOWN"), RegistryUnavailable, true),
        (503, &[REGISTRY], String::new(), RegistryUnavailable, true),
        (503, &[("retry-after", "9")], String::new(), RegistryUnavailable, true),
        (503, &[], String::new(), RegistryUnavailable, false),
        (502, &[], PAGE.to_owned(), RegistryUnavailable, false),
        (502, &[REGISTRY], PAGE.to_owned(), RegistryUnavailable, false),
    ] {
        let registry = filled().await;
        registry.faults().add(Fault::answer(MANIFEST, status, headers, &body));
        let failure = Node::new().pull(&image(&registry)).await.unwrap_err();
        let place = format!("{status} {headers:?} {body}: {failure:?}");
        assert_eq!((failure.class, failure.authoritative), (class, authoritative), "{place}");
        assert_eq!(failure.endpoint.as_deref(), Some(registry.host()), "{place}");
        assert!(!failure.no_such_platform, "{place}");
    }
}

#[tokio::test]
async fn network_failure_is_not_authoritative() {
    for (fault, class) in [
        (Fault::new(MANIFEST, FaultAction::Close), RegistryUnavailable),
        (Fault::body(MANIFEST, BodyFault::CorruptAt(40)), ContentInvalid),
        (Fault::body("/blobs/", BodyFault::CorruptAt(7)), ContentInvalid),
    ] {
        let registry = filled().await;
        registry.faults().add(fault.clone());
        let failure = Node::new().pull(&image(&registry)).await.unwrap_err();
        assert_eq!((failure.class, failure.authoritative), (class, false), "{fault:?}");
    }
}

#[tokio::test]
async fn refusal_by_the_token_server_counts_as_the_registrys() {
    let (user, password) = ("u".to_owned(), "right".to_owned());
    let auth = Auth::Token(TokenAuth { user, password, identity_token: String::new(), anonymous: false, expires_in: "60".to_owned() });
    let registry = MemoryRegistry::start(Options { auth, ..Options::default() }).await.unwrap();
    let logins = format!(r#"{{"auths":{{"{}":{{"username":"u","password":"wrong"}}}}}}"#, registry.host());
    let node = Node::with(|options| options.keyring = keyring(options.store.parent().unwrap(), Some(&logins)));
    let failure = node.pull(&image(&registry)).await.unwrap_err();
    assert_eq!((failure.class, failure.authoritative), (Denied, true), "{failure}");
}

#[tokio::test]
async fn missing_platform_is_distinguished_from_broken_content() {
    let registry = registry().await;
    registry.add_image("demo/app", "1", &MadeImage::of_layers([5_000]).for_platforms(["linux/s390x"]));
    registry.add_image("demo/single", "1", &MadeImage::of_layers([5_000]));
    let node = Node::new();
    for (name, platform) in [("app", None), ("single", Some("linux/s390x"))] {
        let failure = node.pull_for(&format!("{}/demo/{name}:1", registry.host()), platform).await.unwrap_err();
        let reported = (failure.class, failure.no_such_platform, failure.authoritative);
        assert_eq!(reported, (ContentInvalid, true, true), "{name}: {failure}");
    }
}

#[tokio::test]
async fn limits_are_reported_with_success_and_failure() {
    let registry = filled().await;
    registry.faults().add(Fault::new(MANIFEST, FaultAction::Headers(hub_headers("76;w=21600"))).times(1));
    let headers = hub_headers("0;w=21600");
    let borrowed: Vec<_> = headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    registry.faults().add(Fault::answer(MANIFEST, 429, &borrowed, ""));
    let node = Node::new();
    assert_eq!(node.pull(&image(&registry)).await.unwrap().limits, [hub_limit(76)]);
    let failure = node.pull(&image(&registry)).await.unwrap_err();
    assert_eq!((failure.class, failure.limits), (RateLimited, vec![hub_limit(0)]));
}

#[tokio::test]
async fn retry_after_is_read_in_both_forms_and_bounded() {
    let until_never = "Fri, 31 Dec 9999 23:59:59 GMT";
    for (value, expected) in [("20", 20), ("864000", 3_600), (until_never, 3_600), ("Sun, 06 Nov 1994 08:49:37 GMT", 0)] {
        let registry = filled().await;
        registry.faults().add(Fault::answer(MANIFEST, 429, &[("retry-after", value)], ""));
        let failure = Node::new().pull(&image(&registry)).await.unwrap_err();
        assert_eq!((failure.class, failure.retry_after), (RateLimited, Some(Duration::from_secs(expected))), "{value}");
        let shown = if expected > 0 { format!(", Retry-After {expected}s") } else { String::new() };
        assert!(failure.text.contains(&format!(" for manifest 1{shown}; ")), "{value}: {failure}");
    }
}

#[tokio::test]
async fn overloaded_blob_host_is_named_as_the_endpoint() {
    let (registry, blobs) = (filled().await, filled().await);
    blobs.faults().add(Fault::answer("/", 503, &[("retry-after", "5")], ""));
    let location = format!("{}/elsewhere", blobs.url());
    registry.faults().add(Fault::answer("/blobs/", 307, &[("location", &location)], ""));
    let failure = Node::new().pull(&image(&registry)).await.unwrap_err();
    let reported = (failure.class, failure.endpoint.as_deref(), failure.retry_after);
    assert_eq!(reported, (FailureClass::RegistryUnavailable, Some(blobs.host()), Some(Duration::from_secs(5))), "{failure}");
}

#[tokio::test]
async fn waiter_for_the_manifest_is_woken_before_the_layers_arrive() {
    let registry = filled().await;
    registry.faults().add(Fault::new("/blobs/", FaultAction::Hang));
    let (node, progress) = (Node::new(), Progress::new());
    let image = image(&registry);
    let pull = node.runtime.pull(request(&image, None), progress.clone());
    tokio::select! {
        ended = pull => panic!("the layers hang: {ended:?}"),
        () = progress.when_resolved() => {}
        () = tokio::time::sleep(LIMIT) => panic!("nobody was woken"),
    }
}

#[tokio::test]
async fn limits_and_sizes_are_known_before_the_layers_arrive() {
    let registry = registry().await;
    registry.add_image("demo/app", "1", &MadeImage::of_layers([50_000, 70_000]));
    registry.add_image("demo/base", "1", &MadeImage::of_layers([50_000]));
    let node = Node::new();
    node.pull(&format!("{}/demo/base:1", registry.host())).await.unwrap();
    registry.faults().add(Fault::new(MANIFEST, FaultAction::Headers(hub_headers("76;w=21600"))));
    registry.faults().add(Fault::new("/blobs/", FaultAction::Hang));
    let (image, progress) = (image(&registry), Progress::new());
    let pull = node.runtime.pull(request(&image, None), progress.clone());
    tokio::select! {
        ended = pull => panic!("the layers hang: {ended:?}"),
        () = progress.when_sized() => {
            let (done, total) = progress.snapshot().bytes();
            assert!(done >= 50_000 && total >= 120_000, "{done} of {total}");
            assert!(progress.free_bytes().is_some_and(|free| free > 0));
        }
        () = tokio::time::sleep(LIMIT) => panic!("nobody was woken"),
    }
    assert_eq!(progress.limits(), Some(vec![hub_limit(76)]));
}

#[tokio::test]
async fn free_bytes_of_the_store_are_reported() {
    let free = Node::new().runtime.free_bytes().await.expect("the store is there");
    assert!(free > 0);
}

#[tokio::test]
async fn one_look_answers_what_three_questions_would_and_looks_no_further_if_the_image_is_there() {
    let (registry, node) = (filled().await, Node::new());
    let (image, all) = (image(&registry), LookFor { presence: true, route: true, free_bytes: true });
    let reference = Reference::parse(&image).unwrap();
    let absent = node.runtime.look(&reference, None, all).await;
    assert_eq!((absent.found, absent.route), (Ok(None), Some(node.runtime.route(&reference, None).await)));
    assert!(absent.free_bytes.is_some_and(|free| free > 0));
    node.pull(&image).await.unwrap();
    let there = node.runtime.look(&reference, None, all).await;
    assert_eq!(there, Looked { found: node.runtime.image_status(&reference, None).await, route: None, free_bytes: None });
    assert!(there.found.is_ok_and(|found| found.is_some()));
    let unasked = node.runtime.look(&reference, None, LookFor { presence: false, ..all }).await;
    assert!(unasked.found == Ok(None) && unasked.route.is_some() && unasked.free_bytes.is_some());
}

/// A probe must be a HEAD, because Docker Hub does not count those.
#[tokio::test]
async fn probe_makes_one_head_request_and_reports_the_limits() {
    let registry = registry().await;
    let added = registry.add_image("demo/app", "1", &MadeImage::of_layers([50_000]));
    registry.faults().add(Fault::new(MANIFEST, FaultAction::Headers(hub_headers("76;w=21600"))).times(1));
    registry.faults().add(Fault::answer(MANIFEST, 429, &[("retry-after", "20")], ""));
    let (node, reference) = (Node::new(), Reference::parse(&image(&registry)).unwrap());
    let endpoint = Some(registry.host().to_owned());
    let found = node.runtime.probe(&reference, &request("x", None).trace).await.unwrap();
    let (digest, limits) = (Some(added.digest), vec![hub_limit(76)]);
    assert_eq!(found, Probe { resolved: true, digest, endpoint: endpoint.clone(), retry_after: None, limits });
    let refused = node.runtime.probe(&reference, &request("x", None).trace).await.unwrap();
    assert_eq!(refused, Probe { endpoint, retry_after: Some(Duration::from_secs(20)), ..Probe::default() });
    assert!(registry.requests().iter().all(|request| request.method == "HEAD"), "{:?}", registry.requests());
}

#[tokio::test]
async fn size_estimate_requests_manifests_alone() {
    let registry = registry().await;
    let list = MadeImage::of_layers([50_000, 9_000]).for_platforms(["linux/riscv64", "linux/amd64"]);
    let (added, base) =
        (registry.add_image("demo/app", "1", &list), registry.add_image("demo/base", "1", &MadeImage::of_layers([50_000, 9_000])));
    let node = Node::new();
    let estimate = node.runtime.estimate_size(&request(&image(&registry), Some("linux/riscv64"))).await.unwrap().unwrap();
    let listed = added.manifests.iter().find(|manifest| manifest.platform == "linux/riscv64").unwrap();
    assert_eq!(estimate.digest.as_str(), added.digest, "what the tag was resolved to");
    let reported: Vec<(String, u64)> = estimate.blobs.iter().map(|(digest, bytes)| (digest.to_string(), *bytes)).collect();
    assert_eq!(reported, listed.blobs().map(|blob| (blob.digest.clone(), blob.size)).collect::<Vec<_>>());
    assert_eq!(registry.counts().requests, 2, "the list and the manifest: {:?}", registry.requests());
    assert_eq!(node.runtime.missing_bytes(&estimate.blobs).await, Some(listed.size()));
    // The list's first platform has the same layers as the image without a list, but another config.
    node.pull(&image(&registry).replace("demo/app", "demo/base")).await.unwrap();
    assert_eq!(
        node.runtime.missing_bytes(&estimate.blobs).await,
        Some(listed.size() - base.manifests[0].layers.iter().map(|layer| layer.size).sum::<u64>())
    );

    let other = node.runtime.estimate_size(&request(&image(&registry), Some("linux/s390x"))).await.unwrap().unwrap_err();
    assert!(other.no_such_platform && other.text.contains("linux/riscv64"), "{other:?}");
    let missing = node.runtime.estimate_size(&request(&format!("{}/demo/app:2", registry.host()), None)).await.unwrap().unwrap_err();
    assert_eq!(missing.class, NotFound, "{missing:?}");
}
