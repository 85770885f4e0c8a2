//! The counts of one node, for metrics.

use std::time::Duration;

use contract::messages::backoff_tracker::BackoffCounts;

use super::node::Knowledge;
use super::replica::ReplicaCounts;

/// Counts since start, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KnowledgeCounts {
    /// What the replica's bounds did.
    pub replica: ReplicaCounts,
    /// Requests now.
    pub requests: u64,
    /// Requests refused because there was no room.
    pub refused_total: u64,
    /// Failures dropped because they came after their lease had expired.
    pub late_results_total: u64,
    /// Answers of the bus that did not come in time.
    pub bus_misses_total: u64,
    /// Failures that this node did not publish because others succeeded where it fails.
    pub kept_to_itself_total: u64,
    /// Requests refused because of other nodes' reports.
    pub refused_by_shared_total: u64,
    /// Requests that would have been refused without a pause, and if this node did not only observe.
    pub observed_total: u64,
    /// Clears that were new to this node.
    pub cleared_total: u64,
}

impl Knowledge {
    /// Counts since start.
    #[must_use]
    pub fn counts(&self) -> KnowledgeCounts {
        KnowledgeCounts { replica: self.replica.counts(), requests: self.requests.len() as u64, ..self.counts }
    }

    /// The node's own counts.
    #[must_use]
    pub fn own_counts(&self, now: Duration) -> BackoffCounts {
        self.local.counts(now)
    }
}
