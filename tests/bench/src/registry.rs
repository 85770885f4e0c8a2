//! A real docker-registry on loopback. Its storage is written directly, because uploading gigabytes would take longer than the benchmark.
#![allow(clippy::disallowed_methods, reason = "tasks of a measurement")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clock::{Clock, Random};
use contract::TraceContext;
use image::Reference;
use memory_registry::{AddedManifest, MadeImage, MemoryRegistry, Options};
use runtimes::oci_layout::{OciLayout, OciLayoutOptions};
use runtimes::{ImageRuntime as _, Progress, PullRequest};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStderr};
use tokio::time::timeout;

use crate::node::no_logins;
use crate::program;

/// The longest time of a start. It takes milliseconds, and longer on a machine under load.
const START_LIMIT: Duration = Duration::from_secs(20);
/// The text before the address in the log.
const LISTENING: &str = "listening on ";
/// The tag of every image.
const TAG: &str = "v1";

/// A running docker-registry; killed when dropped.
pub(crate) struct DockerRegistry {
    host: String,
    folder: TempDir,
    _child: Child,
}

impl DockerRegistry {
    /// Starts an empty registry.
    pub(crate) async fn start() -> Result<Self> {
        let program = program::installed("docker-registry")?;
        let folder = TempDir::with_prefix("bench-registry-").context("no temporary folder can be made")?;
        let settings = folder.path().join("config.yml");
        let storage = folder.path().display();
        let text = format!(
            "version: 0.1\nlog:\n  accesslog:\n    disabled: true\nstorage:\n  filesystem:\n    rootdirectory: {storage}\nhttp:\n  addr: 127.0.0.1:0\n"
        );
        fs::write(&settings, text)?;
        let mut command = program::isolated(&program, folder.path());
        command.arg("serve").arg(&settings).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().context("docker-registry does not start")?;
        let mut log = BufReader::new(child.stderr.take().context("stderr is piped")?).lines();
        let host = timeout(START_LIMIT, address_in(&mut log)).await.context("docker-registry does not report where it listens")??;
        // The log is read until the end, so that a full pipe never blocks the registry.
        actix::spawn(async move { while let Ok(Some(_)) = log.next_line().await {} });
        Ok(Self { host, folder, _child: child })
    }

    /// Adds an image with these layers to the registry; returns the image's name.
    pub(crate) async fn put(&self, name: &str, layers: impl IntoIterator<Item = u64>, seed: u64) -> Result<String> {
        let source = MemoryRegistry::start(Options::default()).await.context("no port on loopback can be had")?;
        let added = source.add_image(name, TAG, &MadeImage::of_layers(layers).seeded(seed));
        let manifest = added.manifests.first().context("an image has a manifest")?;
        let layout = TempDir::with_prefix_in("layout-", self.folder.path())?;
        fetch(&format!("{}/{name}:{TAG}", source.host()), layout.path()).await?;
        let storage = self.folder.path().join("docker/registry/v2");
        enter(&storage, name, manifest, &layout.path().join("blobs/sha256"))?;
        Ok(format!("{}/{name}:{TAG}", self.host))
    }
}

async fn address_in(log: &mut Lines<BufReader<ChildStderr>>) -> Result<String> {
    let mut output = String::new();
    while let Some(line) = log.next_line().await? {
        if let Some((_, rest)) = line.split_once(LISTENING) {
            return Ok(rest.chars().take_while(|letter| letter.is_ascii_digit() || ".:".contains(*letter)).collect());
        }
        output = output + &line + "\n";
    }
    bail!("docker-registry has ended:\n{output}")
}

/// Fetches an image into a layout.
async fn fetch(image: &str, layout: &Path) -> Result<()> {
    let runtime = OciLayout::open(OciLayoutOptions { fsync: false, ..OciLayoutOptions::new(layout, no_logins(), Clock::host()) })?;
    let trace = TraceContext::root(&mut Random::seeded(1));
    let request = PullRequest { reference: Reference::parse(image)?, platform: None, trace, carried: None };
    runtime.pull(request, Progress::new()).await.context("the image to be put into docker-registry cannot be made")?;
    Ok(())
}

/// Moves blobs into the registry's storage and links them as its file system driver does.
fn enter(storage: &Path, name: &str, manifest: &AddedManifest, blobs: &Path) -> Result<()> {
    let repository = storage.join("repositories").join(name);
    for digest in manifest.blobs().map(|blob| &blob.digest).chain([&manifest.digest]) {
        let hash = digest.strip_prefix("sha256:").context("digests are of sha256")?;
        let place = storage.join("blobs/sha256").join(&hash[..2]).join(hash);
        fs::create_dir_all(&place)?;
        fs::rename(blobs.join(hash), place.join("data")).with_context(|| format!("blob {digest} is not in the layout"))?;
        link(repository.join("_layers/sha256").join(hash), digest)?;
    }
    let hash = manifest.digest.strip_prefix("sha256:").unwrap_or_default();
    link(repository.join("_manifests/revisions/sha256").join(hash), &manifest.digest)?;
    link(repository.join("_manifests/tags").join(TAG).join("current"), &manifest.digest)?;
    link(repository.join("_manifests/tags").join(TAG).join("index/sha256").join(hash), &manifest.digest)
}

fn link(folder: PathBuf, digest: &str) -> Result<()> {
    fs::create_dir_all(&folder)?;
    fs::write(folder.join("link"), digest).with_context(|| format!("{} cannot be written", folder.display()))
}
