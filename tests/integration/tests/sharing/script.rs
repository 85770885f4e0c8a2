//! A coordinator that shares, and a scripted tracker that records all commands; it also records the throttler's.
#![allow(clippy::disallowed_methods, reason = "tasks of a test")]

use std::cell::RefCell;
use std::collections::VecDeque;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, Addr, Context, Handler, ResponseFuture};
use actors::{Ask, Delivery, Sender, Wiring};
use bus::memory::MemoryBus;
use clock::{Clock, Random};
use contract::messages::backoff_tracker::{
    AttemptBegun, AttemptResolved, BackoffAnswer, BackoffEntry, BackoffList, BeginAttempt, CheckBackoff, Clearance, ClearanceWithdrawn,
    ListBackoffs, Refusal, RequestClearance, ResolveAttempt, WithdrawClearance,
};
use contract::messages::pull_coordinator::{EnsureImage, ListStandingPulls, PullOutcome, PullPolicy, StandingPullStatus};
use contract::messages::throttler::{LimitsReported, ReportLimits};
use contract::subject::Fleet;
use contract::{CallError, Command, Envelope, FailureClass, Meta, Stage, TraceContext};
use integration::ask;
use pull_coordinator::{Extras, FleetNeighbours, Locality, MidPullSenders, Neighbours, PullCoordinator, Sharing, StandingPullFile};
use runtimes::scripted::{ScriptedCall, ScriptedRuntime};
use runtimes::{PullFailure, RuntimeRef};
use tokio::sync::oneshot;

pub(crate) const IMAGE: &str = "localhost:5000/app:v1";
/// The wall time at which paused tests begin.
const WALL: Duration = Duration::from_secs(1_700_000_000);

/// A command that the tracker received.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Received {
    Check(Box<CheckBackoff>),
    Clearance(Box<RequestClearance>),
    Resolve(Box<ResolveAttempt>),
    Withdraw(WithdrawClearance),
    Begin(BeginAttempt),
    Limits(ReportLimits),
}

/// A scripted tracker. After the last scripted answer it delays its answers.
#[derive(Clone, Default)]
pub(crate) struct Script {
    pub(crate) received: Rc<RefCell<Vec<Received>>>,
    pub(crate) clearances: Rc<RefCell<VecDeque<Clearance>>>,
    pub(crate) waiting: Rc<RefCell<Vec<oneshot::Sender<Clearance>>>>,
    pub(crate) held: Rc<RefCell<Option<Refusal>>>,
    pub(crate) share: Rc<RefCell<String>>,
}

pub(crate) struct ScriptedTracker(Script);

impl Actor for ScriptedTracker {
    type Context = Context<Self>;
}

impl Handler<Ask<CheckBackoff>> for ScriptedTracker {
    type Result = Result<BackoffAnswer, CallError>;

    fn handle(&mut self, Ask(check): Ask<CheckBackoff>, _: &mut Self::Context) -> Self::Result {
        self.0.received.borrow_mut().push(Received::Check(Box::new(check.body)));
        Ok(self.0.held.borrow().clone().map_or(BackoffAnswer::Allowed, BackoffAnswer::Refused))
    }
}

impl Handler<Ask<RequestClearance>> for ScriptedTracker {
    type Result = ResponseFuture<Result<Clearance, CallError>>;

    fn handle(&mut self, Ask(ask): Ask<RequestClearance>, _: &mut Self::Context) -> Self::Result {
        let patience = Duration::from_millis(ask.body.patience_ms);
        self.0.received.borrow_mut().push(Received::Clearance(Box::new(ask.body)));
        if let Some(clearance) = self.0.clearances.borrow_mut().pop_front() {
            return Box::pin(async { Ok(clearance) });
        }
        let (answer, answered) = oneshot::channel();
        self.0.waiting.borrow_mut().push(answer);
        Box::pin(async move {
            let result = tokio::time::timeout(patience, answered).await;
            Ok(result.map_or(Clearance::Waiting { held: None }, |result| result.unwrap_or(Clearance::Waiting { held: None })))
        })
    }
}

impl Handler<Ask<ResolveAttempt>> for ScriptedTracker {
    type Result = Result<AttemptResolved, CallError>;

    fn handle(&mut self, Ask(resolve): Ask<ResolveAttempt>, _: &mut Self::Context) -> Self::Result {
        self.0.received.borrow_mut().push(Received::Resolve(Box::new(resolve.body)));
        Ok(AttemptResolved {})
    }
}

