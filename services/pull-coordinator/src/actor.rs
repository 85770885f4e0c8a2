//! The actix shell: a mailbox, a clock, the core, and what the core wants done.

use std::collections::BTreeMap;
use std::future::Future;
use std::time::Duration;

use actix::{Actor, ActorFutureExt as _, AsyncContext as _, Context, Handler, MessageResult, ResponseFuture, SpawnHandle, WrapFuture as _};
use actors::{Ask, Gravestone, MAILBOX_CAPACITY};
use clock::{Clock, Random};
use contract::messages::pull_coordinator::{
    AnswerCounts, EnsureImage, ExplainImage, Explanation, LayerStatus, ListPulls, PullList, PullOutcome, PullState, PullStatus,
};
use contract::{CallError, FailureClass, NodeName, PermitId, Service};
use image::{Platform, Reference};
use runtimes::{ImageStatus, InspectFailure, Progress, PullFailure, PullRequest, PulledImage, RuntimeRef};
use tokio::sync::oneshot;

use crate::core::{Coordinator, Effect, Failure, FlightId, FlightView, ImageFacts, Input, PulledFacts, RequestId, bounds};
use crate::outbound::{Neighbours, Outbound};

/// How often a pull renews its permit: three times within the throttler's lease of 30 s.
const RENEW_PERMIT_EVERY: Duration = Duration::from_secs(10);

/// The actor that makes sure images are there.
pub struct PullCoordinator {
    core: Coordinator,
    runtime: RuntimeRef,
    outbound: Outbound,
    clock: Clock,
    /// The most that one pull may take; none for no limit.
    pull_timeout: Option<Duration>,
    last_request: u64,
    answered: AnswerCounts,
    callers: BTreeMap<RequestId, Caller>,
    flights: BTreeMap<FlightId, Flying>,
    _gravestone: Gravestone,
}

struct Caller {
    answer: oneshot::Sender<PullOutcome>,
    alarm: Option<SpawnHandle>,
}

/// What is under way for a flight.
#[derive(Default)]
struct Flying {
    progress: Progress,
    work: Option<SpawnHandle>,
}

impl PullCoordinator {
    /// Ready to be started.
    #[must_use]
    pub fn new(
        node: NodeName,
        runtime: RuntimeRef,
        neighbours: Neighbours,
        clock: Clock,
        pull_timeout: Option<Duration>,
        gravestone: Gravestone,
    ) -> Self {
        Self {
            core: Coordinator::new(node, Random::from_system()),
            runtime,
            outbound: Outbound::new(neighbours, Random::from_system()),
            clock,
            pull_timeout,
            last_request: 0,
            answered: AnswerCounts::default(),
            callers: BTreeMap::new(),
            flights: BTreeMap::new(),
            _gravestone: gravestone,
        }
    }

    fn feed(&mut self, input: Input, context: &mut Context<Self>) {
        let now = self.clock.now();
        for effect in self.core.step(now, input) {
            self.perform(effect, context);
        }
    }

