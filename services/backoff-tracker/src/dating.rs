//! The clock that dates reports.

use clock::{Clock, Now};

use crate::core::knowledge::OLDEST;

/// The node's clock, shifted by `OLDEST`, so that reports from before the node started have a date too.
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
