//! One pull, whoever waits for it.

use std::time::Duration;

use clock::Now;
use contract::{AttemptId, PermitId, TraceContext};
use image::{Platform, Reference};

use super::step::{PulledFacts, RequestId};

/// What one flight is for: two requests with the same key want the same bytes. (All callers of a node share its keyring, so the
/// login is the same too.)
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FlightKey {
    /// The normalised reference: `busybox` and `docker.io/library/busybox:latest` are one.
    pub(super) reference: String,
    /// As text; none for the node's own.
    pub(super) platform: Option<String>,
}

/// What a flight waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FlightStage {
    /// Its permit.
    Queued,
    /// The runtime's word whether somebody else has pulled the image meanwhile.
    Rechecking,
    /// The runtime's pull.
    Pulling,
    /// The runtime's word that the image is really there.
    Verifying(PulledFacts),
}

/// One pull with what is known of it.
#[derive(Clone, Debug)]
pub(super) struct Flight {
    pub(super) key: FlightKey,
    pub(super) reference: Reference,
    pub(super) platform: Option<Platform>,
    pub(super) attempt: AttemptId,
    pub(super) permit: PermitId,
    pub(super) trace: TraceContext,
    pub(super) callers: Vec<RequestId>,
    pub(super) stage: FlightStage,
    /// One of its callers wants the registry asked whatever is there.
    pub(super) always: bool,
    /// The tag is resolved: what comes is settled.
    pub(super) resolved: bool,
    /// How many flights had brought an image when its first caller asked.
    pub(super) landed_before: u64,
    pub(super) queued_since: Now,
    /// When it got its turn: what kubelet counts the pull from.
    pub(super) turn_since: Option<Now>,
}

impl Flight {
    /// How long the pull itself takes by now.
    pub(super) fn pull_time(&self, now: Now) -> Duration {
        self.turn_since.map_or(Duration::ZERO, |since| now.monotonic.saturating_sub(since.monotonic))
    }
}
