//! Calls to the other services of the node. If one does not answer, the pull goes on as with kubelet alone: fail open.

use std::cell::RefCell;
use std::future::{Future, ready};
use std::rc::Rc;
use std::time::Duration;

use actors::Sender;
use clock::Random;
use contract::messages::backoff_tracker::{
    AttemptReported, BackoffAnswer, BackoffList, BeginAttempt, CheckBackoff, Clearance, ListBackoffs, LocalKey, ReportAttempt,
    RequestClearance, ResolveAttempt, WithdrawClearance,
};
use contract::messages::event_recorder::RecordEvent;
use contract::messages::throttler::{AcquirePermit, PermitAnswer, ReleasePermit, ReportLimits};
use contract::{CallError, ClearanceId, Command, DEADLINES, Envelope, Meta, PermitId, PullEvent, Target, TraceContext};
use futures::FutureExt as _;
use futures::future::LocalBoxFuture;

use crate::core::RegistryFeedback;
use crate::core::request::milliseconds;
use crate::sharing::MidPullSenders;

/// How long a service on the same node may take to answer: far longer than on a loaded node, so that a slow answer does not count as
/// lost.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// The commands of other services that every pull needs.
#[derive(Clone, Debug)]
pub struct Neighbours {
    /// The back-off tracker's `check`.
    pub check: Sender<CheckBackoff>,
    /// The back-off tracker's `report`.
    pub report: Sender<ReportAttempt>,
    /// The throttler's `acquire`.
    pub acquire: Sender<AcquirePermit>,
    /// The throttler's `release`.
    pub release: Sender<ReleasePermit>,
    /// The event recorder's `record`.
    pub record: Sender<RecordEvent>,
}

/// The additional commands that a pull needs if the node shares.
#[derive(Clone, Debug)]
pub struct FleetNeighbours {
    /// The back-off tracker's `clearance`.
    pub clearance: Sender<RequestClearance>,
    /// The back-off tracker's `resolve`.
    pub resolve: Sender<ResolveAttempt>,
    /// The back-off tracker's `withdraw`.
    pub withdraw: Sender<WithdrawClearance>,
    /// The back-off tracker's `list`.
    pub list: Sender<ListBackoffs>,
}

/// Sends commands to [`Neighbours`].
#[derive(Clone, Debug)]
pub(crate) struct Outbound {
    neighbours: Rc<Neighbours>,
    fleet: Option<Rc<FleetNeighbours>>,
    mid_pull: Option<Rc<MidPullSenders>>,
    random: Rc<RefCell<Random>>,
}

impl Outbound {
    pub(crate) fn new(neighbours: Neighbours, random: Random) -> Self {
        Self { neighbours: Rc::new(neighbours), fleet: None, mid_pull: None, random: Rc::new(RefCell::new(random)) }
    }

    /// Makes the span of a request by `caller`.
    pub(crate) fn mint(&self, caller: TraceContext) -> TraceContext {
        caller.child(&mut self.random.borrow_mut())
    }

    pub(crate) fn mint_root(&self) -> TraceContext {
        TraceContext::root(&mut self.random.borrow_mut())
    }

    pub(crate) fn share_with(&mut self, fleet: FleetNeighbours, mid_pull: Option<MidPullSenders>) {
        self.fleet = Some(Rc::new(fleet));
        self.mid_pull = mid_pull.map(Rc::new);
    }

    pub(crate) fn check(
        &self,
        trace: TraceContext,
        key: LocalKey,
        target: Option<Target>,
        peek: bool,
    ) -> impl Future<Output = BackoffAnswer> + use<> {
        let call = self.call(&self.neighbours.check, trace, CheckBackoff { key, peek, target }, ANSWER_WITHIN);
        call.map(|answer| answer.unwrap_or(BackoffAnswer::Allowed))
    }

