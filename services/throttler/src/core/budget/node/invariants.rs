//! Invariants after each step, asserted in builds with debug assertions.

use super::{Budget, Budgets, OWNERS_MAX};
use crate::core::budget::planted_bug::PlantedBug;

impl Budgets {
    pub(super) fn assert_invariants(&self) {
        if !cfg!(debug_assertions) {
            return;
        }
        debug_assert!(self.budgets.len() <= OWNERS_MAX, "budgets are bounded");
        let has_lease = |budget: &Budget| budget.lease.until().is_some();
        debug_assert!(
            self.planted_bug == Some(PlantedBug::NoFence) || self.budgets.values().all(|budget| budget.lead.is_none() || has_lease(budget)),
            "a node that leads a budget has its lease"
        );
        debug_assert!(self.owners.values().all(|owner| self.budgets.contains_key(owner)), "a permit is one of a known budget");
        let claimed = self.budgets.values().map(|budget| budget.client.waiting() + budget.client.in_flight()).sum::<u64>();
        debug_assert_eq!(self.owners.len() as u64, claimed, "each permit's budget is known, and of no other");
        debug_assert!(self.alive.iter().is_sorted_by(|(at, most), (later, less)| at <= later && most > less), "the known sizes fall");
        self.budgets.values().for_each(|budget| budget.client.assert_invariants());
        self.leads().for_each(|(_, lead)| lead.core.assert_invariants());
    }
}