    fn perform(&mut self, effect: Effect, context: &mut Context<Self>) {
        match effect {
            Effect::Inspect { request, reference, platform } => {
                let status = self.status(reference, platform);
                self.then(status, context, move |found| Input::Inspected { request, found });
            }
            Effect::CheckBackoff { request, key, trace } => {
                let check = self.outbound.check(trace, key, false);
                let handle = check.into_actor(self).map(move |answer, coordinator, context| {
                    coordinator.learn_what_is_resolved(context);
                    coordinator.feed(Input::BackoffChecked { request, answer }, context);
                });
                context.spawn(handle);
            }
            Effect::AcquirePermit { flight, permit, image, trace } => {
                let acquire = self.outbound.acquire(trace, permit, image);
                let work = self.then(acquire, context, move |answer| Input::Permitted { flight, answer });
                self.flights.entry(flight).or_default().work = Some(work);
            }
            Effect::Recheck { flight, reference, platform } => {
                let status = self.status(reference, platform);
                let work = self.then(status, context, move |found| Input::Rechecked { flight, found });
                self.flights.entry(flight).or_default().work = Some(work);
            }
            Effect::StartPull { flight, permit, reference, platform, trace } => {
                let progress = self.flights.entry(flight).or_default().progress.clone();
                let pull = self.pull(permit, PullRequest { reference, platform, trace }, progress);
                let work = self.then(pull, context, move |result| Input::Pulled { flight, result });
                self.flights.entry(flight).or_default().work = Some(work);
            }
            Effect::Verify { flight, reference, platform } => {
                let status = self.status(reference, platform);
                let work = self.then(status, context, move |found| Input::Verified { flight, found });
                self.flights.entry(flight).or_default().work = Some(work);
            }
            Effect::Cancel { flight } => {
                if let Some(Flying { work: Some(work), .. }) = self.flights.remove(&flight) {
                    context.cancel_future(work);
                }
            }
            Effect::Release { permit, trace } => {
                context.spawn(self.outbound.release(trace, permit).into_actor(self));
            }
            Effect::Report { request, report, trace } => {
                let report = self.outbound.report(trace, report);
                self.then(report, context, move |next_try_ms| Input::Reported { request, next_try_ms });
            }
            Effect::Record { request, event } => {
                let record = self.outbound.record(event);
                self.then(record, context, move |()| Input::Recorded { request });
            }
            Effect::Answer { request, outcome } => self.answer(request, outcome, context),
        }
    }

