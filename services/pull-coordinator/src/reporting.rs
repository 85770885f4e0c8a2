//! Reports a failure to the tracker and then records it, because the event names the back-off entry of the failure.

use actix::Context;
use contract::messages::backoff_tracker::ReportAttempt;
use contract::{EventReason, PullEvent, TraceContext};
use futures::FutureExt as _;
use tokio::sync::oneshot;

use crate::actor::PullCoordinator;
use crate::core::{Input, RequestId};

/// The entry of a failure that is being reported; none: no entry, or the tracker did not answer.
pub(crate) type EntryOfFailure = oneshot::Receiver<Option<String>>;

impl PullCoordinator {
    pub(crate) fn report(&mut self, request: RequestId, report: ReportAttempt, trace: TraceContext, context: &mut Context<Self>) {
        let entry_sender = report.failure.is_some().then(|| {
            let (sender, entry) = oneshot::channel();
            self.entries_of_failures.insert(request, entry);
            sender
        });
        let report = self.outbound.report(trace, report);
        self.pending.spawn(context, report, move |reported, coordinator, context| {
            if let Some(sender) = entry_sender {
                // There is no receiver if the request was abandoned.
                let _ = sender.send(reported.entry.clone());
            }
            if let Some(traces) = &mut coordinator.traces {
                traces.opened(request, reported.entry);
            }
            coordinator.feed(Input::Reported { request, next_attempt_ms: reported.next_attempt_ms }, context);
        });
    }

    pub(crate) fn record(&mut self, request: RequestId, event: PullEvent, context: &mut Context<Self>) {
        let recorded = Input::Recorded { request };
        let entry = if event.reason == EventReason::Failed { self.entries_of_failures.remove(&request) } else { None };
        if let Some(entry) = entry {
            let outbound = self.outbound.clone();
            let record = async move {
                let entry = entry.await.ok().flatten().or_else(|| event.entry.clone());
                if let Some(record) = outbound.record(PullEvent { entry, ..event }) {
                    record.await;
                }
            };
            self.then(record.boxed_local(), context, move |()| recorded);
            return;
        }
        match self.outbound.record(event) {
            Some(record) => {
                self.then(record, context, move |()| recorded);
            }
            None => self.follow_ups.push_back(recorded),
        }
    }
}
