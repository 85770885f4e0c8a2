//! The registry and the nodes of the demo.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use bus::memory::MemoryBus;
use clock::{Clock, Random};
use contract::PullEvent;
use contract::messages::event_recorder::ListEvents;
use contract::messages::pull_coordinator::{EnsureImage, PullOutcome, PullPolicy};
use contract::subject::Fleet;
use memory_registry::{AddedManifest, MadeImage, MemoryRegistry, Options};
use runtimes::keyring::{Environment, Keyring, KeyringOptions};
use runtimes::oci_layout::{OciLayout, OciLayoutOptions};
use serde_json::json;
use settings::Settings;
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

use super::report::{Printer, StepCounts};
use crate::node::{Node, NodeOptions, NodeParts, Policies, Sharing, root_envelope};

/// The image that exists.
pub(super) const APP: &str = "shop/web:v1";
/// The tag of this image.
pub(super) const APP_TAG: &str = "v1";
/// A tag that does not exist.
pub(super) const MISSING: &str = "shop/web:v2";
/// The layers of the image in bytes: like those of a web service, but small enough for a debug build.
const LAYERS: [u64; 5] = [12_000_000, 6_000_000, 3_000_000, 800_000, 20_000];
/// The nodes.
pub(super) const NODES: [&str; 3] = ["n1", "n2", "n3"];

/// A registry and three nodes.
pub(super) struct Scene {
    pub(super) printer: Printer,
    pub(super) registry: MemoryRegistry,
    pub(super) image: AddedManifest,
    crew: Crew,
    stores: TempDir,
}

/// Some nodes on a bus of their own.
pub(super) struct Crew(BTreeMap<&'static str, Node>);

/// One step of the demo, with the counts of the registry before it.
pub(super) struct Step<'a> {
    scene: &'a Scene,
    node: &'static str,
    before: StepCounts,
}

impl Scene {
    /// Starts everything.
    pub(super) async fn set(printer: Printer) -> Result<Self> {
        let registry = MemoryRegistry::start(Options::default()).await.context("no port on loopback can be had for the registry")?;
        let added = registry.add_image("shop/web", APP_TAG, &MadeImage::of_layers(LAYERS));
        let image = added.manifests.into_iter().next().context("the registry made no image")?;
        let stores = tempfile::Builder::new().prefix("fleetpull-demo-").tempdir().context("no temporary folder can be made")?;
        let sharing = Sharing::of(&Settings::default(), format!("{:032x}", Random::from_system().id()));
        let crew = Crew::start(NODES, stores.path(), sharing).await?;
        Ok(Self { printer, registry, image, crew, stores })
    }

    /// The folder with the stores.
    pub(super) fn folder(&self) -> &Path {
        self.stores.path()
    }

