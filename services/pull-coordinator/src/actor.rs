//! The actix shell: feeds inputs to the core and carries out the core's effects.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, AsyncContext as _, Context, Handler, SpawnHandle};
use actors::{Ask, DeferredReply, MAILBOX_CAPACITY, PanicGuard, Pending, PendingHandle, deferred_reply};
use clock::{Clock, Now, Random};
use contract::messages::backoff_tracker::ResolveAttempt;
use contract::messages::pull_coordinator::{AnswerCounts, EnsureImage, PullOutcome};
use contract::{CallError, ClearanceId, NodeName, Target, TraceContext};
use futures::FutureExt as _;
use futures::future::{LocalBoxFuture, Shared};
use image::{Platform, Reference};
use metrics::Instruments;
use runtimes::{Progress, PullRequest, RuntimeRef};
use tokio::sync::oneshot;

use crate::callers::Caller;
use crate::core::{Coordinator, Effect, Failure, FlightId, ImageFacts, Input, KeptStandingPull, Policy, RequestId, bounds};
use crate::counters::Times;
use crate::locality::Locality;
use crate::manifest_check::RecentChecks;
use crate::outbound::{Neighbours, Outbound};
use crate::pulling::PullStart;
use crate::reporting::EntryOfFailure;
use crate::runtime_results::{image_facts, inspect_failure};
use crate::sharing::{Extras, Sharing};
use crate::standing_pull_file::StandingPullStoreRef;
use crate::traces::Traces;

/// The shortest time to an alarm; a timer cannot be shorter.
const ALARM_AT_LEAST: Duration = Duration::from_millis(1);
/// The longest time to an alarm; a later one is set again when this one rings.
const ALARM_AT_MOST: Duration = Duration::from_secs(3_600);

/// The actor that pulls images and answers the callers.
pub struct PullCoordinator {
    pub(crate) core: Coordinator,
    pub(crate) runtime: RuntimeRef,
    pub(crate) outbound: Outbound,
    pub(crate) clock: Clock,
    /// The manifest checks of the last minute.
    pub(crate) recent_checks: RecentChecks,
    /// The longest that one pull may take (`pull.timeout`); none: no limit.
    pub(crate) pull_timeout: Option<Duration>,
    last_request: u64,
    pub(crate) answered: AnswerCounts,
    pub(crate) callers: BTreeMap<RequestId, Caller>,
    pub(crate) watching_callers: bool,
    pub(crate) flights: BTreeMap<FlightId, FlightWork>,
    /// The flights that the runtime is pulling.
    pub(crate) at_runtime: BTreeSet<FlightId>,
    pub(crate) locality: Option<Rc<Locality>>,
    standing_pulls: Option<StandingPullStoreRef>,
    /// Senders to wake when the write with this number is over.
    pub(crate) write_waiters: Vec<(u64, oneshot::Sender<()>)>,
    /// The core's next alarm, on the monotonic clock.
    alarm: Option<(Duration, SpawnHandle)>,
    /// Calls under way: several for each flight, some of them for hours.
    pub(crate) pending: Pending<Self>,
    /// Inputs that effects caused at once; fed after the effects.
    pub(crate) follow_ups: VecDeque<Input>,
    /// The back-off entry of each request's failure, until the failure is recorded.
    pub(crate) entries_of_failures: BTreeMap<RequestId, EntryOfFailure>,
    pub(crate) instruments: Instruments,
    /// The last `resolve` of each clearance: `withdraw` is sent only after it is answered.
    resolving: BTreeMap<ClearanceId, ResolveSent>,
    /// None without an exporter.
    pub(crate) traces: Option<Box<Traces>>,
    _panic_guard: PanicGuard,
}

/// Ready when the tracker has answered a `resolve`.
type ResolveSent = Shared<LocalBoxFuture<'static, ()>>;

/// What the shell runs for one flight.
#[derive(Default)]
pub(crate) struct FlightWork {
    pub(crate) progress: Progress,
    pub(crate) work: Option<PendingHandle>,
    /// Wait for the token, the manifest, a blob, the registry's limits and the image's size.
    pub(crate) watches: Vec<PendingHandle>,
    pub(crate) times: Times,
}

