//! Side-channel checks alongside a CRI runtime: they use `HEAD` alone, by the route in containerd's files.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::time::Duration;

use contract::TraceContext;
use contract::messages::throttler::RegistryLimit;
use image::Reference;
use memory_registry::{Auth, Fault, FaultAction, MadeImage, MemoryRegistry, Options, Quota, TokenAuth};
use runtimes::ImageRuntime as _;
use runtimes::cri::{CriOptions, CriRuntime};
use runtimes::keyring::{Environment, Keyring, KeyringOptions};
use runtimes::oci_layout::Timeouts;
use support::scripted_cri::{InfoAnswer, Script, ScriptedCri, VersionAnswer};
use tempfile::TempDir;

const IMAGE: &str = "registry.example/team/app:1";

/// A scripted containerd with mirrors and logins, and the mirror.
struct Node {
    mirror: MemoryRegistry,
    service: ScriptedCri,
    folder: TempDir,
}

impl Node {
    /// A node for which a memory registry is the mirror of `registry.example`.
    async fn behind(mirror: Options) -> Self {
        let mirror = MemoryRegistry::start(mirror).await.unwrap();
        mirror.add_image("team/app", "1", &MadeImage::of_layers([4_000]));
        let version = VersionAnswer::Named { name: "containerd".to_owned(), version: "1.6.20".to_owned() };
        let service = ScriptedCri::start(Script { version: vec![version], ..Script::default() });
        let folder = TempDir::with_prefix("manifest-check-").unwrap();
        let hosts = folder.path().join("certs.d/registry.example");
        std::fs::create_dir_all(&hosts).unwrap();
        std::fs::write(hosts.join("hosts.toml"), format!("server = \"{}\"\n", mirror.url())).unwrap();
        Self { mirror, service, folder }
    }

    fn runtime(&self, logins: &str) -> CriRuntime {
        let authfile = self.folder.path().join("config.json");
        std::fs::write(&authfile, logins).unwrap();
        let options = KeyringOptions { authfile: Some(authfile), environment: Environment::default(), kubelet_file: "/nonexistent".into() };
        let options = CriOptions::new(self.service.endpoint(), Keyring::new(options), clock::Clock::host());
        CriRuntime::new(CriOptions { config_path: self.folder.path().join("certs.d"), ..options }).unwrap()
    }

    /// Method and path of each request, without those to the token server.
    fn asked(&self) -> Vec<String> {
        let requests = self.mirror.requests().into_iter().filter(|request| request.path != "/token");
        requests.map(|request| format!("{} {}", request.method, request.path)).collect()
    }
}

fn trace() -> TraceContext {
    TraceContext::root(&mut clock::Random::seeded(1))
}

#[tokio::test]
async fn head_request_shows_the_limits_and_is_not_counted() {
    let node = Node::behind(Options::default()).await;
    node.mirror.faults().add(Fault::new("/manifests/", FaultAction::Quota(Quota::new(100, 21_600))));
    let runtime = node.runtime("{}");
    let reference = Reference::parse(IMAGE).unwrap();
    let route = runtime.route(&reference, None).await;
    assert_eq!(route.endpoints, [node.mirror.host()], "the budget is the mirror's");
    for _ in 0..3 {
        let probe = runtime.probe(&reference, &trace()).await.unwrap();
        assert!(probe.resolved && probe.digest.is_some(), "{probe:?}");
        assert_eq!(probe.endpoint.as_deref(), Some(node.mirror.host()));
        let limits: Vec<_> = probe.limits.iter().map(|limit: &RegistryLimit| (limit.limit, limit.remaining, limit.window_ms)).collect();
        assert_eq!(limits, [(100, 100, 21_600_000)]);
    }
    assert_eq!(node.asked(), vec!["HEAD /v2/team/app/manifests/1"; 3]);
    assert!(node.service.calls().iter().all(|call| call.method == "Status"), "the runtime is not asked for the image");
}

#[tokio::test]
async fn manifest_check_sends_the_mirrors_own_login() {
    let (user, password) = ("ann".to_owned(), "correct-horse".to_owned());
    let auth = Auth::Token(TokenAuth { user, password, identity_token: String::new(), anonymous: false, expires_in: "60".to_owned() });
    let node = Node::behind(Options { auth, ..Options::default() }).await;
    let reference = Reference::parse(IMAGE).unwrap();
    let host = node.mirror.host();
    let login = |password: &str| format!(r#"{{"auths": {{"{host}": {{"username": "ann", "password": "{password}"}}}}}}"#);
    assert!(node.runtime(&login("correct-horse")).probe(&reference, &trace()).await.unwrap().resolved);
    assert!(!node.runtime(&login("wrong-horse")).probe(&reference, &trace()).await.unwrap().resolved);
    assert!(node.asked().iter().all(|asked| asked == "HEAD /v2/team/app/manifests/1"), "{:?}", node.asked());
}

#[tokio::test]
async fn refused_head_reports_the_registrys_answer() {
    let node = Node::behind(Options::default()).await;
    let runtime = node.runtime("{}");
    let reference = Reference::parse(IMAGE).unwrap();
    node.mirror.faults().add(Fault::answer("/manifests/", 429, &[("retry-after", "20")], ""));
    let probe = runtime.probe(&reference, &trace()).await.unwrap();
    assert_eq!((probe.resolved, probe.retry_after), (false, Some(Duration::from_secs(20))));
    assert_eq!(probe.endpoint.as_deref(), Some(node.mirror.host()));
    node.mirror.faults().clear();
    node.mirror.faults().add(Fault::new("/v2/", FaultAction::Close));
    let probe = runtime.probe(&reference, &trace()).await.unwrap();
    assert_eq!((probe.resolved, probe.retry_after, probe.endpoint.as_deref()), (false, None, Some(node.mirror.host())));
}

#[tokio::test]
async fn manifest_check_uses_the_runtimes_mirrors_and_our_timeouts() {
    let node = Node::behind(Options::default()).await;
    let config = format!(r#"{{"registry": {{"configPath": "{}"}}}}"#, node.folder.path().join("certs.d").display());
    node.service.turn_to(Script {
        version: vec![VersionAnswer::Named { name: "containerd".to_owned(), version: "1.7.27".to_owned() }],
        status: vec![InfoAnswer::Info([("config".to_owned(), config)].into())],
        ..Script::default()
    });
    let nothing = KeyringOptions { authfile: None, environment: Environment::default(), kubelet_file: "/nonexistent".into() };
    let options = CriOptions::new(node.service.endpoint(), Keyring::new(nothing), clock::Clock::host());
    let timeouts = Timeouts { first_byte: Duration::from_millis(200), ..Timeouts::default() };
    let runtime = CriRuntime::new(CriOptions { config_path: "/nonexistent".into(), timeouts, ..options }).unwrap();
    let reference = Reference::parse(IMAGE).unwrap();
    let probe = runtime.probe(&reference, &trace()).await.unwrap();
    assert_eq!((probe.resolved, probe.endpoint.as_deref()), (true, Some(node.mirror.host())));
    node.mirror.faults().add(Fault::new("/manifests/", FaultAction::Hang));
    let probe = tokio::time::timeout(Duration::from_secs(5), runtime.probe(&reference, &trace())).await.expect("not the default of 10 s");
    assert!(!probe.unwrap().resolved);
}
