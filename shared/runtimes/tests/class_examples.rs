//! An example of each failure class, made with docker-registry for the embedded runtime and for containerd: both must report the same class
//! for the same failure.
//!
//! The full disk is tested in `oci_store.rs` and `cri_containerd.rs`, because it needs a disk for each runtime.
#![allow(clippy::disallowed_methods, reason = "tasks of a test")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use super::oci_support::{keyring, options, registry, request};
use contract::FailureClass::{self, ContentInvalid, Denied, NodeLocal, NotFound, RegistryUnavailable};
use memory_registry::MadeImage;
use runtimes::cri::{CriOptions, CriRuntime};
use runtimes::oci_layout::OciLayout;
use runtimes::{ImageRuntime, Progress, PullFailure};
use support::containerd::{self, Containerd, ContainerdConfig};
use support::docker_registry::{self, DockerRegistry};
use support::held_port::HeldPort;
use support::nats::Authority;
use support::requirement::met;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

/// The time limit of every wait.
const LIMIT: Duration = Duration::from_secs(120);

/// The name of the registry with TLS. It is a name because containerd 1.6 uses plain HTTP for addresses of this host.
const SECURE: &str = "secure.example";

/// An image to pull, and the expected failure.
struct Example {
    name: &'static str,
    image: String,
    class: FailureClass,
    /// Whether the failure is the registry's own answer.
    authoritative: bool,
    no_such_platform: bool,
}

/// The registries of the examples.
struct Registries {
    open: DockerRegistry,
    closed: DockerRegistry,
    spoilt: OwnRegistry,
    secure: OwnRegistry,
    /// A port without a listener.
    dead: HeldPort,
}

impl Registries {
    async fn start() -> Self {
        let source = registry().await;
        source.add_image("app", "1", &MadeImage::of_layers([60_000]));
        source.add_image("foreign", "1", &MadeImage::of_layers([2_000]).for_platforms(["linux/s390x"]));
        let (open, closed) = (DockerRegistry::start(), DockerRegistry::start_with_login());
        open.copy_in(&format!("{}/app:1", source.host()), "app:1").await;
        open.copy_in(&format!("{}/foreign:1", source.host()), "foreign:1").await;
        closed.copy_in(&format!("{}/app:1", source.host()), "app:1").await;
        // Other content, so that no store has its layers already.
        let other = source.add_image("other", "1", &MadeImage::of_layers([60_000]).seeded(9));
        let spoilt = OwnRegistry::start(None).await;
        spoilt.copy_in(&format!("{}/other:1", source.host()), "other:1").await;
        spoilt.spoil(&other.manifests[0].layers[0].digest);
        let secure = OwnRegistry::start(Some(&Authority::new("test authority"))).await;
        Self { open, closed, spoilt, secure, dead: HeldPort::any() }
    }

    fn examples(&self) -> Vec<Example> {
        let example = |name, image: String, class, authoritative| Example { name, image, class, authoritative, no_such_platform: false };
        vec![
            example("refused", format!("{}/app:1", self.dead.address()), RegistryUnavailable, false),
            example("not found", format!("{}/app:2", self.open.host()), NotFound, true),
            example("no such repository", format!("{}/none:1", self.open.host()), NotFound, true),
            Example {
                no_such_platform: true,
                ..example("no such platform", format!("{}/foreign:1", self.open.host()), ContentInvalid, true)
            },
            example("denied", format!("{}/app:1", self.closed.host()), Denied, true),
            example("digest mismatch", format!("{}/other:1", self.spoilt.host), ContentInvalid, false),
            example("unknown CA", format!("{SECURE}/app:1"), NodeLocal, false),
        ]
    }

    /// The `hosts.toml` with the address of [`SECURE`].
    fn hosts_toml(&self) -> String {
        format!("server = \"https://{}\"\n", self.secure.host)
    }
}

/// A docker-registry whose files the test can change.
struct OwnRegistry {
    host: String,
    folder: TempDir,
    _child: Child,
}

