//! Helpers of the embedded runtime's tests.
#![allow(dead_code, unreachable_pub, reason = "each test file uses a part of it")]

pub mod child;
pub mod tls;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clock::{Clock, Random};
use contract::TraceContext;
use image::{Platform, Reference};
use memory_registry::{AddedManifest, MemoryRegistry, Options};
use runtimes::keyring::{Environment, Keyring, KeyringOptions};
use runtimes::oci_layout::{OciLayout, OciLayoutOptions, Timeouts};
use runtimes::{ImageRuntime, ImageStatus, Progress, PullFailure, PullRequest, PulledImage};
use tempfile::TempDir;

/// The time limit of every wait.
pub const LIMIT: Duration = Duration::from_secs(30);

/// An embedded runtime with its own store, without logins of this host.
pub struct Node {
    pub folder: TempDir,
    pub runtime: OciLayout,
}

impl Node {
    pub fn new() -> Self {
        Self::with(|_| {})
    }

    pub fn with(change: impl FnOnce(&mut OciLayoutOptions)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut options = options(folder.path());
        change(&mut options);
        let runtime = OciLayout::open(options).unwrap();
        Self { folder, runtime }
    }

    pub fn store(&self) -> PathBuf {
        self.folder.path().join("store")
    }

    pub async fn pull(&self, image: &str) -> Result<PulledImage, PullFailure> {
        self.pull_for(image, None).await
    }

    pub async fn pull_for(&self, image: &str, platform: Option<&str>) -> Result<PulledImage, PullFailure> {
        let pull = self.runtime.pull(request(image, platform), Progress::new());
        tokio::time::timeout(LIMIT, pull).await.expect("the pull ended in time")
    }

    pub async fn status(&self, image: &str) -> Option<ImageStatus> {
        self.runtime.image_status(&Reference::parse(image).unwrap(), None).await.unwrap()
    }

    /// Files below `blobs/`.
    pub fn blobs(&self) -> Vec<String> {
        names_in(&self.store().join("blobs/sha256"))
    }

    /// The partial blobs.
    pub fn partials(&self) -> Vec<String> {
        names_in(&self.store().join(".fleetpull/partial"))
    }
}

/// The default options of tests, which read nothing of this host.
pub fn options(folder: &Path) -> OciLayoutOptions {
    let mut options = OciLayoutOptions::new(folder.join("store"), keyring(folder, None), Clock::host());
    options.config_path = folder.join("certs.d");
    options.fsync = false;
    options.timeouts =
        Timeouts { connect: Duration::from_secs(5), first_byte: Duration::from_secs(10), no_progress: Duration::from_secs(10) };
    options
}

/// A keyring with one login file, or none.
pub fn keyring(folder: &Path, logins: Option<&str>) -> Keyring {
    let path = folder.join("logins/config.json");
    if let Some(logins) = logins {
        std::fs::create_dir_all(folder.join("logins")).unwrap();
        std::fs::write(&path, logins).unwrap();
    }
    let nowhere = folder.join("nowhere");
    Keyring::new(KeyringOptions {
        authfile: logins.map(|_| path),
        environment: Environment::from_iter([("HOME", nowhere.clone()), ("XDG_RUNTIME_DIR", nowhere.clone())]),
        kubelet_file: nowhere.join("config.json"),
    })
}

pub fn request(image: &str, platform: Option<&str>) -> PullRequest {
    PullRequest {
        reference: Reference::parse(image).unwrap(),
        platform: platform.map(|platform| Platform::parse(platform).unwrap()),
        trace: TraceContext::root(&mut Random::seeded(1)),
        carried: None,
    }
}

pub async fn registry() -> MemoryRegistry {
    MemoryRegistry::start(Options::default()).await.unwrap()
}

/// Waits until `condition` holds.
pub async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let waiting = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(LIMIT, waiting).await.unwrap_or_else(|_| panic!("waited in vain: {what}"));
}

/// Checks that the blobs of a manifest are in the store and match their digests.
pub fn assert_complete(node: &Node, manifest: &AddedManifest) {
    use sha2::{Digest, Sha256};
    let names = std::iter::once(&manifest.digest).chain(manifest.blobs().map(|blob| &blob.digest));
    for digest in names {
        let hex = digest.strip_prefix("sha256:").unwrap();
        let content = std::fs::read(node.store().join("blobs/sha256").join(hex)).unwrap();
        assert_eq!(image::Digest::from_sha256(Sha256::digest(&content).into()).hex(), hex);
    }
}

pub fn names_in(folder: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}