impl Handler<Ask<WithdrawClearance>> for ScriptedTracker {
    type Result = Result<ClearanceWithdrawn, CallError>;

    fn handle(&mut self, Ask(withdraw): Ask<WithdrawClearance>, _: &mut Self::Context) -> Self::Result {
        self.0.received.borrow_mut().push(Received::Withdraw(withdraw.body));
        Ok(ClearanceWithdrawn {})
    }
}

impl Handler<Ask<BeginAttempt>> for ScriptedTracker {
    type Result = Result<AttemptBegun, CallError>;

    fn handle(&mut self, Ask(begin): Ask<BeginAttempt>, _: &mut Self::Context) -> Self::Result {
        self.0.received.borrow_mut().push(Received::Begin(begin.body));
        Ok(AttemptBegun {})
    }
}

impl Handler<Ask<ReportLimits>> for ScriptedTracker {
    type Result = Result<LimitsReported, CallError>;

    fn handle(&mut self, Ask(limits): Ask<ReportLimits>, _: &mut Self::Context) -> Self::Result {
        self.0.received.borrow_mut().push(Received::Limits(limits.body));
        Ok(LimitsReported {})
    }
}

impl Handler<Ask<ListBackoffs>> for ScriptedTracker {
    type Result = Result<BackoffList, CallError>;

    fn handle(&mut self, _: Ask<ListBackoffs>, _: &mut Self::Context) -> Self::Result {
        let entry = BackoffEntry { trace: held().learned_trace, since_ms: 9_000, binds: "everybody".to_owned(), ..BackoffEntry::default() };
        Ok(BackoffList { entries: vec![entry], share: self.0.share.borrow().clone(), ..BackoffList::default() })
    }
}

impl Script {
    /// Scripts the answers to the next requests for clearance.
    pub(crate) fn then(&self, clearances: impl IntoIterator<Item = Clearance>) {
        self.clearances.borrow_mut().extend(clearances);
    }

    /// Answers all waiting requests for clearance.
    pub(crate) fn answer(&self, clearance: &Clearance) {
        for waiting in self.waiting.borrow_mut().drain(..) {
            // The request may have timed out.
            let _ = waiting.send(clearance.clone());
        }
    }

    pub(crate) fn received(&self) -> Vec<Received> {
        self.received.borrow().clone()
    }

    pub(crate) fn clearances_requested(&self) -> Vec<RequestClearance> {
        let clearance = |received: Received| if let Received::Clearance(ask) = received { Some(*ask) } else { None };
        self.received().into_iter().filter_map(clearance).collect()
    }

    pub(crate) fn resolutions(&self) -> Vec<ResolveAttempt> {
        let resolutions = |received: Received| if let Received::Resolve(resolve) = received { Some(*resolve) } else { None };
        self.received().into_iter().filter_map(resolutions).collect()
    }
}

