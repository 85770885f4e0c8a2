//! The actix shell: a mailbox, a clock and the core.

use actix::{Actor, Context, Handler, MessageResult};
use actors::{Ask, Gravestone, MAILBOX_CAPACITY};
use clock::Clock;
use contract::messages::backoff_tracker::{CheckBackoff, CountBackoffs, ReportAttempt};

use crate::core::{BackoffPolicy, Tracker};

/// The actor that answers whether an image may be tried.
#[derive(Debug)]
pub struct BackoffTracker {
    core: Tracker,
    clock: Clock,
    _gravestone: Gravestone,
}

impl BackoffTracker {
    /// Ready to be started.
    #[must_use]
    pub fn new(policy: BackoffPolicy, clock: Clock, gravestone: Gravestone) -> Self {
        Self { core: Tracker::new(policy), clock, _gravestone: gravestone }
    }
}

impl Actor for BackoffTracker {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Self::Context) {
        context.set_mailbox_capacity(MAILBOX_CAPACITY);
    }
}

impl Handler<Ask<CheckBackoff>> for BackoffTracker {
    type Result = MessageResult<Ask<CheckBackoff>>;

    fn handle(&mut self, Ask(check): Ask<CheckBackoff>, _: &mut Self::Context) -> Self::Result {
        MessageResult(Ok(self.core.check(self.clock.now(), &check.body)))
    }
}

impl Handler<Ask<ReportAttempt>> for BackoffTracker {
    type Result = MessageResult<Ask<ReportAttempt>>;

    fn handle(&mut self, Ask(report): Ask<ReportAttempt>, _: &mut Self::Context) -> Self::Result {
        MessageResult(Ok(self.core.report(self.clock.now(), report.body)))
    }
}

impl Handler<Ask<CountBackoffs>> for BackoffTracker {
    type Result = MessageResult<Ask<CountBackoffs>>;

    fn handle(&mut self, _: Ask<CountBackoffs>, _: &mut Self::Context) -> Self::Result {
        MessageResult(Ok(self.core.counts(self.clock.now())))
    }
}