impl PullCoordinator {
    /// A coordinator that pulls as kubelet does; [`PullCoordinator::with`] adds the rest.
    #[must_use]
    pub fn new(
        node: NodeName,
        runtime: RuntimeRef,
        neighbours: Neighbours,
        clock: Clock,
        pull_timeout: Option<Duration>,
        panic_guard: PanicGuard,
    ) -> Self {
        Self {
            core: Coordinator::new(node, Policy::default(), Random::from_system()),
            runtime,
            outbound: Outbound::new(neighbours, Random::from_system()),
            clock,
            recent_checks: RecentChecks::default(),
            pull_timeout,
            last_request: 0,
            answered: AnswerCounts::default(),
            callers: BTreeMap::new(),
            watching_callers: false,
            flights: BTreeMap::new(),
            at_runtime: BTreeSet::new(),
            locality: None,
            standing_pulls: None,
            write_waiters: Vec::new(),
            alarm: None,
            pending: Pending::default(),
            follow_ups: VecDeque::new(),
            entries_of_failures: BTreeMap::new(),
            instruments: Instruments::default(),
            resolving: BTreeMap::new(),
            traces: Traces::if_enabled(),
            _panic_guard: panic_guard,
        }
    }

    /// Adds what kubelet does not have. Call it before the actor is started.
    #[must_use]
    pub fn with(mut self, extras: Extras) -> Self {
        let Extras { sharing, mid_pull, standing_pulls, keep_free } = extras;
        let clearance_within = sharing.as_ref().map(|sharing| sharing.max_wait);
        self.core.set_policy(Policy { clearance_within, keep_free, writes_standing_pulls: standing_pulls.is_some() });
        self.standing_pulls = standing_pulls;
        if let Some(Sharing { neighbours, locality, .. }) = sharing {
            self.outbound.share_with(neighbours, mid_pull);
            self.locality = Some(Rc::new(locality));
        }
        self
    }

    /// Sets the metrics to count for. Call it before the actor is started.
    #[must_use]
    pub fn counting(self, instruments: Instruments) -> Self {
        Self { instruments, ..self }
    }

    pub(crate) fn feed(&mut self, input: Input, context: &mut Context<Self>) {
        let now = self.clock.now();
        let mut next = Some(input);
        while let Some(input) = next.take() {
            self.count_input(now, &input);
            let seen = self.traces.as_mut().map(|traces| traces.before(&input, &self.core));
            let effects = self.core.step(now, input);
            if let (Some(traces), Some(seen)) = (&mut self.traces, seen) {
                traces.after(seen, &effects, &self.core);
            }
            let mut ended: Vec<FlightId> = effects.iter().filter_map(ended_flight).collect();
            ended.dedup();
            for effect in effects {
                self.count_effect(now, &effect);
                self.carry_out(effect, context);
            }
            ended.into_iter().for_each(|flight| self.forget_if_over(now, flight));
            // The consequences of one input come before the next message.
            next = self.follow_ups.pop_front();
        }
        self.set_alarm(now, context);
    }

    fn forget_if_over(&mut self, now: Now, flight: FlightId) {
        if self.core.has_flight(flight) {
            return;
        }
        self.at_runtime.remove(&flight);
        if let Some(mut under_way) = self.flights.remove(&flight) {
            under_way.times.count_end(now, &self.instruments);
            under_way.watches.drain(..).for_each(PendingHandle::cancel);
        }
    }

    /// Sets the timer for the core's next alarm.
    fn set_alarm(&mut self, now: Now, context: &mut Context<Self>) {
        let wanted = self.core.next_alarm();
        if wanted == self.alarm.map(|(time, _)| time) {
            return;
        }
        if let Some((_, alarm)) = self.alarm.take() {
            context.cancel_future(alarm);
        }
        if let Some(time) = wanted {
            let left = time.saturating_sub(now.monotonic).clamp(ALARM_AT_LEAST, ALARM_AT_MOST);
            let alarm = context.run_later(left, |coordinator, context| {
                coordinator.alarm = None;
                coordinator.poll_progress(context);
                coordinator.feed(Input::AlarmRang, context);
            });
            self.alarm = Some((time, alarm));
        }
    }

