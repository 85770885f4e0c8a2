//! The `cri` runtime against a real containerd: pulls from a real docker-registry, with and without a login, their progress,
//! and the class of every failure that can be provoked.
#![allow(clippy::disallowed_methods, reason = "tasks of a test")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;
use std::time::Duration;

use contract::{FailureClass, TraceContext};
use image::Reference;
use memory_registry::{Auth, BodyFault, Fault, FaultAction, MadeImage, MemoryRegistry, Options, Tls, TokenAuth};
use runtimes::cri::{CriOptions, CriRuntime};
use runtimes::keyring::{Environment, Keyring, KeyringOptions};
use runtimes::{ImageRuntime, Progress, PullFailure, PullRequest, PulledImage};
use support::containerd::{self, Containerd, ContainerdConfig};
use support::docker_registry::{self, DockerRegistry};
use support::nats::Authority;
use support::requirement::met;
use tempfile::TempDir;

/// The time limit of every wait.
const LIMIT: Duration = Duration::from_secs(120);

/// A containerd, and a runtime that uses it with the logins of a file.
struct Node {
    containerd: Containerd,
    folder: TempDir,
}

impl Node {
    async fn start(config: ContainerdConfig) -> Self {
        Self { containerd: Containerd::start(config).await, folder: TempDir::with_prefix("logins-").unwrap() }
    }

    fn runtime(&self, logins: &str) -> CriRuntime {
        let file = self.folder.path().join("config.json");
        std::fs::write(&file, logins).unwrap();
        let options = KeyringOptions { authfile: Some(file), environment: Environment::default(), kubelet_file: "/nonexistent".into() };
        CriRuntime::new(CriOptions::new(self.containerd.endpoint(), Keyring::new(options), clock::Clock::host())).unwrap()
    }

    async fn pull(&self, image: &str, logins: &str) -> Result<PulledImage, PullFailure> {
        pull(&self.runtime(logins), image, &Progress::new()).await
    }
}

async fn pull(runtime: &CriRuntime, image: &str, progress: &Progress) -> Result<PulledImage, PullFailure> {
    let trace = TraceContext::root(&mut clock::Random::seeded(1));
    let request = PullRequest { reference: Reference::parse(image).unwrap(), platform: None, trace, carried: None };
    tokio::time::timeout(LIMIT, runtime.pull(request, progress.clone())).await.expect("the pull ends in time")
}

