//! The route and the identity of a pull, as the fleet sees them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc;
use std::time::Duration;

use super::oci_support::{options, registry, request};
use futures::future::LocalBoxFuture;
use image::{Platform, Reference};
use runtimes::cri::{CriOptions, CriRuntime};
use runtimes::keyring::{Environment, FLEET_KEY_BYTES, FleetKey, Keyring, KeyringOptions};
use runtimes::oci_layout::OciLayout;
use runtimes::{ImageRuntime, Route};
use support::scripted_cri::{Failure, InfoAnswer, Script, ScriptedCri, VersionAnswer};
use tempfile::TempDir;

/// A node with the fleet's key, a login file and mirrors.
struct Node {
    folder: TempDir,
    key: FleetKey,
    /// The secret that the helper gives; the helper fails if it is empty.
    minted: &'static str,
}

impl Node {
    fn new(logins: &str) -> Self {
        let folder = TempDir::with_prefix("route-").unwrap();
        std::fs::write(folder.path().join("config.json"), logins).unwrap();
        let key = FleetKey::new();
        key.fill(&[7; FLEET_KEY_BYTES]);
        let helper_program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/helpers/docker-credential-scripted");
        symlink(helper_program, folder.path().join("docker-credential-counting")).unwrap();
        Self { folder, key, minted: "" }
    }

    fn keyring(&self) -> Keyring {
        let path = format!("{}:/usr/bin:/bin", self.folder.path().display());
        let log = self.folder.path().join("asked").display().to_string();
        let variables = [("PATH", path), ("HELPER_LOG", log), ("HELPER_SECRET", self.minted.to_owned())];
        let environment: Environment = variables.into_iter().collect();
        let authfile = Some(self.folder.path().join("config.json"));
        Keyring::new(KeyringOptions { authfile, environment, kubelet_file: "/nonexistent".into() }).shared_under(self.key.clone(), "blue")
    }

    fn runtime(&self) -> OciLayout {
        let mut options = options(self.folder.path());
        options.keyring = self.keyring();
        OciLayout::open(options).unwrap()
    }

    fn put_hosts(&self, registry: &str, hosts: &str) {
        put_hosts(&self.folder.path().join("certs.d"), registry, hosts);
    }

    async fn route(&self, image: &str) -> Route {
        self.runtime().route(&Reference::parse(image).unwrap(), None).await
    }

    fn times_asked(&self) -> usize {
        std::fs::read_to_string(self.folder.path().join("asked")).unwrap_or_default().lines().count()
    }
}

fn put_hosts(config_path: &Path, registry: &str, hosts: &str) {
    let folder = config_path.join(registry);
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("hosts.toml"), hosts).unwrap();
}

#[tokio::test]
async fn route_and_its_endpoints_are_reported() {
    let node = Node::new("{}");
    let plain = node.route("registry.example:5000/app:1").await;
    assert_eq!(plain.endpoints, ["registry.example:5000"]);
    assert_eq!((plain.scope.as_str(), plain.fingerprint.as_str()), ("anonymous", ""));
    assert_eq!(plain.platform, Platform::host().to_string());
    node.put_hosts("registry.example:5000", "[host.\"http://mirror.example\"]\n");
    let mirrored = node.route("registry.example:5000/app:1").await;
    assert_eq!(mirrored.endpoints, ["mirror.example:80", "registry.example:5000"]);
    assert!(!mirrored.mirrored, "this runtime reports which endpoint it asked");
    assert_ne!(plain.hash, mirrored.hash);
    node.put_hosts("registry.example:5000", "not toml");
    let broken = node.route("registry.example:5000/app:1").await;
    assert_eq!((broken.hash.as_str(), broken.endpoints.as_slice()), ("unknown", &["registry.example:5000".to_owned()][..]));
}

