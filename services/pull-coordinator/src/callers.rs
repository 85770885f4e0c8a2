//! The callers that wait for an answer, and the check for abandoned ones.

use std::sync::Arc;
use std::time::Duration;

use actix::{AsyncContext as _, Context};
use actors::{Answer, Ask, PendingHandle};
use contract::Carried;
use contract::messages::pull_coordinator::EnsureImage;

use crate::actor::PullCoordinator;
use crate::core::{Input, RequestId};

/// How often callers are checked for having been abandoned. One timer for all costs less than a watch for each.
const CHECK_CALLERS_EVERY: Duration = Duration::from_secs(1);

pub(crate) struct Caller {
    pub(crate) answer: Answer<Ask<EnsureImage>>,
    /// Rings when the caller's time-out is over.
    pub(crate) alarm: Option<PendingHandle>,
    /// What the caller's message carried with the trace.
    pub(crate) carried: Option<Arc<Carried>>,
}

impl PullCoordinator {
    /// Checks every second for abandoned callers while there are callers.
    pub(crate) fn watch_callers(&mut self, context: &mut Context<Self>) {
        if self.watching_callers || self.callers.is_empty() {
            return;
        }
        self.watching_callers = true;
        context.run_later(CHECK_CALLERS_EVERY, |coordinator, context| {
            coordinator.watching_callers = false;
            coordinator.give_up_abandoned(context);
            coordinator.watch_callers(context);
        });
    }

    fn give_up_abandoned(&mut self, context: &mut Context<Self>) {
        let abandoned = self.callers.iter().filter(|(_, caller)| caller.answer.is_abandoned()).map(|(request, _)| *request);
        for request in abandoned.collect::<Vec<RequestId>>() {
            let Some(caller) = self.callers.remove(&request) else { continue };
            if let Some(alarm) = caller.alarm {
                alarm.cancel();
            }
            self.answered.abandoned_total += 1;
            self.feed(Input::CallerAbandoned { request }, context);
        }
    }
}