    /// Starts a step whose events come from `node`.
    pub(super) fn step(&self, node: &'static str) -> Step<'_> {
        Step { scene: self, node, before: self.counts() }
    }

    /// Asks one node for one image of the registry.
    pub(super) async fn pull(&self, node: &'static str, image: &str, policy: PullPolicy) -> Result<PullOutcome> {
        let image = format!("{}/{image}", self.registry.host());
        let ask = EnsureImage { image, policy: Some(policy), ..EnsureImage::default() };
        Ok(self.node(node)?.pull(ask).await?)
    }

    /// Hashes every blob in every store. Returns the number of blobs and of bytes.
    pub(super) fn hash_every_blob(&self) -> Result<(u64, u64)> {
        let (mut blobs, mut bytes) = (0, 0);
        for name in NODES {
            let folder = self.stores.path().join(name).join("blobs/sha256");
            let Ok(entries) = std::fs::read_dir(&folder) else { continue };
            for entry in entries {
                let path = entry?.path();
                let content = std::fs::read(&path).with_context(|| format!("{} cannot be read", path.display()))?;
                let hash: String = Sha256::digest(&content).iter().map(|byte| format!("{byte:02x}")).collect();
                ensure!(
                    path.file_name().is_some_and(|name| name.to_string_lossy() == hash),
                    "{} does not hash to its name",
                    path.display()
                );
                blobs += 1;
                bytes += content.len() as u64;
            }
        }
        Ok((blobs, bytes))
    }

    /// Stops everything and keeps the stores.
    pub(super) async fn keep(self) -> PathBuf {
        self.crew.stop().await;
        self.stores.keep()
    }

    /// Stops everything.
    pub(super) async fn strike(self) {
        self.crew.stop().await;
    }

    /// The node with this name.
    pub(super) fn node(&self, name: &'static str) -> Result<&Node> {
        self.crew.node(name)
    }

    fn counts(&self) -> StepCounts {
        let counts = self.registry.counts();
        StepCounts { requests: counts.requests, failing: counts.failing }
    }

    async fn events(&self, node: &'static str) -> Vec<PullEvent> {
        let Ok(node) = self.node(node) else { return Vec::new() };
        let ask = actors::Ask(root_envelope(ListEvents::default()));
        node.actors.recorder.send(ask).await.ok().and_then(Result::ok).map(|list| list.events).unwrap_or_default()
    }
}

impl Crew {
    /// Starts nodes with these names and with their stores in `folder`. Without `sharing` each follows kubelet's rule.
    pub(super) async fn start<const N: usize>(names: [&'static str; N], folder: &Path, sharing: Option<Sharing>) -> Result<Self> {
        let clock = Clock::host();
        let hub = MemoryBus::new(clock.clone());
        let mut nodes = BTreeMap::new();
        for name in names {
            let keyring = Keyring::new(KeyringOptions {
                authfile: None,
                environment: Environment::default(),
                kubelet_file: PathBuf::from("/nonexistent"),
            });
            let options = OciLayoutOptions::new(folder.join(name), keyring, clock.clone());
            let runtime = Arc::new(OciLayout::open(options).context("a store cannot be made")?);
            let parts = NodeParts {
                name: name.parse()?,
                fleet: Fleet::default(),
                bus: Arc::new(hub.connect()),
                runtime,
                clock: clock.clone(),
                policies: Policies::of(&Settings::default()),
            };
            nodes.insert(name, Node::start_with(parts, NodeOptions { sharing: sharing.clone(), ..NodeOptions::default() }).await?);
        }
        Ok(Self(nodes))
    }

    /// The node with this name.
    pub(super) fn node(&self, name: &'static str) -> Result<&Node> {
        self.0.get(name).context("no such node")
    }

    /// Stops all nodes.
    pub(super) async fn stop(self) {
        for (_, node) in self.0 {
            node.stop().await;
        }
    }
}

impl Step<'_> {
    /// What the step has cost so far.
    pub(super) fn counts(&self) -> StepCounts {
        let now = self.scene.counts();
        StepCounts { requests: now.requests - self.before.requests, failing: now.failing - self.before.failing }
    }

    /// Shows the events of the node's newest trace, and what the step cost.
    pub(super) async fn show(&self) -> StepCounts {
        let events = self.scene.events(self.node).await;
        let last = events.last().map(|event| event.trace.trace_id);
        for event in events.iter().filter(|event| Some(event.trace.trace_id) == last) {
            self.show_event(event);
        }
        self.show_counts()
    }

    /// Shows the newest event of the node and what the step cost.
    pub(super) async fn show_last(&self) -> StepCounts {
        if let Some(event) = self.scene.events(self.node).await.last() {
            self.show_event(event);
        }
        self.show_counts()
    }

    fn show_counts(&self) -> StepCounts {
        let counts = self.counts();
        let StepCounts { requests, failing } = counts;
        let text = format!("requests to the registry: {requests}, failing: {failing}");
        self.scene.printer.measured("registry", json!({ "requests": requests, "failing": failing }), &text);
        counts
    }

    fn show_event(&self, event: &PullEvent) {
        let (kind, reason) = (event.reason.event_type().as_str(), event.reason.as_str());
        let figures = json!({
            "node": event.node,
            "type": kind,
            "reason": reason,
            "message": event.message,
            "duration_ms": event.duration_ms,
            "waiting_ms": event.waiting_ms,
            "size_bytes": event.size_bytes,
        });
        self.scene.printer.measured("event", figures, &format!("{kind:<7} {reason:<8} {}", event.message));
    }
}
