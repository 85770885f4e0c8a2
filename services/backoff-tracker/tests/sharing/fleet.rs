//! Trackers as nodes have them, and the bus between them.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, Addr, Context, Handler};
use actors::{Ask, Delivery, Sender, Wiring};
use backoff_tracker::core::BackoffPolicy;
use backoff_tracker::{BackoffTracker, Share, SharedBus, TrackerParts};
use bus::memory::MemoryBus;
use clock::{Clock, Random};
use contract::messages::backoff_tracker::{
    AttemptFailure, BackoffAnswer, BackoffCounts, CheckBackoff, Clearance, CountBackoffs, LocalKey, Refusal, ReportAttempt,
    RequestClearance, ResolveAttempt, SeeFleet, WithdrawClearance,
};
use contract::messages::event_recorder::{EventRecorded, RecordEvent};
use contract::messages::registrar::{FleetSeen, Place};
use contract::subject::Fleet;
use contract::{AttemptId, CallError, ClearanceId, Command, Envelope, FailureClass, Meta, PullEvent, Stage, Target, TraceContext, View};

/// Far more than an answer takes, on the paused clock.
pub(crate) const PATIENCE_MS: u64 = 1_000;

pub(crate) struct Nodes {
    pub(crate) bus: MemoryBus,
    pub(crate) clock: Clock,
    pub(crate) nodes: Vec<Node>,
}

/// The node's event recorder.
struct Recorder(Rc<RefCell<Vec<PullEvent>>>);

impl Actor for Recorder {
    type Context = Context<Self>;
}

impl Handler<Ask<RecordEvent>> for Recorder {
    type Result = Result<EventRecorded, CallError>;

    fn handle(&mut self, Ask(record): Ask<RecordEvent>, _: &mut Self::Context) -> Self::Result {
        self.0.borrow_mut().push(record.body.event);
        Ok(EventRecorded {})
    }
}

pub(crate) struct Node {
    pub(crate) tracker: Addr<BackoffTracker>,
    /// The events that its recorder received.
    pub(crate) events: Rc<RefCell<Vec<PullEvent>>>,
    pub(crate) connection: MemoryBus,
}

impl Nodes {
    pub(crate) async fn start(count: usize) -> Self {
        Self::sharing(count, Share::Enforce).await
    }

    pub(crate) async fn sharing(count: usize, share: Share) -> Self {
        Self::sharing_on(MemoryBus::new(Self::time()), count, share).await
    }

    /// A fleet on this bus.
    pub(crate) async fn on(bus: MemoryBus, count: usize) -> Self {
        Self::sharing_on(bus, count, Share::Enforce).await
    }

    fn time() -> Clock {
        Clock::simulated(Duration::from_secs(1_700_000_000))
    }

    async fn sharing_on(bus: MemoryBus, count: usize, share: Share) -> Self {
        let mut nodes = Self { bus, clock: Self::time(), nodes: vec![] };
        for number in 0..count {
            let node = nodes.join(&format!("n{}", number + 1), share);
            nodes.nodes.push(node);
        }
        nodes.see(count).await;
        nodes
    }

    pub(crate) fn join(&self, name: &str, share: Share) -> Node {
        self.join_with(name, share, &self.clock)
    }

    pub(crate) fn join_with(&self, name: &str, share: Share, clock: &Clock) -> Node {
        let connection = self.bus.connect();
        let panic_guard = actors::PanicGuard::of;
        let parts = TrackerParts {
            node: name.parse().unwrap(),
            policy: BackoffPolicy::default(),
            clock: clock.clone(),
            random: Random::seeded(7),
            panic_guard: panic_guard("backoff-tracker"),
            share,
            shared: SharedBus { bus: Arc::new(connection.clone()), fleet: Fleet::default() },
            planted_bug: None,
        };
        let events: Rc<RefCell<Vec<PullEvent>>> = Rc::default();
        let recorder = Recorder(events.clone()).start();
        let node = parts.node.clone();
        let wiring = Wiring { bus: Arc::new(connection.clone()), fleet: Fleet::default(), node: node.clone(), delivery: Delivery::Local };
        let record = Sender::local(wiring, recorder.recipient());
        Node { tracker: BackoffTracker::sharing(parts).recording(node, record).start(), events, connection }
    }

    /// Sends each node the number of nodes.
    pub(crate) async fn see(&self, count: usize) {
        for (rank, node) in self.nodes.iter().enumerate() {
            let place = Place { alive: count as u64, alive_in_zone: count as u64, rank: Some(rank as u64) };
            node.put(SeeFleet(FleetSeen { place, digest: None })).await;
        }
    }
}

impl Node {
    pub(crate) async fn put<C: Command>(&self, body: C) -> C::Reply
    where
        BackoffTracker: Handler<Ask<C>>,
    {
        self.tracker.send(Ask(envelope(body))).await.expect("the tracker lives").expect("the tracker answers")
    }

    /// The failures known of an image, also those that refuse no node.
    pub(crate) async fn check(&self, image: &str) -> BackoffAnswer {
        self.put(CheckBackoff { key: key(image), peek: true, target: Some(target(image)) }).await
    }

    /// Whether a caller may continue to request clearance.
    pub(crate) async fn check_before_pull(&self, image: &str) -> BackoffAnswer {
        self.put(CheckBackoff { key: key(image), peek: false, target: Some(target(image)) }).await
    }

