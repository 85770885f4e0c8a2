//! A node under test: the program's own composition, with helpers.
#![allow(clippy::disallowed_methods, reason = "tasks of a test")]

use std::sync::Arc;
use std::time::Duration;

use actix::{Addr, Handler};
use actors::{Ask, Delivery};
use backoff_tracker::core::BackoffPolicy;
use bus::BusRef;
use bus::memory::MemoryBus;
use clock::Clock;
use contract::messages::backoff_tracker::{BackoffCounts, CountBackoffs};
use contract::messages::event_recorder::{CountEvents, EventCounts, ListEvents};
use contract::messages::pull_coordinator::{EnsureImage, ExplainImage, Explanation, ListPulls, PullOutcome, PullPolicy, PullStatus};
use contract::messages::throttler::{CountPermits, PermitCounts};
use contract::subject::Fleet;
use contract::{CallError, Command, PodRef, PullEvent};
use event_recorder::Flush;
use event_recorder::core::KEEP_DEFAULT;
use fleetpull::node::{Actors, Node, NodeParts, Policies, STANDING, root_envelope};
use runtimes::{ImageRuntime, RuntimeRef};
use throttler::core::{OnExhausted, ThrottlePolicy};
use tokio::task::JoinHandle;

/// Limits nothing: every pull begins at once.
pub const UNLIMITED: ThrottlePolicy = ThrottlePolicy { per_second: 0.0, burst: 0, slots: 0, on_exhausted: OnExhausted::Wait, queue: 1_000 };
/// The wall time at which paused tests begin.
const WALL: Duration = Duration::from_secs(1_700_000_000);

/// The parts and settings of a node under test.
pub struct Plan {
    /// The runtime.
    pub runtime: RuntimeRef,
    /// The bus.
    pub bus: BusRef,
    /// The fleet.
    pub fleet: Fleet,
    /// The clock.
    pub clock: Clock,
    /// The back-off after a failure.
    pub backoff: BackoffPolicy,
    /// The limits of pulls that begin and run.
    pub throttle: ThrottlePolicy,
    /// The longest that one pull may take.
    pub pull_timeout: Option<Duration>,
    /// How the services reach each other.
    pub delivery: Delivery,
}

impl Plan {
    /// A node on the memory bus, on tokio's clock, with kubelet's back-off and without a throttle.
    pub fn with(runtime: impl ImageRuntime) -> Self {
        let clock = Clock::simulated(WALL);
        Self {
            runtime: Arc::new(runtime),
            bus: Arc::new(MemoryBus::new(clock.clone())),
            fleet: Fleet::default(),
            clock,
            backoff: BackoffPolicy::default(),
            throttle: UNLIMITED,
            pull_timeout: None,
            delivery: Delivery::Local,
        }
    }
}

/// A running node.
pub struct TestNode(pub Node);

impl TestNode {
    /// Starts the four services as the program does. Must be called within an actix system.
    pub async fn start(plan: Plan) -> Self {
        let Plan { runtime, bus, fleet, clock, backoff, throttle, pull_timeout, delivery } = plan;
        let policies = Policies { backoff, throttle, pull_timeout, keep_events: KEEP_DEFAULT, delivery };
        let parts = NodeParts { name: "n1".parse().expect("a name"), fleet, bus, runtime, clock, policies };
        Self(Node::start(parts).await.expect("the bus is open"))
    }

    /// Makes sure that an image is present.
    pub async fn ensure(&self, ask: EnsureImage) -> PullOutcome {
        self.0.pull(ask).await.expect("the coordinator answers")
    }

    /// Makes sure that an image is present, in a task of its own.
    pub fn begin(&self, ask: EnsureImage) -> JoinHandle<PullOutcome> {
        let sender = self.0.ensure();
        actix::spawn(async move { sender.call(root_envelope(ask), STANDING).await.expect("the coordinator answers") })
    }

    /// As [`TestNode::begin`], but the coordinator is called without the bus.
    pub fn begin_here(&self, ask: EnsureImage) -> JoinHandle<PullOutcome> {
        let coordinator = self.0.actors.coordinator.clone();
        actix::spawn(async move { put(&coordinator, ask).await })
    }

    /// Explains a pull.
    ///
    /// # Errors
    /// The image cannot be read.
    pub async fn explain(&self, image: &str, policy: Option<PullPolicy>) -> Result<Explanation, CallError> {
        self.explained(ExplainImage { image: image.to_owned(), policy, ..ExplainImage::default() }).await
    }

    /// Explains a pull, with all options.
    ///
    /// # Errors
    /// The image, or an option, cannot be parsed.
    pub async fn explained(&self, wanted: ExplainImage) -> Result<Explanation, CallError> {
        self.0.actors.coordinator.send(Ask(root_envelope(wanted))).await.expect("the coordinator lives")
    }

    /// All kept events, oldest first.
    pub async fn events(&self) -> Vec<PullEvent> {
        let (mut events, mut after) = (Vec::new(), 0);
        loop {
            let page = put(&self.0.actors.recorder, ListEvents { after, ..ListEvents::default() }).await;
            events.extend(page.events);
            after = page.next_after;
            if !page.more {
                return events;
            }
        }
    }

    /// The running and queued pulls.
    pub async fn pulls(&self) -> Vec<PullStatus> {
        put(&self.0.actors.coordinator, ListPulls {}).await.pulls
    }

    /// The counts of the node's back-offs.
    pub async fn backoffs(&self) -> BackoffCounts {
        put(&self.0.actors.backoff, CountBackoffs {}).await
    }

    /// The counts of the node's permits and budgets.
    pub async fn permits(&self) -> PermitCounts {
        put(&self.0.actors.throttler, CountPermits {}).await
    }

    /// How many events were recorded and published.
    pub async fn event_counts(&self) -> EventCounts {
        put(&self.0.actors.recorder, CountEvents {}).await
    }

    /// Waits until everything recorded so far is published.
    pub async fn flush(&self) {
        self.0.actors.recorder.send(Flush).await.expect("the recorder lives");
    }

    /// Whether all four actors run.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        let Actors { coordinator, backoff, throttler, recorder } = &self.0.actors;
        coordinator.connected() && backoff.connected() && throttler.connected() && recorder.connected()
    }
}

/// Calls an actor in this process, without the bus.
async fn put<C, A>(actor: &Addr<A>, body: C) -> C::Reply
where
    C: Command,
    A: actix::Actor<Context = actix::Context<A>> + Handler<Ask<C>>,
{
    actor.send(Ask(root_envelope(body))).await.expect("the actor lives").expect("the actor answers")
}

/// A request without a pod and without a time-out.
#[must_use]
pub fn ask(image: &str, policy: PullPolicy) -> EnsureImage {
    EnsureImage { image: image.to_owned(), policy: Some(policy), ..EnsureImage::default() }
}

/// A pod with this name.
#[must_use]
pub fn pod(name: &str) -> PodRef {
    PodRef { namespace: "test-ns".to_owned(), name: name.to_owned(), uid: String::new() }
}
