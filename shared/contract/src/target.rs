//! What an image is to a node: which registry it really talks to, as whom, on whose budget.

use serde::{Deserialize, Serialize};

/// A node's view of a registry. Knowledge never crosses views: what one node talks to is not always what another does.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct View {
    /// The group of nodes that see the same: regions, air gaps (`fleet.scope`).
    pub scope: String,
    /// Host and port as in the reference.
    pub registry: String,
    /// Hash of the route: mirrors, scheme, proxy; `unknown` if it cannot be read.
    pub route: String,
    /// The host's boot id, for a registry on a loopback or link-local address; else empty.
    pub boot: String,
}

impl View {
    /// Whether it is known whom a pull talks to.
    #[must_use]
    pub fn has_route(&self) -> bool {
        !matches!(self.route.as_str(), "" | "unknown")
    }
}

/// Everything about a wanted image that knowledge may be about. Holds no credential: scope and fingerprint are keyed hashes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Target {
    /// The node's view of the registry.
    pub view: View,
    /// The registry's endpoint that is asked first, `host:port`.
    pub endpoint: String,
    /// What else a pull talks to, as far as it is known: further mirrors, token server, blob host.
    pub other_endpoints: Vec<String>,
    /// `node.zone`.
    pub zone: String,
    /// Repository of the image, with its registry.
    pub repository: String,
    /// The image, normalised.
    pub reference: String,
    /// `linux/amd64`.
    pub platform: String,
    /// Credential scope; `anonymous` without a login.
    pub scope: String,
    /// Credential fingerprint; empty without a login.
    pub fingerprint: String,
    /// Whose budget a pull is counted on.
    pub budget_owner: String,
    /// Hash of the node's signature policy; empty if it cannot be read.
    pub policy: String,
    /// Whether the runtime chooses among several endpoints without saying which one it asked.
    pub mirrored: bool,
    /// Whether the runtime shows when the first byte of a blob comes.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub shows_blobs: bool,
}
