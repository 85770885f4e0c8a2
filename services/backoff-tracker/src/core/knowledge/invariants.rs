//! Invariants after each step, asserted in builds with debug assertions.

use super::lease::MISSES_UNTIL_LOST;
use super::node::{Knowledge, MAX_REQUESTS};
use super::request::State;

impl Knowledge {
    /// Asserts that bounds hold, and that each waiting request has a time at which it is looked at again.
    pub(super) fn assert_invariants(&self) {
        if !cfg!(debug_assertions) {
            return;
        }
        debug_assert!(self.requests.len() <= MAX_REQUESTS, "images wanted are bounded");
        debug_assert!(self.misses < MISSES_UNTIL_LOST || self.is_without_bus(), "a bus that misses this many answers counts as lost");
        self.requests.assert_invariants();
        self.failed_keys.assert_invariants();
        for (id, request) in self.requests.iter() {
            debug_assert!(request.wake.is_some() || matches!(request.state, State::RunningAttempt(_)), "{id:?} is looked at again");
        }
    }
}