    /// Runs `work` beside the mailbox and feeds what comes of it.
    fn then<T: 'static>(
        &self,
        work: impl Future<Output = T> + 'static,
        context: &mut Context<Self>,
        input: impl FnOnce(T) -> Input + 'static,
    ) -> SpawnHandle {
        context.spawn(work.into_actor(self).map(move |result, coordinator, context| coordinator.feed(input(result), context)))
    }

    fn status(
        &self,
        reference: Reference,
        platform: Option<Platform>,
    ) -> impl Future<Output = Result<Option<ImageFacts>, Failure>> + use<> {
        let runtime = self.runtime.clone();
        async move { runtime.image_status(&reference, platform.as_ref()).await.map(|found| found.map(facts)).map_err(inspect_failure) }
    }

    fn pull(
        &self,
        permit: PermitId,
        request: PullRequest,
        progress: Progress,
    ) -> impl Future<Output = Result<PulledFacts, Failure>> + use<> {
        let (runtime, outbound, limit) = (self.runtime.clone(), self.outbound.clone(), self.pull_timeout);
        let (trace, image) = (request.trace, request.reference.normalised().to_owned());
        async move {
            let pull = runtime.pull(request, progress);
            let renew = async {
                loop {
                    tokio::time::sleep(RENEW_PERMIT_EVERY).await;
                    outbound.acquire(trace, permit, image.clone()).await;
                }
            };
            let over = async {
                match limit {
                    Some(limit) => tokio::time::sleep(limit).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                pulled = pull => pulled.map(pulled_facts).map_err(pull_failure),
                () = over => Err(too_long(limit.unwrap_or_default())),
                () = renew => Err(too_long(Duration::ZERO)),
            }
        }
    }

    /// Who asks with Always may join only a flight whose tag is not resolved yet; the runtime says so in its progress.
    fn learn_what_is_resolved(&mut self, context: &mut Context<Self>) {
        let resolved: Vec<FlightId> =
            self.flights.iter().filter(|(_, flying)| flying.progress.snapshot().resolved).map(|(flight, _)| *flight).collect();
        for flight in resolved {
            self.feed(Input::Resolved { flight }, context);
        }
    }

    fn answer(&mut self, request: RequestId, outcome: PullOutcome, context: &mut Context<Self>) {
        if !self.flights.is_empty() {
            let live: Vec<FlightId> = self.core.flights(self.clock.now()).into_iter().map(|flight| flight.flight).collect();
            self.flights.retain(|flight, _| live.contains(flight));
        }
        self.answered.count(&outcome);
        let Some(caller) = self.callers.remove(&request) else { return };
        if let Some(alarm) = caller.alarm {
            context.cancel_future(alarm);
        }
        // Who hung up does not want to know.
        let _ = caller.answer.send(outcome);
    }

    fn pull_status(&self, view: FlightView) -> PullStatus {
        let progress = self.flights.get(&view.flight).map(|flying| flying.progress.snapshot()).unwrap_or_default();
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

impl Actor for PullCoordinator {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Self::Context) {
        context.set_mailbox_capacity(MAILBOX_CAPACITY);
    }
}

impl Handler<Ask<EnsureImage>> for PullCoordinator {
    type Result = ResponseFuture<Result<PullOutcome, CallError>>;

    fn handle(&mut self, Ask(envelope): Ask<EnsureImage>, context: &mut Self::Context) -> Self::Result {
        if let Err(too_long) = bounds::check_names(envelope.body.pod.as_ref(), envelope.body.platform.as_deref()) {
            return Box::pin(async move { Err(CallError::Refused { reason: too_long.to_string() }) });
        }
        self.last_request += 1;
        let request = RequestId(self.last_request);
        let (answer, answered) = oneshot::channel();
        let alarm = envelope.body.timeout_ms.map(|limit| {
            context
                .run_later(Duration::from_millis(limit), move |coordinator, context| coordinator.feed(Input::TimeOver { request }, context))
        });
        self.callers.insert(request, Caller { answer, alarm });
        self.feed(Input::Asked { request, ask: envelope.body, trace: envelope.meta.trace }, context);
        Box::pin(async { answered.await.map_err(|_| CallError::Ended { service: Service::PullCoordinator.name() }) })
    }
}

impl Handler<Ask<ListPulls>> for PullCoordinator {
    type Result = MessageResult<Ask<ListPulls>>;

    fn handle(&mut self, _: Ask<ListPulls>, _: &mut Self::Context) -> Self::Result {
        let pulls = self.core.flights(self.clock.now()).into_iter().map(|view| self.pull_status(view)).collect();
        MessageResult(Ok(PullList { pulls, answered: self.answered }))
    }
}

impl Handler<Ask<ExplainImage>> for PullCoordinator {
    type Result = ResponseFuture<Result<Explanation, CallError>>;

    fn handle(&mut self, Ask(envelope): Ask<ExplainImage>, _: &mut Self::Context) -> Self::Result {
        let in_flight = Reference::parse(&envelope.body.image).is_ok_and(|reference| self.core.is_in_flight(&reference));
        let (runtime, outbound) = (self.runtime.clone(), self.outbound.clone());
        Box::pin(crate::explain::explain(runtime, outbound, envelope.body, in_flight, envelope.meta.trace))
    }
}

fn facts(status: ImageStatus) -> ImageFacts {
    ImageFacts { image_ref: status.image_ref, size_bytes: status.size_bytes, digest: status.digest, platform: status.platform }
}

fn pulled_facts(pulled: PulledImage) -> PulledFacts {
    PulledFacts { image_ref: pulled.image_ref, digest: pulled.digest, platform: pulled.platform, auth: pulled.auth }
}

fn inspect_failure(failure: InspectFailure) -> Failure {
    Failure { text: failure.text, class: failure.class, auth: String::new() }
}

fn pull_failure(failure: PullFailure) -> Failure {
    Failure { text: failure.text, class: failure.class, auth: failure.auth }
}

fn too_long(limit: Duration) -> Failure {
    let text =
        format!("the pull took longer than pull.timeout = {}: raise it, or see what the registry is slow with", image::go::duration(limit));
    Failure { text, class: FailureClass::Unknown, auth: String::new() }
}
