//! How long a fleet takes to spread an action of each of its nodes.

use std::time::Duration;

/// Nodes per second that act, so that the server is not overloaded...
const NODES_PER_SECOND: u64 = 200;
/// ... but no node waits longer than this.
const LONGEST: Duration = Duration::from_secs(30);

/// The time over which `nodes` nodes spread the action: 200 nodes per second, and at most 30 s.
#[must_use]
pub(super) fn spread_over(nodes: u64) -> Duration {
    Duration::from_millis(nodes.saturating_mul(1_000 / NODES_PER_SECOND)).min(LONGEST)
}
