//! The target of an image on a node: the registry that it really talks to, the login and the budget.

use serde::{Deserialize, Serialize};

/// A node's view of a registry. Reports never cross views, because two nodes may talk to different registries under one name.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct View {
    /// The group of nodes that see the same registries: regions, air gaps (`fleet.scope`).
    pub scope: String,
    /// Host and port as in the reference.
    pub registry: String,
    /// Hash of the route: mirrors, scheme, proxy; `unknown` if it cannot be read.
    pub route: String,
    /// The host's boot id, for a registry on a loopback or link-local address; else empty.
    pub boot: String,
}

impl View {
    /// Whether it is known which endpoints a pull talks to.
    #[must_use]
    pub fn has_route(&self) -> bool {
        !matches!(self.route.as_str(), "" | "unknown")
    }
}

/// Everything about a wanted image that reports may be about. It holds no credential: scope and fingerprint are keyed hashes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Target {
    /// The node's view of the registry.
    pub view: View,
    /// The registry's endpoint that is asked first, `host:port`.
    pub endpoint: String,
    /// The other known endpoints of a pull: further mirrors, token server, blob host.
    pub other_endpoints: Vec<String>,
    /// `node.zone`.
    pub zone: String,
    /// The repository of the image, with its registry.
    pub repository: String,
    /// The image, normalised.
    pub reference: String,
    /// `linux/amd64`.
    pub platform: String,
    /// The credential scope; `anonymous` without a login.
    pub scope: String,
    /// The credential fingerprint; empty without a login.
    pub fingerprint: String,
    /// The owner of the budget that counts a pull.
    pub budget_owner: String,
    /// The hash of the node's signature policy; empty if it cannot be read.
    pub policy: String,
    /// Whether the runtime chooses among several endpoints without reporting its choice.
    pub mirrored: bool,
    /// Whether the runtime reports the first byte of a blob.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub shows_blobs: bool,
}
