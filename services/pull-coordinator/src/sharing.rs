//! What the program gives a coordinator beyond kubelet's behaviour.

use std::time::Duration;

use actors::Sender;
use contract::messages::backoff_tracker::BeginAttempt;
use contract::messages::throttler::ReportLimits;

use crate::locality::Locality;
use crate::outbound::FleetNeighbours;
use crate::standing_pull_file::StandingPullStoreRef;

/// What a coordinator needs to share failures and registry budgets with the fleet.
#[derive(Clone, Debug)]
pub struct Sharing {
    /// The tracker's commands for it.
    pub neighbours: FleetNeighbours,
    /// The node's locality.
    pub locality: Locality,
    /// How long a caller without a standing pull waits for clearance and budget (`throttle.max_wait`).
    pub max_wait: Duration,
}

/// Commands that a coordinator sends about a pull before the pull is over.
#[derive(Clone, Debug)]
pub struct MidPullSenders {
    /// The back-off tracker's `begin`: an attempt has left the node's queues.
    pub begin: Sender<BeginAttempt>,
    /// The throttler's `limits`: the limits that the registry stated with the manifest.
    pub limits: Sender<ReportLimits>,
}

/// What a coordinator may be given beyond kubelet's behaviour. By default nothing.
#[derive(Clone, Debug, Default)]
pub struct Extras {
    /// None: kubelet's rule alone applies.
    pub sharing: Option<Sharing>,
    /// None: nothing is sent before a pull is over.
    pub mid_pull: Option<MidPullSenders>,
    /// Where standing pulls are stored; none: they end with the process.
    pub standing_pulls: Option<StandingPullStoreRef>,
    /// Bytes that a pull without a pod must leave free (`pull.keep_free`); none: no limit.
    pub keep_free: Option<u64>,
}