    fn carry_out(&mut self, effect: Effect, context: &mut Context<Self>) {
        match effect {
            Effect::FindTarget { request, reference, platform, room } => {
                let look = self.find_target(reference, platform, room);
                self.then_after_poll(look, context, move |(target, free_bytes)| Input::TargetFound { request, target, free_bytes });
            }
            Effect::RequestClearance { flight, turn, mut ask, trace } => {
                ask.attempt_span = ask.attempt_span.map(|span| self.exported_if_failed(span));
                let clearance = self.outbound.clearance(trace, *ask);
                self.then_after_poll(clearance, context, move |answer| Input::ClearanceAnswered { flight, turn, answer });
            }
            Effect::Resolve { resolve, trace } => self.resolve(*resolve, trace, context),
            Effect::Withdraw { clearance, trace, .. } => self.withdraw(clearance, trace, context),
            Effect::KeepStandingPulls { standing_pulls } => {
                let keep = keep(self.standing_pulls.clone(), standing_pulls);
                self.pending.spawn(context, keep, |error, coordinator, context| {
                    coordinator.feed(Input::StandingPullsKept { error }, context);
                    coordinator.standing_pulls_written();
                });
            }
            Effect::Inspect { request, reference, platform } => {
                let status = self.status(reference, platform);
                self.then(status, context, move |found| Input::Inspected { request, found });
            }
            Effect::CheckBackoff { request, key, target, trace } => {
                let target = target.map(Arc::unwrap_or_clone);
                let check = self.outbound.check(trace, key, target, false);
                self.then_after_poll(check, context, move |answer| Input::BackoffChecked { request, answer });
            }
            Effect::AcquirePermit { flight, permit, image, budget, trace } => {
                let acquire = self.outbound.acquire(trace, permit, image, budget);
                let work = self.then(acquire, context, move |answer| Input::Permitted { flight, answer });
                self.flights.entry(flight).or_default().work = Some(work);
            }
            Effect::Recheck { flight, reference, platform } => {
                let status = self.status(reference, platform);
                let work = self.then(status, context, move |found| Input::Rechecked { flight, found });
                self.flights.entry(flight).or_default().work = Some(work);
            }
            Effect::StartPull {
                flight,
                permit,
                budget,
                begin,
                fleet_waits,
                one_blob_first,
                route_known,
                report_size,
                reference,
                platform,
                trace,
            } => {
                let request = PullRequest { reference, platform, trace, carried: self.carried(flight) };
                self.start_pull(
                    PullStart { flight, permit, budget, begin, fleet_waits, one_blob_first, route_known, report_size, request },
                    context,
                );
            }
            Effect::Verify { flight, reference, platform } => {
                let status = self.status(reference, platform);
                let work = self.then(status, context, move |found| Input::Verified { flight, found });
                self.flights.entry(flight).or_default().work = Some(work);
            }
            Effect::Cancel { flight } => self.cancel(flight),
            Effect::Release { permit, feedback, trace, .. } => {
                self.pending.spawn(context, self.outbound.release(trace, permit, feedback), |(), _, _| {});
            }
            Effect::Report { request, mut report, trace } => {
                report.attempt_span = report.attempt_span.map(|span| self.exported_if_failed(span));
                self.report(request, report, trace, context);
            }
            Effect::Record { request, event } => self.record(request, event, context),
            Effect::Answer { request, outcome } => self.answer(request, outcome),
        }
    }

    fn standing_pulls_written(&mut self) {
        let core = &self.core;
        // A dropped sender wakes its receiver.
        self.write_waiters.retain(|(writing, _)| !core.is_written(*writing));
    }

    /// The span of an attempt for others to link to. A failed attempt is always exported if there is an exporter, so it counts as sampled.
    fn exported_if_failed(&self, span: TraceContext) -> TraceContext {
        TraceContext { sampled: self.traces.is_some(), ..span }
    }

    fn resolve(&mut self, resolve: ResolveAttempt, trace: TraceContext, context: &mut Context<Self>) {
        let clearance = resolve.clearance;
        let sent = self.outbound.resolve(trace, resolve).shared();
        self.pending.spawn(context, sent.clone(), |(), _, _| {});
        self.resolving.insert(clearance, sent);
    }

    /// Withdraws a clearance after its last `resolve` was answered, so that the two cannot overtake each other.
    fn withdraw(&mut self, clearance: ClearanceId, trace: TraceContext, context: &mut Context<Self>) {
        let (sent, outbound) = (self.resolving.remove(&clearance), self.outbound.clone());
        let withdraw = async move {
            if let Some(sent) = sent {
                sent.await;
            }
            outbound.withdraw(trace, clearance).await;
        };
        self.pending.spawn(context, withdraw, |(), _, _| {});
    }

