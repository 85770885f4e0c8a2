//! What would happen to a pull, and why.

use serde::{Deserialize, Serialize};

use super::PullPolicy;
use crate::{Command, FailureClass, PodRef, Service, View};

/// What would happen to a pull now. Nothing is pulled.
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
    /// Ask the registry for the manifest, to say what the image consists of: one request, and one more for each list of manifests.
    /// It is not asked where a pull would not ask it now. What comes of it is no knowledge of the fleet's.
    #[serde(default)]
    pub weigh: bool,
    /// What the image consists of, as another node learned it: how much of it is missing here? At most [`BLOBS_MOST`].
    #[serde(default)]
    pub blobs: Vec<BlobSize>,
}

/// The most blobs that one question may name: a thousand layers, as many as an image may have, and its config.
pub const BLOBS_MOST: usize = 1_001;

/// Content of a registry.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlobSize {
    /// By its digest.
    pub digest: String,
    /// How long it is.
    pub bytes: u64,
}

/// What an image consists of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageWeight {
    /// What the reference was resolved to.
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

/// Which logins a pull would show to one endpoint, in words without a secret or a user's name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndpointLogins {
    /// `host:port`, or the container runtime that is given the logins.
    pub endpoint: String,
    /// By entry and file, in the order in which they are tried: `login for registry.example in /root/.docker/config.json`.
    #[serde(default)]
    pub logins: Vec<String>,
    /// Why there is none, if so.
    #[serde(default)]
    pub none_because: Option<String>,
}

/// Why a pull would wait for its registry's budget.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetHold {
    /// For how long, in milliseconds, if that is known.
    pub wait_ms: Option<u64>,
    /// In words: `0 of 100 left, anew in 52.0 s`.
    pub cause: String,
}

/// The answer to [`ExplainImage`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    /// The policy that would apply.
    pub policy: String,
    /// Whether the image is on the node; none if the runtime could not say.
    pub present: Option<bool>,
    /// Why the runtime could not say.
    #[serde(default)]
    pub inspect_error: Option<String>,
    /// Milliseconds until a try is allowed, if it is too soon now.
    #[serde(default)]
    pub next_attempt_ms: Option<u64>,
    /// A pull without `--wait` waits for that attempt instead of being refused: the failure is unconfirmed, and the attempt comes within
    /// the time that such a pull waits for the fleet.
    #[serde(default)]
    pub waits: bool,
    /// What the wait comes from.
    #[serde(default)]
    pub cause: Option<String>,
    /// The class of that cause.
    #[serde(default)]
    pub class: Option<FailureClass>,
    /// Which node found out; none: this one.
    #[serde(default)]
    pub learned_by: Option<String>,
    /// How long ago that was, in milliseconds.
    #[serde(default)]
    pub learned_ms_ago: Option<u64>,
    /// The trace of the attempt that failed, 32 hex digits.
    #[serde(default)]
    pub learned_trace_id: Option<String>,
    /// The node's view of the registry, if it shares what it knows.
    #[serde(default)]
    pub view: Option<View>,
    /// For how long that failure stands, in milliseconds, if the fleet knows of it.
    #[serde(default)]
    pub since_ms: Option<u64>,
    /// Whom it binds, as in the list of back-offs.
    #[serde(default)]
    pub binds: Option<String>,
    /// Who is finding out now whether it is over, if somebody is.
    #[serde(default)]
    pub probed_by: Option<String>,
    /// Which platform would be pulled: `os/arch[/variant]`.
    #[serde(default)]
    pub platform: Option<String>,
    /// The digest of what is there under this name, if the runtime says it.
    #[serde(default)]
    pub digest: Option<String>,
    /// What the image consists of, if that was asked and the registry said so.
    #[serde(default)]
    pub weight: Option<ImageWeight>,
    /// Why that is not known, if it was asked.
    #[serde(default)]
    pub weigh_error: Option<String>,
    /// How much of the blobs named would be fetched, in bytes; none if the runtime cannot say.
    #[serde(default)]
    pub missing_bytes: Option<u64>,
    /// On whose budget the fleet counts a pull of it, as budgets are listed, if this node shares.
    #[serde(default)]
    pub budget: Option<String>,
    /// What that budget holds a pull back by. The node leaves it open: the caller knows it from the budget's leader.
    #[serde(default)]
    pub budget_hold: Option<BudgetHold>,
    /// Which logins a pull would show, endpoint by endpoint; empty if the runtime does not say.
    #[serde(default)]
    pub logins: Vec<EndpointLogins>,
    /// Whether the runtime is pulling the image at this moment.
    pub in_flight: bool,
    /// What would happen, in one sentence.
    pub verdict: String,
}