    /// None: the tracker did not answer, or this node shares nothing.
    pub(crate) fn clearance(&self, trace: TraceContext, ask: RequestClearance) -> LocalBoxFuture<'static, Option<Clearance>> {
        let Some(fleet) = &self.fleet else { return ready(None).boxed_local() };
        let limit = Duration::from_millis(ask.patience_ms) + ANSWER_WITHIN;
        self.call(&fleet.clearance, trace, ask, limit).boxed_local()
    }

    pub(crate) fn begin(&self, trace: TraceContext, begin: BeginAttempt) -> LocalBoxFuture<'static, ()> {
        let Some(mid_pull) = &self.mid_pull else { return ready(()).boxed_local() };
        self.call(&mid_pull.begin, trace, begin, ANSWER_WITHIN).map(|_| ()).boxed_local()
    }

    pub(crate) fn limits(&self, trace: TraceContext, report: ReportLimits) -> LocalBoxFuture<'static, ()> {
        let Some(mid_pull) = &self.mid_pull else { return ready(()).boxed_local() };
        self.call(&mid_pull.limits, trace, report, ANSWER_WITHIN).map(|_| ()).boxed_local()
    }

    pub(crate) fn resolve(&self, trace: TraceContext, resolve: ResolveAttempt) -> LocalBoxFuture<'static, ()> {
        let Some(fleet) = &self.fleet else { return ready(()).boxed_local() };
        self.call(&fleet.resolve, trace, resolve, ANSWER_WITHIN).map(|_| ()).boxed_local()
    }

    pub(crate) fn withdraw(&self, trace: TraceContext, clearance: ClearanceId) -> LocalBoxFuture<'static, ()> {
        let Some(fleet) = &self.fleet else { return ready(()).boxed_local() };
        self.call(&fleet.withdraw, trace, WithdrawClearance { clearance }, ANSWER_WITHIN).map(|_| ()).boxed_local()
    }

    /// The back-off entries that concern an image; none: the tracker did not answer, or this node shares nothing.
    pub(crate) fn list_backoffs(&self, trace: TraceContext, image: String) -> LocalBoxFuture<'static, Option<BackoffList>> {
        let Some(fleet) = &self.fleet else { return ready(None).boxed_local() };
        self.call(&fleet.list, trace, ListBackoffs { what: Some(image), ..ListBackoffs::default() }, ANSWER_WITHIN).boxed_local()
    }

    pub(crate) fn report(&self, trace: TraceContext, report: ReportAttempt) -> impl Future<Output = AttemptReported> + use<> {
        self.call(&self.neighbours.report, trace, report, ANSWER_WITHIN).map(Option::unwrap_or_default)
    }

    /// Asks for a permit. If the throttler does not answer, it is asked once more for an immediate answer, because the whole node may have
    /// been suspended; if that fails too, the permit counts as granted.
    pub(crate) fn acquire(
        &self,
        trace: TraceContext,
        permit: PermitId,
        image: String,
        budget: Option<String>,
    ) -> impl Future<Output = PermitAnswer> + use<> {
        let acquire = AcquirePermit { permit, image, patience_ms: milliseconds(DEADLINES.permit_patience), budget };
        let immediate = AcquirePermit { patience_ms: 0, ..acquire.clone() };
        let (limit, outbound) = (DEADLINES.permit_patience + ANSWER_WITHIN, self.clone());
        let call = self.call(&self.neighbours.acquire, trace, acquire, limit);
        let ask_again = move || {
            let call = outbound.call(&outbound.neighbours.acquire, trace, immediate, ANSWER_WITHIN);
            call.map(|answer| answer.unwrap_or(PermitAnswer::Granted { lease_ms: milliseconds(DEADLINES.permit_lease) })).boxed_local()
        };
        call.then(move |answer| answer.map_or_else(ask_again, |answer| ready(answer).boxed_local()))
    }

    pub(crate) fn release(&self, trace: TraceContext, permit: PermitId, feedback: RegistryFeedback) -> impl Future<Output = ()> + use<> {
        let RegistryFeedback { limits, served } = feedback;
        self.call(&self.neighbours.release, trace, ReleasePermit { permit, limits, served }, ANSWER_WITHIN).map(|_| ())
    }

    /// Ready when the event is stored, or when the recorder has not answered in time. An event after which the pull goes on is only noted
    /// by then: the recorder stores it before or with the event that ends the pull. An event that is not stored (the image was present)
    /// needs no wait once the recorder of this process has it in its mailbox: none.
    pub(crate) fn record(&self, event: PullEvent) -> Option<impl Future<Output = ()> + use<>> {
        let meta = Meta::within(event.trace, &mut self.random.borrow_mut());
        let (is_durable, record) = (event.is_durable(), Envelope { meta, body: RecordEvent { event } });
        let not_posted = if is_durable { Some(record) } else { self.neighbours.record.post(record) };
        Some(send(&self.neighbours.record, not_posted?, ANSWER_WITHIN).map(|_| ()))
    }

    fn call<C: Command>(
        &self,
        sender: &Sender<C>,
        trace: TraceContext,
        body: C,
        timeout: Duration,
    ) -> impl Future<Output = Option<C::Reply>> + use<C> {
        let meta = Meta::within(trace, &mut self.random.borrow_mut());
        send(sender, Envelope { meta, body }, timeout)
    }
}

/// The reply; none, and a warning in the log, if there is none. `timeout` limits the wait for the bus alone, so the whole call has a limit
/// too: an actor of this process may never answer. Uses `map`, because an `async` block would take the call's memory twice.
fn send<C: Command>(sender: &Sender<C>, envelope: Envelope<C>, timeout: Duration) -> impl Future<Output = Option<C::Reply>> + use<C> {
    let limit = timeout + ANSWER_WITHIN;
    tokio::time::timeout(limit, sender.call(envelope, timeout)).map(move |answered| {
        answered
            .unwrap_or(Err(CallError::TimedOut { timeout: limit }))
            .inspect_err(|error| {
                tracing::warn!(service = C::SERVICE.name(), verb = C::VERB, %error, "a service did not answer; going on without it");
            })
            .ok()
    })
}
