//! The registry's limits, as a leader learns them from nodes and sends them to nodes.

use std::time::Duration;

use contract::messages::throttler::{KnownLimits, RegistryLimit};
use contract::{DEADLINES, NodeName, PermitId};

use super::Leader;
use crate::core::budget::planted_bug::PlantedBug;

/// For how long a new leader accepts limits that nodes know from others. Later, its own knowledge is better.
const LEARNS_FOR: Duration = Duration::from_secs(30);
/// For how long a new leader learns if a node reports a quota: by then all waiting nodes have asked it.
const LEARNS_QUOTA: Duration = Duration::from_secs(DEADLINES.budget_asked_again.as_secs() + 1);

impl Leader {
    pub(in crate::core::budget) fn known(&self, now: Duration) -> KnownLimits {
        self.quota.known(now, self.out())
    }

    /// Forgets a quota, and lets one pull find out what the registry counts.
    pub(in crate::core::budget) fn forget_quota(&mut self, now: Duration) {
        if self.quota.is_limited() {
            self.quota.forget();
            self.tick(now);
        }
    }

    /// The limits that are sent to a node.
    pub(super) fn limits_for(&mut self, now: Duration, node: &NodeName) -> KnownLimits {
        let mut known = self.quota.known_to(node, self.known(now));
        if *node != self.node {
            known.limits.iter_mut().for_each(|limit| limit.remaining = limit.remaining.saturating_sub(1));
            self.own_pull_announced = true;
            self.others_last_seen = Some(now);
        }
        known
    }

    /// Takes what the registry stated in a pull, and returns when the pull was granted; none if this was reported before.
    pub(super) fn learn_stated(
        &mut self,
        now: Duration,
        node: &NodeName,
        id: PermitId,
        limits: &[RegistryLimit],
    ) -> Option<Option<Duration>> {
        let granted = self.permits.mark_answered(node, id)?;
        let out = self.out();
        self.quota.learn(now, node, granted, limits, out);
        Some(granted)
    }

    pub(super) fn learn_limits(&mut self, now: Duration, node: &NodeName, known: &KnownLimits) {
        self.quota.node_called(now, node);
        if now > self.since + LEARNS_FOR {
            return;
        }
        if !known.limits.is_empty() {
            let out = self.out();
            self.quota.learn(now, node, None, &known.limits, out);
            if self.planted_bug != Some(PlantedBug::LearnsNothing) {
                self.learns_until = self.learns_until.max(self.since + LEARNS_QUOTA);
            }
        } else if known.none_stated {
            self.quota.none_stated();
        }
    }
}
