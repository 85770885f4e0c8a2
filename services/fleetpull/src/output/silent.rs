//! Nodes that the fleet knows and that do not answer: a question for all has a row for each of them too.

use std::time::Duration;

use contract::NodeName;
use serde::Serialize;

use super::known::named;

/// One of them, and how long ago it was heard.
pub type Silent = (NodeName, Duration);

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
pub fn row((node, ago): &Silent) -> Row<'_> {
    Row { kind: "node", node, state: "silent", since_ms: milliseconds(*ago) }
}

/// In milliseconds.
#[must_use]
pub fn milliseconds(ago: Duration) -> u64 {
    u64::try_from(ago.as_millis()).unwrap_or(u64::MAX)
}

/// Says on stderr who they are.
pub fn say(silent: &[Silent]) {
    if !silent.is_empty() {
        let names: Vec<NodeName> = silent.iter().map(|(node, _)| node.clone()).collect();
        super::remark(&format!("{}: known, but silent: `fleetpull nodes` says since when", named(&names)));
    }
}
