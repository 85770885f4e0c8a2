//! How long waiting nodes wait for their turn.

use std::time::Duration;

use contract::NodeName;
use contract::messages::throttler::BudgetWaiter;

use super::Leader;

impl Leader {
    pub(in crate::core::budget) fn waiters(&self, now: Duration, most: usize) -> Vec<BudgetWaiter> {
        let waits = |(ahead, node): (usize, &NodeName)| BudgetWaiter {
            node: node.clone(),
            wait_ms: self.wait(now, ahead as u64, node).as_millis() as u64,
        };
        self.permits.waiting_nodes().take(most).enumerate().map(waits).collect()
    }

    /// How long until a waiting node has its turn, with `ahead` requests before it, as far as that is known. Callers that cannot wait so
    /// long are refused at once, so a wait for slots counts only what was measured.
    pub(super) fn wait(&self, now: Duration, ahead: u64, node: &NodeName) -> Duration {
        let rate = self.rate_limiter.ready_in(now, ahead);
        let quota = self.quota.wait(now, self.out(), ahead, node);
        let slots = match self.slots() {
            None => Duration::ZERO,
            Some(slots) => {
                let free = slots.saturating_sub(self.permits.out_count());
                let rounds = if ahead < free { 0 } else { (ahead - free) / slots + 1 };
                self.pull_takes.unwrap_or_default().saturating_mul(u32::try_from(rounds).unwrap_or(u32::MAX))
            }
        };
        rate.max(quota).max(slots).max(self.learns_until.saturating_sub(now))
    }
}
