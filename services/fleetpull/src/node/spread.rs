//! Over how long a whole fleet spreads what each of its nodes does once.

use std::time::Duration;

/// So many of a fleet's nodes do at a time what costs a server something, in nodes per second...
const NODES_PER_SECOND: u64 = 200;
/// ... but no node waits longer than this for its turn.
const LONGEST: Duration = Duration::from_secs(30);

/// Over how long `nodes` nodes spread it: 200 a second, and at most 30 s.
#[must_use]
pub(super) fn spread_over(nodes: u64) -> Duration {
    Duration::from_millis(nodes.saturating_mul(1_000 / NODES_PER_SECOND)).min(LONGEST)
}