    pub(crate) async fn held(&self, image: &str) -> Refusal {
        match self.check(image).await {
            BackoffAnswer::Refused(held) => held,
            other => panic!("{image} is not held: {other:?}"),
        }
    }

    pub(crate) async fn clearance(&self, clearance: ClearanceId, attempt: AttemptId, image: &str, patience_ms: u64) -> Clearance {
        self.put(ask(clearance, attempt, image, patience_ms, false)).await
    }

    pub(crate) async fn stand(&self, clearance: ClearanceId, attempt: AttemptId, image: &str, patience_ms: u64) -> Clearance {
        self.put(ask(clearance, attempt, image, patience_ms, true)).await
    }

    /// A whole flight that fails.
    pub(crate) async fn fails(&self, number: u64, image: &str, failure: AttemptFailure) {
        let (clearance, attempt) = ids(number);
        let clearance = self.clearance(clearance, attempt, image, PATIENCE_MS).await;
        assert!(matches!(clearance, Clearance::Granted { .. }), "{clearance:?}");
        self.ends(number, image, Some(failure)).await;
    }

    /// A whole flight that fails, once it has clearance.
    pub(crate) async fn fails_when_let(&self, number: u64, image: &str, failure: AttemptFailure) {
        let (clearance, attempt) = ids(number);
        let clearance = self.clearance(clearance, attempt, image, 10_000).await;
        assert!(matches!(clearance, Clearance::Granted { .. }), "{clearance:?}");
        self.ends(number, image, Some(failure)).await;
    }

    /// A flight that fails if it has clearance within 1 s.
    pub(crate) async fn fails_or_not(&self, number: u64, image: &str) {
        let (clearance, attempt) = ids(number);
        match self.clearance(clearance, attempt, image, PATIENCE_MS).await {
            Clearance::Granted { .. } => self.ends(number, image, Some(not_found())).await,
            _ => {
                self.put(WithdrawClearance { clearance }).await;
            }
        }
    }

    /// A whole flight that succeeds, once it has clearance.
    pub(crate) async fn ends_well(&self, number: u64, image: &str) {
        let (clearance, attempt) = ids(number);
        for _ in 0..120 {
            if matches!(self.clearance(clearance, attempt, image, PATIENCE_MS).await, Clearance::Granted { .. }) {
                return self.ends(number, image, None).await;
            }
            pass(500).await;
        }
        panic!("{image} has no clearance within a minute");
    }

    /// The end of a flight that had clearance.
    pub(crate) async fn ends(&self, number: u64, image: &str, failure: Option<AttemptFailure>) {
        let (clearance, attempt) = ids(number);
        self.put(ResolveAttempt { clearance, attempt, failure: failure.clone(), stage: Stage::Manifest }).await;
        self.put(ReportAttempt { key: key(image), attempt, attempt_span: None, failure, target: None }).await;
        self.put(WithdrawClearance { clearance }).await;
    }

    pub(crate) async fn counts(&self) -> BackoffCounts {
        self.put(CountBackoffs {}).await
    }
}

pub(crate) fn envelope<C: Command>(body: C) -> Envelope<C> {
    Envelope { meta: Meta::root(&mut Random::seeded(11)), body }
}

pub(crate) fn ask(clearance: ClearanceId, attempt: AttemptId, image: &str, patience_ms: u64, standing: bool) -> RequestClearance {
    RequestClearance {
        clearance,
        attempt,
        attempt_span: Some(TraceContext::root(&mut Random::seeded(12))),
        key: key(image),
        other_keys: Vec::new(),
        target: target(image),
        standing,
        patience_ms,
    }
}

/// A clearance and an attempt, the same for the same number.
pub(crate) fn ids(number: u64) -> (ClearanceId, AttemptId) {
    let mut random = Random::seeded(number);
    (ClearanceId::random(&mut random), AttemptId::random(&mut random))
}

pub(crate) fn key(image: &str) -> LocalKey {
    LocalKey { pod: None, image: image.to_owned() }
}

pub(crate) fn target(image: &str) -> Target {
    let repository = image.rsplit_once(':').map_or(image, |(repository, _)| repository).to_owned();
    Target {
        view: View { scope: "default".to_owned(), registry: "r.example".to_owned(), route: "direct".to_owned(), boot: String::new() },
        endpoint: "r.example:443".to_owned(),
        zone: "z".to_owned(),
        repository,
        reference: image.to_owned(),
        platform: "linux/amd64".to_owned(),
        scope: "anonymous".to_owned(),
        budget_owner: "anonymous@default".to_owned(),
        ..Target::default()
    }
}

pub(crate) fn not_found() -> AttemptFailure {
    AttemptFailure {
        class: FailureClass::NotFound,
        cause: "ErrImagePull: manifest unknown".to_owned(),
        authoritative: true,
        ..AttemptFailure::default()
    }
}

pub(crate) fn refused() -> AttemptFailure {
    AttemptFailure {
        class: FailureClass::RegistryUnavailable,
        cause: "ErrImagePull: connection refused".to_owned(),
        ..AttemptFailure::default()
    }
}

/// Lets messages arrive.
pub(crate) async fn pass(milliseconds: u64) {
    tokio::time::sleep(Duration::from_millis(milliseconds)).await;
}
