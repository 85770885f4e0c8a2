//! What holds after each step, asserted in builds with debug assertions.

use super::lease::MISSES_TO_GONE;
use super::node::{Knowledge, MAX_WISHES};
use super::wish::State;

impl Knowledge {
    /// Bounds hold, and nobody waits without being woken.
    pub(super) fn assert_invariants(&self) {
        if !cfg!(debug_assertions) {
            return;
        }
        debug_assert!(self.wishes.len() <= MAX_WISHES, "images wanted are bounded");
        debug_assert!(self.misses() < MISSES_TO_GONE || self.is_alone(), "a bus that misses so many answers counts as gone");
        self.wishes.assert_invariants();
        for (id, wish) in self.wishes.iter() {
            debug_assert!(wish.wake.is_some() || matches!(wish.state, State::Going(_)), "{id:?} is looked at again");
        }
    }
}
