//! The clock that things are dated by here.

use clock::{Clock, Now};

use crate::core::knowledge::OLDEST;

/// The node's clock, counted from long before the node began: what a node reads at its start was so before, and has a date too.
#[derive(Clone, Debug)]
pub(crate) struct Dating(Clock);

impl Dating {
    pub(crate) fn by(clock: Clock) -> Self {
        Self(clock)
    }

    pub(crate) fn now(&self) -> Now {
        let now = self.0.now();
        Now { monotonic: now.monotonic + OLDEST, ..now }
    }
}
