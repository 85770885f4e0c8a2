//! Which nodes' failures do not count, because others succeed where they fail.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use contract::{FailureClass, NodeName};

use super::Replica;
use crate::core::knowledge::backoff_key::{BackoffKey, BackoffKeyId};
use crate::core::knowledge::entry::Received;
use crate::core::knowledge::report::Report;

/// How long a distrusted node's reports count for itself alone.
pub const DISTRUSTED_FOR: Duration = Duration::from_secs(600);
/// The refuted reporters of a key are determined this often at most.
const REFUTED_APART: Duration = Duration::from_secs(1);
/// How many successes within that time end the distrust of a reporter that failed alone. Further ones do not.
const TRUST_RESTORED_AT_MOST: u32 = 2;

/// A kind of failure: a class, in a view.
pub(super) type Kind = (u128, FailureClass);

/// A distrusted node.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Distrust {
    /// When other nodes last had success where this node had none.
    pub(super) refuted_at: Duration,
    /// The key of that success.
    refuted_on: Option<BackoffKeyId>,
    /// When the node itself last had success; or others, if the node had had success before them.
    healthy_at: Option<Duration>,
    /// Whether another node had failed too when the distrust began: then the cause was not this node alone.
    together: bool,
    /// How often a success of its own has ended the distrust.
    restored: u32,
}

impl Distrust {
    pub(super) fn holds(self, now: Duration) -> bool {
        let is_trusted_again = self.healthy_at.is_some_and(|healthy| healthy >= self.refuted_at) && self.restored <= TRUST_RESTORED_AT_MOST;
        now < self.refuted_at + DISTRUSTED_FOR && !is_trusted_again
    }
}

impl Replica {
    /// When a distrusted reporter may count again, at the earliest.
    pub(super) fn trust_changes(&self, now: Duration) -> Duration {
        if now < self.trust_changes { self.trust_changes } else { self.next_trust_change(now) }
    }

    fn next_trust_change(&self, now: Duration) -> Duration {
        let ends = self.distrust.values().flat_map(BTreeMap::values).map(|distrust| distrust.refuted_at + DISTRUSTED_FOR);
        ends.filter(|end| now < *end).min().unwrap_or(Duration::MAX)
    }

    /// True if the reporter is distrusted for any kind of failure in the view. Its report alone counts for itself then.
    pub(super) fn is_distrusted_in_view(&self, now: Duration, report: &Report) -> bool {
        let view = report.backoff_key.view_id();
        let holds = |class| self.distrust.get(&(view, class)).and_then(|nodes| nodes.get(&report.reporter)).is_some_and(|of| of.holds(now));
        FailureClass::ALL.into_iter().any(holds)
    }

    /// True if a node reports a failure of the key, and no node a success since.
    #[must_use]
    pub fn is_failing(&self, backoff_key: BackoffKeyId) -> bool {
        let Some(reports) = self.backoff_keys.get(&backoff_key).filter(|reports| reports.fails()) else { return false };
        reports.failures_since(self.in_order_at(reports)).next().is_some()
    }

    /// Whether a node is distrusted for this kind of failure.
    pub(in crate::core::knowledge) fn is_distrusted(&self, now: Duration, node: &NodeName, backoff_key: Option<&Arc<BackoffKey>>) -> bool {
        backoff_key.is_some_and(|backoff_key| self.is_distrusted_for(now, node, backoff_key))
    }

    /// A distrusted node that fails again stays distrusted for [`DISTRUSTED_FOR`] from now on.
    pub(in crate::core::knowledge) fn still_distrusted(&mut self, now: Duration, node: &NodeName, backoff_key: &BackoffKey) {
        if let Some(distrust) = self.distrust.get_mut(&kind(backoff_key)).and_then(|nodes| nodes.get_mut(node)) {
            distrust.refuted_at = distrust.refuted_at.max(now);
        }
    }

    pub(super) fn is_distrusted_for(&self, now: Duration, node: &NodeName, backoff_key: &BackoffKey) -> bool {
        self.distrust.get(&kind(backoff_key)).and_then(|nodes| nodes.get(node)).is_some_and(|distrust| distrust.holds(now))
    }

    /// A node whose failure stands although another has succeeded since becomes distrusted for a while.
    pub(super) fn distrust_refuted(&mut self, now: Duration, backoff_key: BackoffKeyId) {
        let (Some(success), Some(reports)) = (self.succeeded_at(backoff_key), self.backoff_keys.get_mut(&backoff_key)) else { return };
        // A node that is distrusted already is left out; its successes since are counted in `restored`.
        let known = |report: &Report| {
            let distrust = self.distrust.get(&kind(&report.backoff_key)).and_then(|nodes| nodes.get(&report.reporter));
            distrust.is_some_and(|distrust| distrust.refuted_at >= success)
        };
        let refuted = reports.take_refuted(success, REFUTED_APART).into_iter().filter(|received| !known(&received.report));
        let distrusted: Vec<Arc<Report>> = refuted.map(|received| Arc::clone(&received.report)).collect();
        if distrusted.is_empty() {
            return;
        }
        let together = reports.failures().filter(|received| received.failing_since < success).nth(1).is_some();
        if now >= self.trust_changes {
            self.trust_changes = self.next_trust_change(now);
        }
        for report in distrusted {
            let healthy_at = self.healthy_at(&report);
            let held = self.is_distrusted_for(now, &report.reporter, &report.backoff_key);
            let nodes = self.distrust.entry(kind(&report.backoff_key)).or_default();
            let distrust = nodes.entry(report.reporter.clone()).or_default();
            distrust.healthy_at = distrust.healthy_at.max(healthy_at);
            distrust.together = together || (held && distrust.together);
            (distrust.refuted_at, distrust.refuted_on) = (success, Some(backoff_key));
            self.trust_changes = self.trust_changes.min(success + DISTRUSTED_FOR);
            if distrust.holds(now) != held {
                self.derived.forget_all();
            }
            self.counts.distrusted_total += 1;
        }
    }

    /// When a reporter itself last succeeded for this kind of failure.
    pub(super) fn healthy_at(&self, report: &Report) -> Option<Duration> {
        let healthy = |received: &&Received| received.claim.is_none() && kind(&received.report.backoff_key) == kind(&report.backoff_key);
        self.received_from(self.reporters.find(&report.reporter)?).filter(healthy).map(|received| received.date).max()
    }

    /// A success of its own ends the distrust of a node, but not time after time if it failed alone. If `over`, it ends a failure that was
    /// known of the node: others' later successes on that key do not refute that failure, even if they arrived first, because reports arrive
    /// late without a bus.
    pub(super) fn restore_trust(&mut self, now: Duration, report: &Report, date: Duration, over: bool) {
        if let Some(distrust) = self.distrust.get_mut(&kind(&report.backoff_key)).and_then(|nodes| nodes.get_mut(&report.reporter)) {
            self.derived.forget_all();
            let held = distrust.holds(now);
            let is_not_refuted = over && distrust.refuted_on == Some(report.backoff_key.id());
            let healthy_at = if is_not_refuted { date.max(distrust.refuted_at) } else { date };
            distrust.healthy_at = distrust.healthy_at.max(Some(healthy_at));
            // One success is reported for several keys. Only the one that ends the distrust counts.
            let restores = held && healthy_at >= distrust.refuted_at;
            distrust.restored += u32::from(restores && !distrust.together);
        }
    }
}

pub(super) fn kind(backoff_key: &BackoffKey) -> Kind {
    (backoff_key.view_id(), backoff_key.class())
}