    /// Runs `work` as a task and feeds its result to the core.
    pub(crate) fn then<T: 'static>(
        &self,
        work: impl Future<Output = T> + 'static,
        context: &mut Context<Self>,
        input: impl FnOnce(T) -> Input + 'static,
    ) -> PendingHandle {
        self.pending.spawn(context, work, move |result, coordinator, context| coordinator.feed(input(result), context))
    }

    /// As [`Self::then`], but the core first learns which tags the runtime has resolved: its decision depends on that.
    fn then_after_poll<T: 'static>(
        &self,
        work: impl Future<Output = T> + 'static,
        context: &mut Context<Self>,
        input: impl FnOnce(T) -> Input + 'static,
    ) {
        self.pending.spawn(context, work, move |result, coordinator, context| {
            coordinator.poll_progress(context);
            coordinator.feed(input(result), context);
        });
    }

    fn status(
        &self,
        reference: Reference,
        platform: Option<Platform>,
    ) -> impl Future<Output = Result<Option<ImageFacts>, Failure>> + use<> {
        let runtime = self.runtime.clone();
        async move { runtime.image_status(&reference, platform.as_ref()).await.map(|found| found.map(image_facts)).map_err(inspect_failure) }
    }

    /// The image's target if this node shares, and the free bytes if `room`.
    fn find_target(
        &self,
        reference: Reference,
        platform: Option<Platform>,
        room: bool,
    ) -> impl Future<Output = (Option<Arc<Target>>, Option<u64>)> + use<> {
        let (runtime, locality) = (self.runtime.clone(), self.locality.clone());
        async move {
            let target = match locality {
                Some(locality) => Some(Arc::new(locality.target(&*runtime, &reference, platform.as_ref()).await)),
                None => None,
            };
            let free = if room { runtime.free_bytes().await } else { None };
            (target, free)
        }
    }

    fn answer(&mut self, request: RequestId, outcome: PullOutcome) {
        self.entries_of_failures.remove(&request);
        // An abandoned caller was counted when that was noticed.
        let Some(caller) = self.callers.remove(&request) else { return };
        self.answered.count(&outcome);
        if let Some(alarm) = caller.alarm {
            alarm.cancel();
        }
        caller.answer.give(Ok(outcome));
    }
}

impl Actor for PullCoordinator {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Self::Context) {
        context.set_mailbox_capacity(MAILBOX_CAPACITY);
        let loaded = self.standing_pulls.as_ref().map(|store| store.load());
        match loaded {
            Some(Ok(standing_pulls)) if !standing_pulls.is_empty() => self.feed(Input::StandingPullsLoaded { standing_pulls }, context),
            Some(Err(error)) => tracing::error!(%error, "the standing pulls of an earlier run are lost"),
            _ => {}
        }
    }
}

impl Handler<Ask<EnsureImage>> for PullCoordinator {
    type Result = DeferredReply<Ask<EnsureImage>>;

    fn handle(&mut self, Ask(envelope): Ask<EnsureImage>, context: &mut Self::Context) -> Self::Result {
        let (answer, answered) = deferred_reply();
        if let Err(too_long) = bounds::check_names(envelope.body.pod.as_ref(), envelope.body.platform.as_deref()) {
            answer.give(Err(CallError::Refused { reason: too_long.to_string() }));
            return answered;
        }
        self.last_request += 1;
        let request = RequestId(self.last_request);
        let alarm = envelope.body.timeout_ms.map(|limit| {
            let over = move |coordinator: &mut Self, context: &mut Context<Self>| coordinator.feed(Input::TimeOver { request }, context);
            self.pending.run_later(context, Duration::from_millis(limit), over)
        });
        let trace = self.enter(request, &envelope);
        self.callers.insert(request, Caller { answer, alarm, carried: envelope.meta.carried });
        self.feed(Input::Asked { request, ask: envelope.body, trace }, context);
        self.watch_callers(context);
        answered
    }
}

/// The flight that may have ended with this effect.
fn ended_flight(effect: &Effect) -> Option<FlightId> {
    match effect {
        Effect::Release { flight, .. } | Effect::Withdraw { flight, .. } => Some(*flight),
        _ => None,
    }
}

/// Writes the standing pulls to disk; the error if that fails.
async fn keep(store: Option<StandingPullStoreRef>, standing_pulls: Vec<KeptStandingPull>) -> Option<String> {
    let store = store?;
    let error = tasks::blocking("keep-standing-pulls", move || store.keep(&standing_pulls)).await.err()?.to_string();
    tracing::error!(error, "standing pulls cannot be written down; they end with this agent");
    Some(error)
}
