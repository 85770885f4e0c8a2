//! Handlers that list and explain pulls, and that list and cancel standing pulls.

use actix::{Handler, MessageResult, ResponseFuture};
use actors::Ask;
use contract::CallError;
use contract::messages::pull_coordinator::{
    CancelStandingPull, ExplainImage, Explanation, LayerStatus, ListPulls, ListStandingPulls, PullList, PullState, PullStatus,
    StandingPullList, StandingPullStatus, StandingPullsCancelled,
};
use image::Reference;
use tokio::sync::oneshot;
use tracing::Instrument as _;

use crate::actor::PullCoordinator;
use crate::core::{FlightView, Input};
use crate::explain::Asked;

impl Handler<Ask<ListPulls>> for PullCoordinator {
    type Result = MessageResult<Ask<ListPulls>>;

    fn handle(&mut self, _: Ask<ListPulls>, _: &mut Self::Context) -> Self::Result {
        let pulls = self.core.flights(self.clock.now()).into_iter().map(|view| self.pull_status(view)).collect();
        let answered = self.answered.and(self.core.ended_without_caller());
        MessageResult(Ok(PullList { pulls, answered, standing: self.core.standing_count() as u64 }))
    }
}

impl Handler<Ask<ListStandingPulls>> for PullCoordinator {
    type Result = MessageResult<Ask<ListStandingPulls>>;

    fn handle(&mut self, _: Ask<ListStandingPulls>, _: &mut Self::Context) -> Self::Result {
        MessageResult(Ok(StandingPullList { standing_pulls: self.core.standing_pulls(self.clock.now()) }))
    }
}

impl Handler<Ask<CancelStandingPull>> for PullCoordinator {
    type Result = ResponseFuture<Result<StandingPullsCancelled, CallError>>;

    fn handle(&mut self, Ask(envelope): Ask<CancelStandingPull>, context: &mut Self::Context) -> Self::Result {
        let mut cancelled = self.core.standing_pulls(self.clock.now());
        cancelled.retain(|standing_pull| is_meant(standing_pull, &envelope.body.what));
        for standing_pull in &cancelled {
            self.feed(Input::StandingPullCancelled { standing_pull: standing_pull.standing_pull, by: envelope.body.by.clone() }, context);
        }
        // Answer only when this is on disk: otherwise a crash would bring the standing pulls back.
        let writing = self.core.writing_of_standing_pulls().filter(|_| !cancelled.is_empty());
        let written = writing.map(|writing| {
            let (until, written) = oneshot::channel();
            self.write_waiters.push((writing, until));
            written
        });
        Box::pin(async move {
            if let Some(written) = written {
                let _ = written.await;
            }
            Ok(StandingPullsCancelled { cancelled })
        })
    }
}

impl Handler<Ask<ExplainImage>> for PullCoordinator {
    type Result = ResponseFuture<Result<Explanation, CallError>>;

    fn handle(&mut self, Ask(envelope): Ask<ExplainImage>, _: &mut Self::Context) -> Self::Result {
        let in_flight = Reference::parse(&envelope.body.image).is_ok_and(|reference| self.core.is_in_flight(&reference));
        let asked = Asked {
            runtime: self.runtime.clone(),
            outbound: self.outbound.clone(),
            locality: self.locality.clone(),
            waits_for_fleet: self.core.waits_for_fleet().unwrap_or_default(),
        };
        let (span, trace) = self.enter_question("pull-coordinator.ExplainImage", &envelope.meta);
        Box::pin(crate::explain::explain(asked, envelope.body, in_flight, trace).instrument(span.as_tracing()))
    }
}

impl PullCoordinator {
    fn pull_status(&self, view: FlightView) -> PullStatus {
        let progress = self.flights.get(&view.flight).map(|under_way| under_way.progress.snapshot()).unwrap_or_default();
        let (done_bytes, total_bytes) = progress.bytes();
        let layer = |layer: runtimes::LayerProgress| LayerStatus {
            digest: layer.digest,
            done_bytes: layer.done_bytes,
            total_bytes: layer.total_bytes,
        };
        PullStatus {
            image: view.image,
            state: if view.pulling { PullState::Pulling } else { PullState::Waiting },
            since_ms: u64::try_from(view.since.as_millis()).unwrap_or(u64::MAX),
            callers: u32::try_from(view.callers).unwrap_or(u32::MAX),
            done_bytes,
            total_bytes,
            layers: progress.layers.into_iter().map(layer).collect(),
        }
    }
}

/// Whether `what` names this standing pull: by its id, or by its image in any spelling.
fn is_meant(standing_pull: &StandingPullStatus, what: &str) -> bool {
    let normalised = |image: &str| Reference::parse(image).ok().map(|reference| reference.normalised().to_owned());
    let same_image = || normalised(&standing_pull.image).is_some_and(|image| normalised(what) == Some(image));
    standing_pull.standing_pull.to_string() == what || standing_pull.image == what || same_image()
}
