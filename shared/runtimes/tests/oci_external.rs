//! Nondistributable layers, for which the manifest names external addresses (`urls`).
//!
//! Checks that they are fetched from there only if the registry lacks them, without logins and headers, resumed after a broken connection,
//! and only with the right digest.

use contract::FailureClass;
use memory_registry::{Auth, BlobInfo, BodyFault, Fault, FaultAction, MemoryRegistry, Options};
use runtimes::PullFailure;

use crate::oci_support::{Node, keyring, registry};

const MEDIA_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";
const LAYER_BYTES: usize = 1_000_000;

/// A registry with an image whose layer is at an external address.
struct Published {
    registry: MemoryRegistry,
    elsewhere: MemoryRegistry,
    layer: BlobInfo,
}

fn content() -> Vec<u8> {
    (0..LAYER_BYTES).map(|place| u8::try_from(place % 251).unwrap()).collect()
}

impl Published {
    async fn new(auth: Auth) -> Self {
        let registry = MemoryRegistry::start(Options { auth, ..Options::default() }).await.unwrap();
        let elsewhere = crate::oci_support::registry().await;
        let layer = elsewhere.put_blob("files", content());
        let published = Self { registry, elsewhere, layer };
        published.publish(&[&published.address()]);
        published
    }

    fn address(&self) -> String {
        format!("{}/v2/files/blobs/{}", self.elsewhere.url(), self.layer.digest)
    }

    fn publish(&self, urls: &[&str]) {
        let config = self.registry.put_blob("app", r#"{"architecture":"amd64","os":"linux"}"#);
        let manifest = serde_json::json!({
            "schemaVersion": 2,
            "mediaType": MEDIA_TYPE,
            "config": {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": config.digest, "size": config.size},
            "layers": [{
                "mediaType": "application/vnd.oci.image.layer.nondistributable.v1.tar+gzip",
                "digest": self.layer.digest,
                "size": self.layer.size,
                "urls": urls,
            }],
        });
        self.registry.put_manifest("app", Some("1"), MEDIA_TYPE, manifest.to_string());
    }

    fn image(&self) -> String {
        format!("{}/app:1", self.registry.host())
    }

    async fn fails(&self) -> PullFailure {
        let node = Node::new();
        let failure = node.pull(&self.image()).await.unwrap_err();
        assert_eq!(node.status(&self.image()).await, None);
        failure
    }

    fn asked_elsewhere(&self) -> usize {
        self.elsewhere.requests().len()
    }
}

#[tokio::test]
async fn missing_layer_is_fetched_from_an_external_address_without_a_login() {
    let published = Published::new(Auth::Basic { user: "ann".to_owned(), password: "correct-horse".to_owned() }).await;
    published.publish(&["ftp://files.example/layer", &published.address().replace("http://", "http://eve:s3cret@")]);
    let login = r#"{"username": "ann", "password": "correct-horse"}"#;
    let logins = format!(r#"{{"auths": {{"{}": {login}, "{}": {login}}}}}"#, published.registry.host(), published.elsewhere.host());
    let node = Node::with(|options| options.keyring = keyring(options.store.parent().unwrap(), Some(&logins)));
    node.pull(&published.image()).await.unwrap();
    let stored = std::fs::read(node.store().join("blobs/sha256").join(published.layer.digest.strip_prefix("sha256:").unwrap())).unwrap();
    assert_eq!(stored, content());
    assert!(node.status(&published.image()).await.is_some());
    let requests = published.elsewhere.requests();
    assert_eq!(requests.len(), 1);
    assert_eq!((&requests[0].authorization, requests[0].headers.get("traceparent")), (&None, None));
}

#[tokio::test]
async fn layer_of_the_registry_is_not_fetched_externally() {
    let published = Published::new(Auth::None).await;
    published.registry.put_blob("app", content());
    Node::new().pull(&published.image()).await.unwrap();
    assert_eq!(published.asked_elsewhere(), 0);
}

#[tokio::test]
async fn registry_failure_does_not_lead_to_an_external_fetch() {
    let published = Published::new(Auth::None).await;
    published.registry.faults().add(Fault::answer(&published.layer.digest, 503, &[], ""));
    assert_eq!(published.fails().await.class, FailureClass::RegistryUnavailable);
    assert_eq!(published.asked_elsewhere(), 0);
}

#[tokio::test]
async fn next_external_address_is_asked_after_a_failure() {
    let published = Published::new(Auth::None).await;
    let missing = registry().await;
    published.publish(&[&format!("{}/layer", missing.url()), &published.address()]);
    Node::new().pull(&published.image()).await.unwrap();
    assert_eq!(missing.requests().len(), 1);
}

#[tokio::test]
async fn broken_external_connection_is_resumed() {
    let published = Published::new(Auth::None).await;
    published.elsewhere.faults().add(Fault::body("/files/", BodyFault::CutAfter(600_000)).times(1));
    Node::new().pull(&published.image()).await.unwrap();
    let ranges: Vec<_> = published.elsewhere.requests().iter().map(|request| request.headers.get("range").cloned()).collect();
    assert!(ranges[0].is_none() && ranges[1].as_ref().is_some_and(|range| range.starts_with("bytes=")), "{ranges:?}");
}

#[tokio::test]
async fn external_failure_is_reported_and_is_no_limit_of_the_registry() {
    let published = Published::new(Auth::None).await;
    let quota = [("ratelimit-limit", "100;w=21600"), ("ratelimit-remaining", "0;w=21600"), ("retry-after", "3000")];
    let secret = r#"{"errors": [{"code": "X", "message": "secret of another service"}]}"#;
    for (fault, class) in [
        (Fault::answer("/files/", 404, &[], ""), FailureClass::NotFound),
        (Fault::answer("/files/", 403, &[], secret), FailureClass::Unknown),
        (Fault::answer("/files/", 429, &quota, ""), FailureClass::RegistryUnavailable),
        (Fault::answer("/files/", 503, &[], ""), FailureClass::RegistryUnavailable),
        (Fault::new("/files/", FaultAction::Close), FailureClass::RegistryUnavailable),
        (Fault::body("/files/", BodyFault::CorruptAt(10)), FailureClass::ContentInvalid),
    ] {
        published.elsewhere.faults().clear();
        published.elsewhere.faults().add(fault);
        let failure = published.fails().await;
        assert_eq!(failure.class, class, "{failure}");
        assert_eq!(failure.endpoint.as_deref(), Some(published.elsewhere.host()), "{failure}");
        assert!(failure.text.contains("BLOB_UNKNOWN"), "the registry's answer: {failure}");
        assert_eq!((failure.retry_after, failure.limits.len(), failure.authoritative), (None, 0, false), "{failure}");
        assert!(!failure.text.contains("secret"), "{failure}");
    }
}
