//! The counts of one node, for metrics.

use std::time::Duration;

use contract::messages::backoff_tracker::{BackoffCounts, SharedCounts};

use super::node::Knowledge;

impl Knowledge {
    /// Counts since start, and the reports and requests of now.
    #[must_use]
    pub fn counts(&self) -> SharedCounts {
        let replica = self.replica.counts();
        SharedCounts {
            reports: replica.reports,
            reports_received_total: replica.reports_received_total,
            reports_stale_total: replica.reports_stale_total,
            reports_clamped_total: replica.reports_clamped_total,
            reports_evicted_total: replica.reports_evicted_total,
            requests: self.requests.len() as u64,
            ..self.counts
        }
    }

    /// The node's own counts.
    #[must_use]
    pub fn own_counts(&self, now: Duration) -> BackoffCounts {
        self.failed_keys.counts(now)
    }
}
