//! Who waits for an answer, and who does not any more.

use std::sync::Arc;
use std::time::Duration;

use actix::{AsyncContext as _, Context};
use actors::{Answer, Ask, PendingHandle};
use contract::Carried;
use contract::messages::pull_coordinator::EnsureImage;

use crate::actor::PullCoordinator;
use crate::core::{Input, RequestId};

/// How often it is looked which callers have gone. A timer for all of them costs a pull less than a watch of its own.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// One that waits.
pub(crate) struct Caller {
    pub(crate) answer: Answer<Ask<EnsureImage>>,
    /// Rings when its own time is over.
    pub(crate) alarm: Option<PendingHandle>,
    /// What came along with its trace.
    pub(crate) carried: Option<Arc<Carried>>,
}

impl PullCoordinator {
    /// Looks now and then whether callers have gone, as long as there are any.
    pub(crate) fn look_after_callers(&mut self, context: &mut Context<Self>) {
        if self.looks_after_callers || self.callers.is_empty() {
            return;
        }
        self.looks_after_callers = true;
        context.run_later(LOOK_EVERY, |coordinator, context| {
            coordinator.looks_after_callers = false;
            coordinator.give_up_abandoned(context);
            coordinator.look_after_callers(context);
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
            self.feed(Input::CallerGone { request }, context);
        }
    }
}
