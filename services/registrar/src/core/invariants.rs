//! Invariants after each step, asserted in builds with debug assertions.

use std::time::Duration;

use super::membership::Membership;

impl Membership {
    /// Nothing is overdue; an agent is the registrar if and only if it has the lease; an agent that has left is not the registrar.
    pub(super) fn assert_invariants(&self, now: Duration) {
        if !cfg!(debug_assertions) {
            return;
        }
        if self.has_left {
            debug_assert!(self.leading.is_none(), "an agent that has left is not the registrar");
            debug_assert!(self.next_due().is_none(), "an agent that has left has nothing to do");
            return;
        }
        debug_assert!(self.next_due().is_some_and(|due| due > now), "all that was due is done: {:?} at {now:?}", self.next_due());
        debug_assert_eq!(self.lease.epoch(now).is_some(), self.leading.is_some(), "the registrar has the lease");
        if let Some(leading) = &self.leading {
            leading.roster.assert_invariants();
        }
    }
}
