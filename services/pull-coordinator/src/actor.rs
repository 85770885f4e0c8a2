//! The actix shell: feeds inputs to the core and sets the timer for its alarms.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

use actix::{Actor, AsyncContext as _, Context, Handler, SpawnHandle};
use actors::{Ask, DeferredReply, MAILBOX_CAPACITY, PanicGuard, Pending, PendingHandle, deferred_reply};
use clock::{Clock, Now, Random};
use contract::messages::pull_coordinator::{AnswerCounts, EnsureImage};
use contract::{CallError, ClearanceId, NodeName};
use futures::future::{LocalBoxFuture, Shared};
use metrics::Instruments;
use runtimes::{Progress, RuntimeRef};
use tokio::sync::oneshot;

use crate::callers::Caller;
use crate::core::{Coordinator, Effect, FlightId, Input, Policy, RequestId, bounds};
use crate::counters::Times;
use crate::locality::Locality;
use crate::manifest_check::RecentChecks;
use crate::outbound::{Neighbours, Outbound};
use crate::reporting::EntryOfFailure;
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
    /// The side-channel checks of the last minute.
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
    pub(crate) standing_pulls: Option<StandingPullStoreRef>,
    /// The last write of the standing pulls has failed.
    pub(crate) is_write_failing: bool,
    /// Where to send the error, if any, of the write with this number.
    pub(crate) write_waiters: Vec<(u64, oneshot::Sender<Option<String>>)>,
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
    pub(crate) resolving: BTreeMap<ClearanceId, ResolveSent>,
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

impl FlightWork {
    /// Cancels all of it, and counts the wait for clearance or the attempt that has ended.
    pub(crate) fn cancel(self, now: Now, instruments: &Instruments) {
        let Self { work, watches, mut times, .. } = self;
        times.count_end(now, instruments);
        times.count_attempt(now, instruments);
        work.into_iter().chain(watches).for_each(PendingHandle::cancel);
    }
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
            is_write_failing: false,
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

    /// Runs `work` as a task and feeds its result to the core.
    pub(crate) fn then<T: 'static>(
        &self,
        work: impl Future<Output = T> + 'static,
        context: &mut Context<Self>,
        input: impl FnOnce(T) -> Input + 'static,
    ) -> PendingHandle {
        self.pending.spawn(context, work, move |result, coordinator, context| coordinator.feed(input(result), context))
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
