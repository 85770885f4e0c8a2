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
        /// How many are before it.
        ahead: u64,
    },
    /// No, and asking again is no use.
    Refused {
        /// Kubelet's text: `pull QPS exceeded`, or that the queue is full.
        text: String,
    },
}

/// The permit is not needed any more, granted or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReleasePermit {
    /// Which.
    pub permit: PermitId,
}

impl Command for ReleasePermit {
    type Reply = PermitReleased;
    const SERVICE: Service = Service::Throttler;
    const VERB: &'static str = "release";
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
