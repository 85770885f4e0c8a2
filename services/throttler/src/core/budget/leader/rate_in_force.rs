//! The rate at which a leader grants permits, and what limits it.

use std::time::Duration;

use contract::NodeName;

use super::Leader;
use crate::core::budget::BudgetPolicy;
use crate::core::budget::adaptive_rate::AdaptiveRate;
use crate::core::budget::rate::{Rate, RateCause};

impl Leader {
    /// The rate as people are shown it.
    pub(in crate::core::budget) fn rate(&self) -> Rate {
        let per_1000_s = |rate: f64| (rate > 0.0).then(|| (rate * 1_000.0).round() as u64);
        match self.cause() {
            RateCause::Quota => Rate { per_1000_s: Some(0), starts_at: None, cause: RateCause::Quota },
            RateCause::Starting => Rate {
                per_1000_s: per_1000_s(self.kept_rate()),
                starts_at: per_1000_s(self.limited_to),
                cause: if self.silent_nodes > 0 { RateCause::SilentNodes } else { RateCause::Policy },
            },
            cause => Rate { per_1000_s: per_1000_s(self.limited_to), starts_at: None, cause },
        }
    }

    /// The rate in force; 0 for no limit.
    pub(in crate::core::budget) fn in_force(&self) -> f64 {
        if self.quota.is_spent() { 0.0 } else { self.limited_to }
    }

    /// Why the rate in force is not higher.
    pub(in crate::core::budget) fn cause(&self) -> RateCause {
        let adapted = self.adaptive.as_ref().filter(|adaptive| adaptive.in_force() < self.kept_rate());
        match adapted {
            _ if self.quota.is_spent() => RateCause::Quota,
            Some(adaptive) if adaptive.is_found() => RateCause::Overload,
            Some(_) => RateCause::Starting,
            None if self.limited_to < self.policy.per_second => RateCause::SilentNodes,
            None => RateCause::Policy,
        }
    }

    /// The share of the budget that is kept for silent nodes: each may be pulling by its own share.
    pub(super) fn reserved(&self) -> f64 {
        (self.silent_nodes as f64 / self.nodes.max(1) as f64).clamp(0.0, 1.0)
    }

    /// The cap without the share of the silent nodes, but at least one node's share.
    pub(super) fn kept_rate(&self) -> f64 {
        self.policy.per_second * (1.0 - self.reserved()).max(1.0 / self.nodes.max(1) as f64)
    }

    /// Sets the caps in force.
    pub(in crate::core::budget) fn set_policy(&mut self, now: Duration, policy: BudgetPolicy) {
        let before = std::mem::replace(&mut self.policy, policy);
        if before.per_second == policy.per_second {
            return;
        }
        match &mut self.adaptive {
            Some(adaptive) if policy.per_second > 0.0 => adaptive.set_cap(now, policy.per_second),
            _ => self.adaptive = adaptive(now, policy),
        }
        self.set_rate_limiter();
    }

    pub(super) fn set_rate_limiter(&mut self) {
        let found = self.adaptive.as_ref().map_or(f64::INFINITY, AdaptiveRate::in_force);
        self.limited_to = self.kept_rate().min(found);
        self.rate_limiter.set(self.limited_to);
    }

    /// The registry has answered a pull.
    pub(super) fn answered(&mut self, now: Duration, node: &NodeName, granted: Option<Duration>, served: bool) {
        // A failure does not show how long answers take: it comes at once, or after a timeout.
        self.silence.answered(now, granted.filter(|_| served).map(|granted| now.saturating_sub(granted)));
        if let Some(adaptive) = &mut self.adaptive {
            adaptive.answered(now, node, granted, served);
            self.set_rate_limiter();
        }
    }

    /// Keeps a share for `silent` of `known` nodes.
    pub(in crate::core::budget) fn reserve(&mut self, silent: u64, known: u64) {
        (self.silent_nodes, self.nodes) = (silent, known);
        self.set_rate_limiter();
    }
}

/// The state that finds the rate under a cap; none if there is no cap.
pub(super) fn adaptive(now: Duration, policy: BudgetPolicy) -> Option<AdaptiveRate> {
    (policy.per_second > 0.0).then(|| AdaptiveRate::new(now, policy.per_second))
}
