//! How a node pulls beyond kubelet's way, as the program says it when it composes a node.

use std::time::Duration;

use actors::Sender;
use contract::messages::backoff_tracker::BeginAttempt;
use contract::messages::throttler::ReportLimits;

use crate::locality::Locality;
use crate::outbound::FleetNeighbours;
use crate::standing_pull_file::StandingPullStoreRef;

/// The node shares: what it learns of failures, and what it asks of registries.
#[derive(Clone, Debug)]
pub struct Sharing {
    /// The tracker's side of it.
    pub neighbours: FleetNeighbours,
    /// Where the node stands.
    pub locality: Locality,
    /// How long a pull without a standing pull waits for the fleet (`throttle.max_wait`).
    pub max_wait: Duration,
}

/// Whom a coordinator that shares tells of a pull before it is over.
#[derive(Clone, Debug)]
pub struct EarlyWord {
    /// The back-off tracker's `begin`: that an attempt has left its queues.
    pub begin: Sender<BeginAttempt>,
    /// The throttler's `limits`: what the registry told with the manifest.
    pub limits: Sender<ReportLimits>,
}

/// What a coordinator may be given besides what kubelet has. By default nothing.
#[derive(Clone, Debug, Default)]
pub struct Extras {
    /// None: it goes by kubelet's rule alone.
    pub sharing: Option<Sharing>,
    /// None: nobody is told before a pull is over.
    pub early: Option<EarlyWord>,
    /// Where standing pulls are written down; none: they end with the process.
    pub standing_pulls: Option<StandingPullStoreRef>,
    /// Bytes that a pull which no pod asked for must leave free (`pull.keep_free`); none: however few.
    pub keep_free: Option<u64>,
}