fn login(host: &str, user: &str, password: &str) -> String {
    format!(r#"{{"auths": {{"{host}": {{"username": "{user}", "password": "{password}"}}}}}}"#)
}

fn part() -> Option<()> {
    met(containerd::available().and_then(|()| docker_registry::available()))
}

#[tokio::test]
async fn real_image_is_pulled_from_a_real_registry() {
    let Some(()) = part() else { return };
    let source = MemoryRegistry::start(Options::default()).await.unwrap();
    let added = source.add_image("team/app", "1", &MadeImage::of_layers([50_000, 20_000]));
    let (open, closed) = (DockerRegistry::start(), DockerRegistry::start_with_login());
    for registry in [&open, &closed] {
        registry.copy_in(&format!("{}/team/app:1", source.host()), "team/app:1").await;
    }
    let node = Node::start(ContainerdConfig::default()).await;

    let image = format!("{}/team/app:1", open.host());
    let runtime = node.runtime("{}");
    let reference = Reference::parse(&image).unwrap();
    assert_eq!(runtime.image_status(&reference, None).await, Ok(None));
    let pulled = pull(&runtime, &image, &Progress::new()).await.unwrap();
    assert_eq!(pulled.auth, "anonymous");
    let status = runtime.image_status(&reference, None).await.unwrap().expect("it was pulled");
    assert_eq!(status.image_ref, pulled.image_ref);
    assert_eq!(status.digest.as_deref(), Some(added.digest.as_str()));
    assert!(status.size_bytes > 70_000, "{status:?}");
    let described = runtime.describe().await;
    assert_eq!((described.name.as_str(), described.problem), ("containerd", None));

    let image = format!("{}/team/app:1", closed.host());
    let refused = node.pull(&image, "{}").await.unwrap_err();
    assert_eq!((refused.class, refused.auth.as_str()), (FailureClass::Denied, "anonymous"));
    let refused = node.pull(&image, &login(closed.host(), docker_registry::USER, "wrong")).await.unwrap_err();
    let source = format!("login for {} in ", closed.host());
    assert_eq!(refused.class, FailureClass::Denied);
    assert!(refused.auth.starts_with(&source), "{}", refused.auth);
    assert!(!refused.text.contains("wrong"));
    let pulled = node.pull(&image, &login(closed.host(), docker_registry::USER, docker_registry::PASSWORD)).await.unwrap();
    assert!(pulled.auth.starts_with(&source), "{}", pulled.auth);

    for (image, class) in [
        (format!("{}/team/app:2", open.host()), FailureClass::NotFound),
        (format!("{}/x/404:429", open.host()), FailureClass::NotFound),
        (format!("{}/team/app@sha256:{}", open.host(), "4290".repeat(16)), FailureClass::NotFound),
    ] {
        let failure = node.pull(&image, "{}").await.unwrap_err();
        let expected = format!(
            "rpc error: code = NotFound desc = failed to pull and unpack image \"{image}\": failed to resolve reference \"{image}\": {image}: not found"
        );
        assert_eq!((failure.text, failure.class), (expected, class));
    }
}

#[tokio::test]
async fn manifest_check_uses_the_mirrors_of_a_real_containerd() {
    let Some(()) = part() else { return };
    let registry = MemoryRegistry::start(Options::default()).await.unwrap();
    registry.add_image("team/app", "1", &MadeImage::of_layers([2_000]));
    // Our own `config_path` is not set, so containerd's own folder counts.
    let node = Node::start(
        ContainerdConfig::default()
            .with_hosts("registry.example", &format!("[host.\"{}\"]\ncapabilities = [\"pull\", \"resolve\"]\n", registry.url())),
    )
    .await;
    let runtime = node.runtime("{}");
    let reference = Reference::parse("registry.example/team/app:1").unwrap();
    let route = runtime.route(&reference, None).await;
    assert_eq!(route.endpoints.first().map(String::as_str), Some(registry.host()), "{route:?}");
    let probe = runtime.probe(&reference, &TraceContext::root(&mut clock::Random::seeded(1))).await.unwrap();
    assert_eq!((probe.resolved, probe.endpoint.as_deref()), (true, Some(registry.host())));
    pull(&runtime, "registry.example/team/app:1", &Progress::new()).await.expect("containerd goes the same way");
}

#[tokio::test]
async fn progress_is_shown_for_each_layer() {
    let Some(()) = part() else { return };
    let registry = MemoryRegistry::start(Options::default()).await.unwrap();
    let added = registry.add_image("team/app", "1", &MadeImage::of_layers([3_000_000, 1_000_000]));
    registry.add_image("other/app", "1", &MadeImage::of_layers([2_000_000]).seeded(2));
    // Slow enough for several looks during the download.
    registry.faults().add(Fault::body("/blobs/", BodyFault::BytesPerSecond(1_000_000)));
    let node = Node::start(ContainerdConfig::default()).await;
    let runtime = node.runtime("{}");
    let (ours, theirs) = (Progress::new(), Progress::new());
    let (image, other) = (format!("{}/team/app:1", registry.host()), format!("{}/other/app:1", registry.host()));
    let seen_midway = async {
        loop {
            let snapshot = ours.snapshot();
            let (done, total) = snapshot.bytes();
            if done > 0 && done < total {
                return snapshot;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let seen_midway = tokio::time::timeout(LIMIT, seen_midway);
    let (pulled, other, midway) = tokio::join!(pull(&runtime, &image, &ours), pull(&runtime, &other, &theirs), seen_midway);
    let midway = midway.expect("a layer is seen half fetched");
    pulled.unwrap();
    other.unwrap();
    assert!(midway.resolved);
    let layers: Vec<&str> = added.manifests[0].layers.iter().map(|layer| layer.digest.as_str()).collect();
    let digests = |progress: &Progress| progress.snapshot().layers.into_iter().map(|layer| layer.digest).collect::<Vec<_>>();
    assert_eq!(digests(&ours), layers, "in the manifest's order, and none of the other image's");
    assert_eq!(digests(&theirs).len(), 1);
    let total: u64 = added.manifests[0].layers.iter().map(|layer| layer.size).sum();
    assert_eq!(ours.snapshot().bytes(), (total, total));
}

/// Faults of a registry, and the expected class.
fn faults() -> Vec<(&'static str, Fault, FailureClass)> {
    use FailureClass::{ContentInvalid, Denied, NotFound, RateLimited, RegistryUnavailable, Unknown};
    let error_answer = |path: &str, status, code: &str| {
        let body = format!(r#"{{"errors": [{{"code": "{code}", "message": "not found: 429 denied"}}]}}"#);
        Fault::answer(path, status, &[("content-type", "application/json")], &body)
    };
    vec![
        ("m401", error_answer("/m401/manifests", 401, "UNAUTHORIZED"), Denied),
        ("m403", error_answer("/m403/manifests", 403, "DENIED"), Denied),
        ("m404", error_answer("/m404/manifests", 404, "MANIFEST_UNKNOWN"), NotFound),
        ("m429", error_answer("/m429/manifests", 429, "TOOMANYREQUESTS"), RateLimited),
        ("m500", error_answer("/m500/manifests", 500, "UNKNOWN"), RegistryUnavailable),
        ("m502", Fault::answer("/m502/manifests", 502, &[("content-type", "text/html")], "<html>"), RegistryUnavailable),
        ("m503", error_answer("/m503/manifests", 503, "UNAVAILABLE"), RegistryUnavailable),
        ("mclosed", Fault::new("/mclosed/manifests", FaultAction::Close), RegistryUnavailable),
        ("mother", Fault::body("/mother/manifests", BodyFault::CorruptAt(10)), ContentInvalid),
        ("mloop", Fault::answer("/mloop/manifests", 307, &[("location", "http://{host}/v2/mloop/manifests/1?a=b")], ""), Unknown),
        ("b403", error_answer("/b403/blobs", 403, "DENIED"), Denied),
        ("b404", error_answer("/b404/blobs", 404, "BLOB_UNKNOWN"), NotFound),
        ("b429", error_answer("/b429/blobs", 429, "TOOMANYREQUESTS"), RateLimited),
        ("b500", error_answer("/b500/blobs", 500, "UNKNOWN"), RegistryUnavailable),
        ("bother", Fault::body("/bother/blobs", BodyFault::CorruptAt(10)), ContentInvalid),
        ("bshort", Fault::body("/bshort/blobs", BodyFault::ShortBy(10)), ContentInvalid),
    ]
}

#[tokio::test]
async fn registry_answers_have_their_class() {
    let Some(()) = part() else { return };
    let registry = MemoryRegistry::start(Options::default()).await.unwrap();
    registry.add_image("foreign", "1", &MadeImage::of_layers([2_000]).for_platforms(["linux/s390x"]));
    registry.put_manifest("nonsense", Some("1"), "application/vnd.oci.image.manifest.v1+json", "not JSON");
    let mut expected =
        vec![("foreign", FailureClass::ContentInvalid), ("nonsense", FailureClass::ContentInvalid), ("absent", FailureClass::NotFound)];
    for (seed, (name, fault, class)) in faults().into_iter().enumerate() {
        // Each image has other content, so that containerd has none of its blobs.
        registry.add_image(name, "1", &MadeImage::of_layers([2_000]).seeded(100 + seed as u64));
        registry.faults().add(fault);
        expected.push((name, class));
    }
    let node = Node::start(ContainerdConfig::default()).await;
    for (name, class) in expected {
        let failure = node.pull(&format!("{}/{name}:1", registry.host()), "{}").await.unwrap_err();
        assert_eq!(failure.class, class, "{name}: {}", failure.text);
        assert!(!failure.text.contains("a=b"), "queries are lost: {}", failure.text);
    }
}

#[tokio::test]
async fn token_server_failures_have_their_class() {
    let Some(()) = part() else { return };
    let node = Node::start(ContainerdConfig::default()).await;
    let auth = |anonymous| {
        let (user, password) = ("deploy".to_owned(), "open sesame".to_owned());
        Auth::Token(TokenAuth { user, password, identity_token: "refresh".to_owned(), anonymous, expires_in: "60".to_owned() })
    };
    for (anonymous, fault, class) in [
        (false, None, FailureClass::Denied),
        (true, Some(Fault::answer("/token", 429, &[], "")), FailureClass::RateLimited),
        (true, Some(Fault::answer("/token", 503, &[], "")), FailureClass::RegistryUnavailable),
        (true, Some(Fault::new("/token", FaultAction::Close)), FailureClass::RegistryUnavailable),
    ] {
        let registry = MemoryRegistry::start(Options { auth: auth(anonymous), ..Options::default() }).await.unwrap();
        registry.add_image("app", "1", &MadeImage::of_layers([2_000]));
        if let Some(fault) = fault {
            registry.faults().add(fault);
        }
        let failure = node.pull(&format!("{}/app:1", registry.host()), "{}").await.unwrap_err();
        assert_eq!(failure.class, class, "{}", failure.text);
    }
    let registry = MemoryRegistry::start(Options { auth: auth(false), ..Options::default() }).await.unwrap();
    registry.add_image("app", "1", &MadeImage::of_layers([2_000]));
    let image = format!("{}/app:1", registry.host());
    let refresh = format!(r#"{{"auths": {{"{}": {{"auth": "MDAwOg==", "identitytoken": "refresh"}}}}}}"#, registry.host());
    for (logins, kind) in [(refresh, "identity token"), (login(registry.host(), "deploy", "open sesame"), "login")] {
        let auth = node.pull(&image, &logins).await.unwrap().auth;
        assert!(auth.starts_with(&format!("{kind} for {} in ", registry.host())), "{auth}");
    }
    assert_eq!(node.pull(&image, &login(registry.host(), "deploy", "other")).await.unwrap_err().class, FailureClass::Denied);
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

#[tokio::test]
async fn connection_failures_have_their_class() {
    let Some(()) = part() else { return };
    let authority = Authority::new("test authority");
    let (certificate, key) = authority.issue("127.0.0.1");
    let tls = Tls { certificate_pem: read(&certificate), key_pem: read(&key), client_ca_pem: None };
    let plain = MemoryRegistry::start(Options::default()).await.unwrap();
    let secure = MemoryRegistry::start(Options { tls: Some(tls), ..Options::default() }).await.unwrap();
    let mirror = |url: &str| format!("[host.\"{url}\"]\ncapabilities = [\"pull\", \"resolve\"]\n");
    let config = ContainerdConfig::default()
        .with_hosts("unknown-authority.example", &mirror(&format!("https://{}", secure.host())))
        .with_hosts("plain-for-tls.example", &mirror(&format!("https://{}", plain.host())))
        .with_hosts("tls-for-plain.example", &mirror(&format!("http://{}", secure.host())))
        .with_hosts("no-authority.example", &format!("{}ca = \"/nonexistent/ca.pem\"\n", mirror("https://127.0.0.1:1")));
    let node = Node::start(config).await;
    for (image, class, part) in [
        ("unknown-authority.example/app:1", FailureClass::NodeLocal, "x509: "),
        ("plain-for-tls.example/app:1", FailureClass::NodeLocal, "http: server gave HTTP response to HTTPS client"),
        ("tls-for-plain.example/app:1", FailureClass::NodeLocal, "malformed HTTP response"),
        ("no-authority.example/app:1", FailureClass::NodeLocal, "unable to read CA cert"),
        ("localhost:1/app:1", FailureClass::RegistryUnavailable, "connect: connection refused"),
        ("registry.invalid/app:1", FailureClass::RegistryUnavailable, "dial tcp: lookup registry.invalid"),
    ] {
        let failure = node.pull(image, "{}").await.unwrap_err();
        assert!(failure.text.contains(part), "{image}: {}", failure.text);
        assert_eq!(failure.class, class, "{image}: {}", failure.text);
    }
    let refused = node.pull("localhost:1/app:1", "{}").await.unwrap_err();
    assert_eq!(refused.endpoint.as_deref(), Some("localhost:1"));
}

#[tokio::test]
async fn full_disk_is_classed_as_node_local() {
    let Some(()) = part() else { return };
    let registry = MemoryRegistry::start(Options::default()).await.unwrap();
    registry.add_image("app", "1", &MadeImage::of_layers([12_000_000]));
    let image = format!("{}/app:1", registry.host());
    // One disk is too small for the layer, the other for its unpacked files.
    for (disk, part) in [(8_000_000, "failed to copy: "), (20_000_000, "failed to extract layer ")] {
        let node = Node::start(ContainerdConfig::default().with_disk(disk)).await;
        let failure = node.pull(&image, "{}").await.unwrap_err();
        assert!(failure.text.contains(part) && failure.text.contains("no space left on device"), "{}", failure.text);
        assert_eq!(failure.class, FailureClass::NodeLocal);
    }
}

#[tokio::test]
async fn killed_containerd_is_reported_and_not_waited_for() {
    let Some(()) = part() else { return };
    let registry = MemoryRegistry::start(Options::default()).await.unwrap();
    registry.add_image("app", "1", &MadeImage::of_layers([2_000]));
    registry.faults().add(Fault::new("/blobs/", FaultAction::Hang));
    let mut node = Node::start(ContainerdConfig::default()).await;
    let (runtime, image) = (node.runtime("{}"), format!("{}/app:1", registry.host()));
    let pulling = tokio::spawn(async move {
        let failure = pull(&runtime, &image, &Progress::new()).await.unwrap_err();
        (failure, runtime.describe().await)
    });
    let hanging = async {
        while !registry.requests().iter().any(|request| request.path.contains("/blobs/")) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(LIMIT, hanging).await.expect("a blob is asked for");
    node.containerd.kill();
    let (failure, described) = pulling.await.unwrap();
    assert_eq!(failure.class, FailureClass::NodeLocal, "{}", failure.text);
    assert_eq!(failure.text, "rpc error: code = Unavailable desc = error reading from server: EOF");
    assert!(described.problem.unwrap().contains("(connection refused): start the runtime"));
}
