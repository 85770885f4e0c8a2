//! An unsampled request that has no span so far.
//!
//! Most requests find their image present, and most traces are not sampled. Such a request and its steps are only noted. They become spans
//! if the request is slow, fails, or goes on to a back-off check. This keeps traces cheap for most pulls.

use std::time::Duration;

use contract::EventReason;
use spans::Entered;

use super::attributes::Asked;

/// An unsampled request, and its steps.
#[derive(Debug)]
pub(super) struct Deferred {
    pub(super) entered: Entered,
    pub(super) asked: Asked,
    pub(super) steps: Vec<Noted>,
}

/// A step without a span.
#[derive(Debug)]
pub(super) struct Noted {
    pub(super) step: Step,
    /// On the monotonic clock.
    pub(super) began: Duration,
    /// None: it is under way.
    pub(super) took: Option<Duration>,
}

#[derive(Debug)]
pub(super) enum Step {
    /// The runtime was asked whether the image is present; if the step is over, it is.
    Inspect,
    Record(EventReason),
}

impl Deferred {
    pub(super) fn new(entered: Entered, asked: Asked) -> Self {
        Self { entered, asked, steps: Vec::new() }
    }

    pub(super) fn begin_step(&mut self, step: Step) {
        self.steps.push(Noted { step, began: self.entered.monotonic(), took: None });
    }

    pub(super) fn end_step(&mut self) {
        if let Some(last) = self.steps.last_mut() {
            let took = self.entered.monotonic().saturating_sub(last.began);
            last.took.get_or_insert(took);
        }
    }
}
