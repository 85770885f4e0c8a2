//! What the throttler answers.

use serde::{Deserialize, Serialize};

use crate::{Command, PermitId, Service};

/// Leave to pull now? Asking again with the same id keeps the place in the queue, and renews a permit that was granted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AcquirePermit {
    /// Chosen by the asker.
    pub permit: PermitId,
    /// For which image.
    pub image: String,
    /// How long the answer may be held back while the queue moves, in milliseconds.
    pub patience_ms: u64,
    /// Whose budget the fleet counts it on (`Target::budget_owner` within its view); none: the node's own bucket and slots alone decide.
    #[serde(default)]
    pub budget: Option<String>,
}

impl Command for AcquirePermit {
    type Reply = PermitAnswer;
    const SERVICE: Service = Service::Throttler;
    const VERB: &'static str = "acquire";
}

/// The answer to [`AcquirePermit`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PermitAnswer {
    /// Go ahead. Renew within the lease, release when done.
    Granted {
        /// After this many milliseconds without a renewal the permit is taken back.
        lease_ms: u64,
    },
    /// Not yet: ask again.
    Queued {
        /// How many are before it on this node.
        ahead: u64,
        /// When the fleet's budget is what it waits for: milliseconds until its turn, as far as the leader can say.
        #[serde(default)]
        budget_wait_ms: Option<u64>,
    },
    /// No, and asking again is no use.
    Refused {
        /// Kubelet's text: `pull QPS exceeded`, or that the queue is full.
        text: String,
    },
}

/// The permit is not needed any more, granted or not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReleasePermit {
    /// Which.
    pub permit: PermitId,
    /// What the registry said of its limits during the pull.
    #[serde(default)]
    pub limits: Vec<RegistryLimit>,
}

impl Command for ReleasePermit {
    type Reply = PermitReleased;
    const SERVICE: Service = Service::Throttler;
    const VERB: &'static str = "release";
}

/// A window of requests or pulls that a registry counts, as its answer's headers say (`ratelimit-limit: 100;w=21600`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RegistryLimit {
    /// Whom the registry counts as one (`docker-ratelimit-source`), if it says so.
    pub source: Option<String>,
    /// How many in a window; 0 when it does not say.
    pub limit: u64,
    /// How many are left.
    pub remaining: u64,
    /// How long the window is, in milliseconds; 0 when it does not say.
    pub window_ms: u64,
    /// How long until it begins anew or until the registry wants to be asked again, in milliseconds, if it says so.
    pub reset_ms: Option<u64>,
}

/// The answer to [`ReleasePermit`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PermitReleased {}

/// How the node's budget stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountPermits {}

impl Command for CountPermits {
    type Reply = PermitCounts;
    const SERVICE: Service = Service::Throttler;
    const VERB: &'static str = "count";
}

/// The answer to [`CountPermits`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PermitCounts {
    /// Permits out now.
    pub granted: u64,
    /// Waiting for one.
    pub queued: u64,
    /// Granted since start.
    pub granted_total: u64,
    /// Refused since start.
    pub refused_total: u64,
    /// Taken back because the holder did not renew.
    pub reclaimed_total: u64,
}