/// The questions are asked by actors, whose thread serves every pull of the node.
#[tokio::test]
async fn hosts_file_that_hangs_does_not_hold_up_the_calling_thread() {
    let node = Node::new("{}");
    node.put_hosts("registry.example", "");
    let file = node.folder.path().join("certs.d/registry.example/hosts.toml");
    std::fs::remove_file(&file).unwrap();
    // Opening a pipe waits for a writer.
    assert!(Command::new("mkfifo").arg(&file).status().unwrap().success());
    let (runtime, asked) = (node.runtime(), request("registry.example/app:1", None));
    let questions: [LocalBoxFuture<'_, ()>; 3] = [
        Box::pin(async { drop(runtime.logins(&asked.reference).await) }),
        Box::pin(async { drop(runtime.probe(&asked.reference, &asked.trace).await) }),
        Box::pin(async { drop(runtime.estimate_size(&asked).await) }),
    ];
    for question in questions {
        let (send, receive) = mpsc::channel();
        let file = file.clone();
        let writer = std::thread::spawn(move || {
            let received = receive.recv_timeout(Duration::from_secs(20));
            // An unusable file, so that no registry is asked.
            std::fs::write(file, "not toml").unwrap();
            received
        });
        let ((), _) = futures::join!(question, async { send.send(()) });
        assert_eq!(writer.join().unwrap(), Ok(()), "the thread of the test was held up");
    }
}

