//! Nodes that the fleet knows but that do not answer. Lists have a row for each of them too.

use std::collections::BTreeMap;
use std::time::Duration;

use contract::NodeName;
use serde::Serialize;

use super::known_failures::named;
use super::units;

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

/// Says which silent nodes an answer leaves out, and for how long they have been silent. None if there are none.
#[must_use]
pub fn sentence(silent: &[Silent]) -> Option<String> {
    let longest = units::age(milliseconds(silent.iter().map(|silent| silent.ago).max()?));
    let names: Vec<NodeName> = silent.iter().map(|silent| silent.node.clone()).collect();
    Some(match names.as_slice() {
        [node] => format!("{node} has been silent for {longest} and is left out"),
        nodes => format!("{} have been silent for up to {longest} and are left out", named(nodes)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silent_nodes_are_named_with_their_longest_silence() {
        let silent = |node: &str, seconds| {
            let (node, ago) = (node.parse().expect("a name"), Duration::from_secs(seconds));
            Silent { node, ago, labels: None, known_for: 2 * ago }
        };
        assert_eq!(sentence(&[]), None);
        assert_eq!(sentence(&[silent("n3", 42)]).as_deref(), Some("n3 has been silent for 42s and is left out"));
        let of_two = sentence(&[silent("n3", 42), silent("n4", 240)]);
        assert_eq!(of_two.as_deref(), Some("n3, n4 have been silent for up to 4m and are left out"));
    }
}
