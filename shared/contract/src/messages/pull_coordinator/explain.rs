//! Explanations of what a pull would do, and why.

use serde::{Deserialize, Serialize};

use super::PullPolicy;
use crate::{Command, FailureClass, PodRef, Service, View};

/// Asks what a pull would do now. Nothing is pulled.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExplainImage {
    /// The image as it would be asked for.
    pub image: String,
    /// As in [`EnsureImage`](super::EnsureImage).
    #[serde(default)]
    pub policy: Option<PullPolicy>,
    /// As in [`EnsureImage`](super::EnsureImage).
    #[serde(default)]
    pub pod: Option<PodRef>,
    /// As in [`EnsureImage`](super::EnsureImage).
    #[serde(default)]
    pub platform: Option<String>,
    /// Whether to ask the registry for the manifest, to list the parts of the image: one request, and one more for each list of manifests.
    /// The registry is not asked if a pull would not ask it now. The result is not shared with the fleet.
    #[serde(default)]
    pub estimate_size: bool,
    /// The parts of the image, from another node's answer, to find out how much is missing here. At most [`BLOBS_MOST`].
    #[serde(default)]
    pub blobs: Vec<BlobSize>,
}

/// The most blobs in one question: 1,000 layers, the most of an image, and its config.
pub const BLOBS_MOST: usize = 1_001;

/// A blob of a registry.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlobSize {
    /// Its digest.
    pub digest: String,
    /// Its size.
    pub bytes: u64,
}

/// The parts of an image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageSizeEstimate {
    /// The digest that the reference was resolved to.
    #[serde(default)]
    pub digest: Option<String>,
    /// Config and layers, each once.
    pub blobs: Vec<BlobSize>,
}

impl Command for ExplainImage {
    type Reply = Explanation;
    const SERVICE: Service = Service::PullCoordinator;
    const VERB: &'static str = "explain";
}

/// The logins that a pull would send to one endpoint, in words without a secret or a user's name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndpointLogins {
    /// `host:port`; for a container runtime, which chooses the endpoint itself, the image's registry.
    pub endpoint: String,
    /// By entry and file, in the order in which they are tried: `login for registry.example in /root/.docker/config.json`.
    #[serde(default)]
    pub logins: Vec<String>,
    /// Why there is none.
    #[serde(default)]
    pub none_because: Option<String>,
}

/// Why a pull would wait for its registry's budget.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetHold {
    /// For how long, in milliseconds, if known.
    pub wait_ms: Option<u64>,
    /// In words: `quota 0 of 100 left per 6h, resets in 52s`.
    pub cause: String,
}

/// The answer to [`ExplainImage`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    /// The policy that would apply.
    pub policy: String,
    /// Whether the image is on the node; none if the runtime could not determine it.
    pub present: Option<bool>,
    /// Why the runtime could not determine it.
    #[serde(default)]
    pub inspect_error: Option<String>,
    /// Milliseconds until the next attempt is allowed, if it is too soon now.
    #[serde(default)]
    pub next_attempt_ms: Option<u64>,
    /// Whether a pull without `--wait` waits for that attempt, or makes it, instead of being refused: the failure is unconfirmed, and the
    /// attempt comes within the time that such a pull waits for the fleet.
    #[serde(default)]
    pub waits: bool,
    /// The cause of the wait.
    #[serde(default)]
    pub cause: Option<String>,
    /// The class of that cause.
    #[serde(default)]
    pub class: Option<FailureClass>,
    /// Which node learned of the failure; none: this one.
    #[serde(default)]
    pub learned_by: Option<String>,
    /// How long ago that was, in milliseconds.
    #[serde(default)]
    pub learned_ms_ago: Option<u64>,
    /// The trace of the attempt that failed, 32 hex digits.
    #[serde(default)]
    pub learned_trace_id: Option<String>,
    /// The node's view of the registry, if it shares with a fleet.
    #[serde(default)]
    pub view: Option<View>,
    /// For how long the entry has been open, in milliseconds, if it is shared.
    #[serde(default)]
    pub since_ms: Option<u64>,
    /// The entry's binding, as in the list of back-offs.
    #[serde(default)]
    pub binds: Option<String>,
    /// The node that probes the entry now, if one does.
    #[serde(default)]
    pub probed_by: Option<String>,
    /// The platform that would be pulled: `os/arch[/variant]`.
    #[serde(default)]
    pub platform: Option<String>,
    /// The digest of the present image of this name, if the runtime reports it.
    #[serde(default)]
    pub digest: Option<String>,
    /// The parts of the image with their sizes, if they were asked for and the registry answered.
    #[serde(default)]
    pub size_estimate: Option<ImageSizeEstimate>,
    /// Why they are unknown, if they were asked for.
    #[serde(default)]
    pub estimate_error: Option<String>,
    /// How many bytes of the named blobs would be fetched; none if the runtime cannot determine it.
    #[serde(default)]
    pub missing_bytes: Option<u64>,
    /// The budget of the fleet for which this pull waits, as budgets are listed. None if this node shares nothing or only observes.
    #[serde(default)]
    pub budget: Option<String>,
    /// How that budget delays the pull. The node leaves it empty; the caller gets it from the budget leader.
    #[serde(default)]
    pub budget_hold: Option<BudgetHold>,
    /// The logins that a pull would send, by endpoint; empty if the runtime does not list them.
    #[serde(default)]
    pub logins: Vec<EndpointLogins>,
    /// Whether the runtime is pulling the image at this moment.
    pub in_flight: bool,
    /// Why the failure refuses nothing on this node, if it would refuse the pull otherwise: `this node only observes`.
    #[serde(default)]
    pub unenforced_because: Option<String>,
    /// What would happen, in one sentence.
    pub verdict: String,
}
