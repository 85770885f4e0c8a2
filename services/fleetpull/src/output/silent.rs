//! Nodes that the fleet knows and that do not answer: a question for all has a row for each of them too.

use std::collections::BTreeMap;
use std::time::Duration;

use contract::NodeName;
use serde::Serialize;

use super::known_failures::named;

/// A node that belongs to the fleet and does not answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Silent {
    /// Its name.
    pub node: NodeName,
    /// How long ago it was heard.
    pub ago: Duration,
    /// Its labels; none: not known.
    pub labels: Option<BTreeMap<String, String>>,
    /// For how long after it was heard the fleet knows of it.
    pub known_for: Duration,
}

/// One of them in JSON.
#[derive(Serialize)]
pub struct Row<'a> {
    kind: &'static str,
    node: &'a NodeName,
    state: &'static str,
    since_ms: u64,
}

/// As JSON.
#[must_use]
pub fn row(Silent { node, ago, .. }: &Silent) -> Row<'_> {
    Row { kind: "node", node, state: "silent", since_ms: milliseconds(*ago) }
}

/// In milliseconds.
#[must_use]
pub fn milliseconds(ago: Duration) -> u64 {
    u64::try_from(ago.as_millis()).unwrap_or(u64::MAX)
}

/// Who they are, in a sentence; none if there is nobody.
#[must_use]
pub fn sentence(silent: &[Silent]) -> Option<String> {
    let names: Vec<NodeName> = silent.iter().map(|silent| silent.node.clone()).collect();
    (!names.is_empty()).then(|| format!("{}: known, but silent: `fleetpull nodes` says since when", named(&names)))
}
