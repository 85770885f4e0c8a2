//! A node in this process, composed as the program composes one.

use std::path::PathBuf;

use actors::Delivery;
use anyhow::{Context as _, Result, ensure};
use bus::BusRef;
use clock::Clock;
use contract::messages::pull_coordinator::{EnsureImage, OutcomeKind, PullPolicy};
use contract::subject::Fleet;
use fleetpull::node::{Node, NodeParts, Policies};
use runtimes::RuntimeRef;
use runtimes::keyring::{Environment, Keyring, KeyringOptions};
use settings::Settings;

/// The image that is there.
pub(crate) const IMAGE: &str = "registry.example/team/app:v1";

/// A node with the default settings.
pub(crate) async fn start(runtime: RuntimeRef, bus: BusRef, clock: Clock, delivery: Delivery) -> Result<Node> {
    let policies = Policies { delivery, ..Policies::of(&Settings::default()) };
    let parts = NodeParts { name: "n1".parse()?, fleet: Fleet::default(), bus, runtime, clock, policies };
    Node::start(parts).await.context("the node does not start")
}

/// Makes sure that a present image is there.
pub(crate) async fn pull_present(node: &Node, image: &str) -> Result<()> {
    let ask = EnsureImage { image: image.to_owned(), policy: Some(PullPolicy::IfNotPresent), platform: None, pod: None, timeout_ms: None };
    let outcome = node.pull(ask).await?;
    ensure!(outcome.outcome == OutcomeKind::Present, "{image} should be there, but: {} {}", outcome.message, outcome.image_ref);
    Ok(())
}

/// No logins.
pub(crate) fn no_logins() -> Keyring {
    let kubelet_file = PathBuf::from("/nonexistent");
    Keyring::new(KeyringOptions { authfile: None, environment: Environment::default(), kubelet_file })
}
