//! Nodes that the fleet knows but that do not answer. Lists have a row for each of them too.

use std::collections::BTreeMap;
use std::time::Duration;

use contract::NodeName;
use serde::Serialize;

use super::known_failures::named;

/// A node that belongs to the fleet but does not answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Silent {
    /// The node's name.
    pub node: NodeName,
    /// How long ago the node was last seen.
    pub ago: Duration,
    /// The node's labels. None if unknown.
    pub labels: Option<BTreeMap<String, String>>,
    /// How long after its last contact the fleet remembers the node.
    pub known_for: Duration,
}

/// A silent node in JSON.
#[derive(Serialize)]
pub struct Row<'a> {
    kind: &'static str,
    node: &'a NodeName,
    state: &'static str,
    since_ms: u64,
}

/// The node as JSON.
#[must_use]
pub fn row(Silent { node, ago, .. }: &Silent) -> Row<'_> {
    Row { kind: "node", node, state: "silent", since_ms: milliseconds(*ago) }
}

/// In milliseconds.
#[must_use]
pub fn milliseconds(ago: Duration) -> u64 {
    u64::try_from(ago.as_millis()).unwrap_or(u64::MAX)
}

/// Names the silent nodes in a sentence. None if there are none.
#[must_use]
pub fn sentence(silent: &[Silent]) -> Option<String> {
    let names: Vec<NodeName> = silent.iter().map(|silent| silent.node.clone()).collect();
    (!names.is_empty()).then(|| format!("{}: known, but silent: `fleetpull nodes` says since when", named(&names)))
}