pub(crate) fn held() -> Refusal {
    Refusal {
        unconfirmed: false,
        entry: None,
        cause: "ErrImagePull: gone".to_owned(),
        class: FailureClass::NotFound,
        next_attempt_ms: 8_000,
        learned_by: Some("n9".parse().unwrap()),
        learned_ms_ago: 2_000,
        learned_trace: TraceContext::parse("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
    }
}

pub(crate) fn clearance() -> Clearance {
    Clearance::Granted { for_all: false, answer_within_ms: None, until: Stage::Manifest, released_by: None }
}

pub(crate) fn lead() -> Clearance {
    Clearance::Granted { for_all: true, answer_within_ms: Some(15_000), until: Stage::Manifest, released_by: None }
}

pub(crate) fn not_found() -> PullFailure {
    PullFailure { text: "gone".to_owned(), class: FailureClass::NotFound, authoritative: true, ..PullFailure::default() }
}

/// A running coordinator without throttler and recorder.
pub(crate) struct Node {
    pub(crate) coordinator: Addr<PullCoordinator>,
    pub(crate) runtime: ScriptedRuntime,
}

impl Node {
    /// A coordinator that shares, with the scripted tracker.
    pub(crate) fn sharing(runtime: &ScriptedRuntime, script: &Script, standing_pulls: Option<&Path>) -> Self {
        Self::sharing_with(runtime, script, standing_pulls, None)
    }

    pub(crate) fn sharing_with(runtime: &ScriptedRuntime, script: &Script, standing_pulls: Option<&Path>, keep_free: Option<u64>) -> Self {
        Self::sharing_on(Arc::new(runtime.clone()), runtime, script, standing_pulls, keep_free)
    }

    /// A coordinator that shares, on a runtime that wraps the scripted one.
    pub(crate) fn sharing_on(
        shared: RuntimeRef,
        runtime: &ScriptedRuntime,
        script: &Script,
        standing_pulls: Option<&Path>,
        keep_free: Option<u64>,
    ) -> Self {
        Self::start_on(shared, runtime, script, |tracker, wiring| Extras {
            sharing: Some(Sharing {
                neighbours: FleetNeighbours {
                    clearance: Sender::local(wiring.clone(), tracker.clone().recipient()),
                    resolve: Sender::local(wiring.clone(), tracker.clone().recipient()),
                    withdraw: Sender::local(wiring.clone(), tracker.clone().recipient()),
                    list: Sender::local(wiring.clone(), tracker.clone().recipient()),
                },
                locality: Locality { scope: "eu".to_owned(), zone: "a".to_owned(), egress: "nat-1".to_owned(), boot: "boot".to_owned() },
                max_wait: Duration::from_secs(10),
            }),
            standing_pulls: standing_pulls.map(|path| Arc::new(StandingPullFile::new(path.to_owned())) as _),
            mid_pull: Some(MidPullSenders {
                begin: Sender::local(wiring.clone(), tracker.clone().recipient()),
                limits: Sender::local(wiring.clone(), tracker.clone().recipient()),
            }),
            keep_free,
        })
    }

    pub(crate) fn start(
        runtime: &ScriptedRuntime,
        script: &Script,
        extras: impl FnOnce(&Addr<ScriptedTracker>, &Wiring) -> Extras,
    ) -> Self {
        Self::start_on(Arc::new(runtime.clone()), runtime, script, extras)
    }

    fn start_on(
        shared: RuntimeRef,
        runtime: &ScriptedRuntime,
        script: &Script,
        extras: impl FnOnce(&Addr<ScriptedTracker>, &Wiring) -> Extras,
    ) -> Self {
        let tracker = ScriptedTracker(script.clone()).start();
        let clock = Clock::simulated(WALL);
        let bus = Arc::new(MemoryBus::new(clock.clone()));
        let wiring = Wiring { bus, fleet: Fleet::default(), node: "n1".parse().unwrap(), delivery: Delivery::Local };
        let neighbours = Neighbours {
            check: Sender::local(wiring.clone(), tracker.clone().recipient()),
            report: Sender::remote(wiring.clone()),
            acquire: Sender::remote(wiring.clone()),
            release: Sender::remote(wiring.clone()),
            record: Sender::remote(wiring.clone()),
        };
        let panic_guard = actors::PanicGuard::of;
        let node = wiring.node.clone();
        let coordinator = PullCoordinator::new(node, shared, neighbours, clock, None, panic_guard("pull-coordinator"));
        let coordinator = coordinator.with(extras(&tracker, &wiring)).start();
        Self { coordinator, runtime: runtime.clone() }
    }

    pub(crate) async fn put<C: Command>(&self, body: C) -> C::Reply
    where
        PullCoordinator: Handler<Ask<C>>,
        <PullCoordinator as Handler<Ask<C>>>::Result: actix::dev::MessageResponse<PullCoordinator, Ask<C>>,
    {
        put(&self.coordinator, body).await
    }

    pub(crate) fn begin(&self, body: EnsureImage) -> tokio::task::JoinHandle<PullOutcome> {
        let coordinator = self.coordinator.clone();
        actix::spawn(async move { put(&coordinator, body).await })
    }

    pub(crate) async fn standing_pulls(&self) -> Vec<StandingPullStatus> {
        self.put(ListStandingPulls {}).await.standing_pulls
    }

    pub(crate) fn pulls(&self) -> usize {
        self.runtime.calls().into_iter().filter(|call| matches!(call, ScriptedCall::Pull(_))).count()
    }
}

pub(crate) async fn put<C: Command>(coordinator: &Addr<PullCoordinator>, body: C) -> C::Reply
where
    PullCoordinator: Handler<Ask<C>>,
{
    let meta = Meta::root(&mut Random::from_system());
    coordinator.send(Ask(Envelope { meta, body })).await.unwrap().unwrap()
}

pub(crate) fn wanted() -> EnsureImage {
    ask(IMAGE, PullPolicy::IfNotPresent)
}

pub(crate) fn standing() -> EnsureImage {
    EnsureImage { wait_ms: Some(600_000), standing_pull: "1".to_owned().try_into().ok(), ..wanted() }
}