#[tokio::test]
async fn equal_logins_have_equal_scopes_within_a_fleet_alone() {
    let logins = |password: &str| format!(r#"{{"auths":{{"registry.example":{{"username":"deploy","password":"{password}"}}}}}}"#);
    let (one, same, rotated) = (Node::new(&logins("a")), Node::new(&logins("a")), Node::new(&logins("b")));
    let route_of = |node: &Node| {
        let node = node.runtime();
        async move { node.route(&Reference::parse("registry.example/app:1").unwrap(), None).await }
    };
    let (one, same, rotated) = (route_of(&one).await, route_of(&same).await, route_of(&rotated).await);
    assert_eq!(one, same);
    assert_eq!(one.scope, rotated.scope);
    assert_ne!(one.fingerprint, rotated.fingerprint);
    for part in ["deploy", "registry.example\"", "hunter2"] {
        assert!(!one.scope.contains(part) && !one.fingerprint.contains(part));
    }
    let stranger = Node { key: FleetKey::new(), ..Node::new(&logins("a")) };
    let alone = route_of(&stranger).await;
    assert!(alone.scope.starts_with("node-only:"), "{alone:?}");
    stranger.key.fill(&[7; FLEET_KEY_BYTES]);
    assert_eq!(route_of(&stranger).await, one, "a key that comes later counts at once");
}

#[tokio::test]
async fn helper_is_asked_once_a_minute_and_its_tokens_share_a_scope() {
    let logins = r#"{"credHelpers":{"registry.example":"counting"}}"#;
    let node = Node { minted: "minted-1", ..Node::new(logins) };
    let runtime = node.runtime();
    let reference = Reference::parse("registry.example/app:1").unwrap();
    let routes = futures::future::join_all((0..20).map(|_| runtime.route(&reference, None))).await;
    assert_eq!(node.times_asked(), 1);
    let other = Node { minted: "minted-2", ..Node::new(logins) };
    let theirs = other.route("registry.example/app:1").await;
    assert_eq!(theirs.scope, routes[0].scope);
    assert_ne!(theirs.fingerprint, routes[0].fingerprint);
}

#[tokio::test]
async fn failing_helper_makes_the_identity_node_only() {
    let node = Node::new(r#"{"credsStore":"counting"}"#);
    let runtime = node.runtime();
    let reference = Reference::parse("registry.example/app:1").unwrap();
    let (one, two) = (runtime.route(&reference, None).await, runtime.route(&reference, None).await);
    assert!(one.scope.starts_with("node-only:"), "{one:?}");
    assert_eq!((one, node.times_asked()), (two, 1));
}

#[tokio::test]
async fn route_behind_cri_comes_from_the_runtimes_files() {
    for (name, hash_known, mirrored) in [("containerd", true, true), ("cri-o", false, true)] {
        let version = VersionAnswer::Named { name: name.to_owned(), version: "1".to_owned() };
        let scripted = ScriptedCri::start(Script { version: vec![version], ..Script::default() });
        let node = Node::new("{}");
        node.put_hosts("registry.example", "[host.\"https://mirror.example\"]\n");
        let options = CriOptions::new(scripted.endpoint(), node.keyring(), clock::Clock::host());
        let cri = CriRuntime::new(CriOptions { config_path: node.folder.path().join("certs.d"), ..options }).unwrap();
        let route = cri.route(&Reference::parse("registry.example/app:1").unwrap(), None).await;
        assert_eq!((route.hash != "unknown", route.mirrored), (hash_known, mirrored), "{name}: {route:?}");
        let endpoints = if hash_known { &["mirror.example:443", "registry.example:443"][..] } else { &["registry.example:443"] };
        assert_eq!(route.endpoints, endpoints);
        let single = cri.route(&Reference::parse("other.example/app:1").unwrap(), None).await;
        assert_eq!(single.mirrored, !hash_known);
    }
}

/// k3s and RKE2 have their files elsewhere than containerd's packages.
#[tokio::test]
async fn hosts_folder_behind_containerd_is_the_one_that_it_states() {
    let node = Node::new("{}");
    node.put_hosts("registry.example", "[host.\"https://set.example\"]\n");
    let own = node.folder.path().join("k3s/registry.example");
    std::fs::create_dir_all(&own).unwrap();
    std::fs::write(own.join("hosts.toml"), "[host.\"https://own.example\"]\n").unwrap();
    let info = |registry: String| InfoAnswer::Info([("config".to_owned(), format!(r#"{{"registry": {registry}}}"#))].into());
    let folder = node.folder.path().join("k3s").display().to_string();
    let (own, set, itself) = (Some("own.example:443"), Some("set.example:443"), Some("registry.example:443"));
    for (answer, first) in [
        (info(format!(r#"{{"configPath": "{folder}"}}"#)), own),
        (info(format!(r#"{{"configPath": "/nonexistent:{folder}"}}"#)), own),
        (info(r#"{"configPath": "", "mirrors": null}"#.to_owned()), itself),
        // Mirrors in containerd's own settings cannot be read from here.
        (info(r#"{"configPath": "", "mirrors": {"registry.example": {}}}"#.to_owned()), None),
        // containerd 2 leaves out its settings of registries.
        (InfoAnswer::Info([("config".to_owned(), "{}".to_owned())].into()), set),
        (InfoAnswer::Failed(Failure::new("Unimplemented", "unknown method Status")), set),
    ] {
        let version = VersionAnswer::Named { name: "containerd".to_owned(), version: "1.7.27".to_owned() };
        let scripted = ScriptedCri::start(Script { version: vec![version], status: vec![answer.clone()], ..Script::default() });
        let options = CriOptions::new(scripted.endpoint(), node.keyring(), clock::Clock::host());
        let cri = CriRuntime::new(CriOptions { config_path: node.folder.path().join("certs.d"), ..options }).unwrap();
        let reference = Reference::parse("registry.example/app:1").unwrap();
        let route = cri.route(&reference, None).await;
        let reported = (route.hash != "unknown").then(|| route.endpoints[0].as_str());
        assert_eq!(reported, first, "{answer:?}");
        assert!(first.is_some() || route.mirrored, "a \"not found\" may be one mirror's: {route:?}");
        cri.route(&reference, None).await;
        let failed = matches!(answer, InfoAnswer::Failed(_));
        assert_eq!(scripted.calls().len(), if failed { 2 } else { 1 }, "an answer counts for a minute");
    }
}

#[tokio::test]
async fn route_makes_no_request() {
    let registry = registry().await;
    let node = Node::new("{}");
    node.route(&format!("{}/app:1", registry.host())).await;
    assert_eq!(registry.counts().connections, 0);
}
