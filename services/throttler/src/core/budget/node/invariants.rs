//! Invariants after each step, asserted in builds with debug assertions.

use super::{Budgets, OWNERS_MAX};
use crate::core::budget::planted_bug::PlantedBug;

impl Budgets {
    pub(super) fn assert_invariants(&self) {
        if !cfg!(debug_assertions) {
            return;
        }
        debug_assert!(self.clients.len() <= OWNERS_MAX, "budgets are bounded");
        debug_assert!(self.leads.keys().all(|owner| self.clients.contains_key(owner)), "a node that leads a budget is its client");
        debug_assert!(
            self.leases.keys().all(|owner| self.clients.contains_key(owner)),
            "a node that wants a lease is a client of its budget"
        );
        let has_lease = |owner: &String| self.leases.get(owner).is_some_and(|lease| lease.until().is_some());
        debug_assert!(
            self.planted_bug == Some(PlantedBug::NoFence) || self.leads.keys().all(has_lease),
            "a node that leads a budget has its lease"
        );
        debug_assert!(self.owners.values().all(|owner| self.clients.contains_key(owner)), "a permit is one of a known budget");
        let claimed = self.clients.values().map(|(_, client)| client.waiting() + client.in_flight()).sum::<u64>();
        debug_assert_eq!(self.owners.len() as u64, claimed, "each permit's budget is known, and of no other");
        debug_assert!(self.alive.iter().is_sorted_by(|(at, most), (later, less)| at <= later && most > less), "the known sizes fall");
        self.clients.values().for_each(|(_, client)| client.assert_invariants());
        self.leads.values().for_each(|lead| lead.core.assert_invariants());
    }
}
