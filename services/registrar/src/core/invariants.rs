//! What holds after each step, asserted in builds with debug assertions.

use std::time::Duration;

use super::membership::Membership;

impl Membership {
    /// Nothing is overdue, the lease is asked for once at a time, and who has left leads nothing.
    pub(super) fn assert_invariants(&self, now: Duration) {
        if !cfg!(debug_assertions) {
            return;
        }
        if self.has_left {
            debug_assert!(self.leading.is_none(), "who has left is not the registrar");
            debug_assert!(self.next_due().is_none(), "who has left has nothing to do");
            return;
        }
        debug_assert!(self.next_due().is_some_and(|due| due > now), "all that was due is done: {:?} at {now:?}", self.next_due());
        debug_assert!(!(self.is_trying && self.leading.is_some()), "who holds the lease does not ask for it");
        if let Some(leading) = &self.leading {
            debug_assert!(now < leading.until, "who leads has the lease");
            leading.roster.assert_invariants();
        }
    }
}
