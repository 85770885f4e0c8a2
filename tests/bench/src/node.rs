//! A node in this process, composed as the program composes one.

use std::cell::RefCell;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use actors::{Delivery, Sender};
use anyhow::{Context as _, Result, ensure};
use bus::BusRef;
use clock::{Clock, Random};
use contract::messages::pull_coordinator::{EnsureImage, OutcomeKind, PullPolicy};
use contract::subject::Fleet;
use contract::{Envelope, Meta};
use fleetpull::node::{Node, NodeParts, Policies};
use runtimes::keyring::{Environment, Keyring, KeyringOptions};
use runtimes::scripted::ScriptedRuntime;
use runtimes::{ImageStatus, RuntimeRef};
use settings::Settings;

/// The present image.
pub(crate) const IMAGE: &str = "registry.example/team/app:v1";

/// The time-out of a call: longer than any benchmark.
const STANDING: Duration = Duration::from_secs(3_600);

/// A node, and a caller that pulls on it.
pub(crate) struct AskedNode {
    _node: Node,
    ensure: Sender<EnsureImage>,
    random: RefCell<Random>,
}

impl AskedNode {
    /// A node with the default settings.
    pub(crate) async fn start(runtime: RuntimeRef, bus: BusRef, clock: Clock, delivery: Delivery) -> Result<Self> {
        let policies = Policies { delivery, ..Policies::of(&Settings::default()) };
        let parts = NodeParts { name: "n1".parse()?, fleet: Fleet::default(), bus, runtime, clock, policies };
        let node = Node::start(parts).await.context("the node does not start")?;
        Ok(Self { ensure: node.ensure(), _node: node, random: RefCell::new(Random::seeded(1)) })
    }

    /// Pulls a present image.
    pub(crate) async fn pull_present(&self, image: &str) -> Result<()> {
        let policy = Some(PullPolicy::IfNotPresent);
        let body = EnsureImage { image: image.to_owned(), policy, ..EnsureImage::default() };
        let meta = Meta::root(&mut self.random.borrow_mut());
        let outcome = self.ensure.call(Envelope { meta, body }, STANDING).await?;
        ensure!(outcome.outcome == OutcomeKind::Present, "{image} should be there: {}", outcome.message);
        Ok(())
    }
}

/// A runtime in memory that has [`IMAGE`].
pub(crate) fn runtime_in_memory() -> RuntimeRef {
    let runtime = ScriptedRuntime::new();
    runtime.put(IMAGE, ImageStatus { image_ref: "sha256:1".to_owned(), size_bytes: 1_000_000, ..ImageStatus::default() });
    Arc::new(runtime)
}

/// No logins.
pub(crate) fn no_logins() -> Keyring {
    let kubelet_file = PathBuf::from("/nonexistent");
    Keyring::new(KeyringOptions { authfile: None, environment: Environment::default(), kubelet_file })
}