impl OwnRegistry {
    async fn start(authority: Option<&Authority>) -> Self {
        let folder = TempDir::with_prefix("registry-").unwrap();
        let path = |path: PathBuf| format!("{:?}", path.display().to_string());
        let root = path(folder.path().join("root"));
        let mut settings = format!("version: 0.1\nstorage:\n  filesystem:\n    rootdirectory: {root}\nhttp:\n  addr: 127.0.0.1:0\n");
        if let Some(authority) = authority {
            let (certificate, key) = authority.issue("127.0.0.1");
            let copy = |from: &Path, name: &str| std::fs::copy(from, folder.path().join(name)).map(|_| folder.path().join(name)).unwrap();
            let (certificate, key) = (path(copy(&certificate, "cert.pem")), path(copy(&key, "key.pem")));
            settings += &format!("  tls:\n    certificate: {certificate}\n    key: {key}\n");
        }
        let file = folder.path().join("config.yml");
        std::fs::write(&file, settings).unwrap();
        // The child ends with this process, even if this process is killed.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "docker-registry", "serve"]).arg(file).kill_on_drop(true);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let address = async {
            loop {
                let line = lines.next_line().await.unwrap().expect("docker-registry listens before it ends");
                if let Some((_, address)) = line.split_once("listening on ") {
                    return address.chars().take_while(|letter| letter.is_ascii_digit() || ".:".contains(*letter)).collect();
                }
            }
        };
        let host = tokio::time::timeout(LIMIT, address).await.expect("docker-registry listens in time");
        // Read its log to the end, so that it never blocks.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Self { host, folder, _child: child }
    }

    async fn copy_in(&self, image: &str, name: &str) {
        let mut command = Command::new("skopeo");
        command.args(["copy", "--src-tls-verify=false", "--dest-tls-verify=false"]);
        let copied = command.args([format!("docker://{image}"), format!("docker://{}/{name}", self.host)]).output().await.unwrap();
        assert!(copied.status.success(), "{}", String::from_utf8_lossy(&copied.stderr));
    }

    /// Changes a byte of a blob.
    fn spoil(&self, digest: &str) {
        let hex = digest.strip_prefix("sha256:").unwrap();
        let path = self.folder.path().join("root/docker/registry/v2/blobs/sha256").join(&hex[..2]).join(hex).join("data");
        let mut content = std::fs::read(&path).unwrap();
        let middle = content.len() / 2;
        content[middle] ^= 1;
        std::fs::write(path, content).unwrap();
    }
}

async fn failure_of(runtime: &dyn ImageRuntime, image: &str) -> PullFailure {
    let pull = runtime.pull(request(image, None), Progress::new());
    tokio::time::timeout(LIMIT, pull).await.expect("the pull ends in time").expect_err("the pull fails")
}

async fn assert_examples_reported(runtime: &dyn ImageRuntime, registries: &Registries) {
    for example in registries.examples() {
        let failure = failure_of(runtime, &example.image).await;
        let reported = (failure.class, failure.authoritative, failure.no_such_platform);
        assert_eq!(reported, (example.class, example.authoritative, example.no_such_platform), "{}: {failure:?}", example.name);
        assert_eq!(failure.retry_after, None, "{}", example.name);
        let registry = example.image.split_once('/').unwrap().0;
        let host = if registry == SECURE { &registries.secure.host } else { registry };
        assert!(failure.endpoint.is_none_or(|endpoint| endpoint == host), "{}", example.name);
    }
}

#[tokio::test]
async fn embedded_runtime_reports_each_class() {
    let Some(()) = met(docker_registry::available()) else { return };
    let registries = Registries::start().await;
    let folder = TempDir::with_prefix("node-").unwrap();
    let options = options(folder.path());
    let hosts = options.config_path.join(SECURE);
    std::fs::create_dir_all(&hosts).unwrap();
    std::fs::write(hosts.join("hosts.toml"), registries.hosts_toml()).unwrap();
    let runtime = OciLayout::open(options).unwrap();
    assert_examples_reported(&runtime, &registries).await;
}

#[tokio::test]
async fn containerd_reports_each_class() {
    let Some(()) = met(containerd::available().and_then(|()| docker_registry::available())) else { return };
    let registries = Registries::start().await;
    // containerd 1.6 ignores a file without mirrors.
    let hosts_toml = format!("[host.\"https://{}\"]\n", registries.secure.host);
    let node = Containerd::start(ContainerdConfig::default().with_hosts(SECURE, &hosts_toml)).await;
    let folder = TempDir::with_prefix("node-").unwrap();
    let runtime = CriRuntime::new(CriOptions::new(node.endpoint(), keyring(folder.path(), None), clock::Clock::host())).unwrap();
    assert_examples_reported(&runtime, &registries).await;

    let route_of = |image: &str| {
        let reference = image::Reference::parse(image).unwrap();
        let runtime = &runtime;
        async move { runtime.route(&reference, None).await }
    };
    let (secure, open) = (route_of(&format!("{SECURE}/app:1")).await, route_of(&format!("{}/app:1", registries.open.host())).await);
    let endpoints = vec![registries.secure.host.clone(), format!("{SECURE}:443")];
    assert_eq!((secure.endpoints, secure.mirrored), (endpoints, true));
    assert_eq!((open.endpoints.as_slice(), open.mirrored), (&[registries.open.host().to_owned()][..], false));
    assert_ne!(secure.hash, open.hash);
    assert!(runtime.free_bytes().await.is_some_and(|bytes| bytes > 0));
}
