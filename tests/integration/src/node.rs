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

/// Every pull begins at once.
pub const UNLIMITED: ThrottlePolicy = ThrottlePolicy { per_second: 0.0, burst: 0, slots: 0, on_exhausted: OnExhausted::Wait, queue: 1_000 };
/// The wall time at which paused tests begin.
const WALL: Duration = Duration::from_secs(1_700_000_000);

/// What a node under test is made of.
pub struct Plan {
    /// What pulls.
    pub runtime: RuntimeRef,
    /// The bus it speaks on.
    pub bus: BusRef,
    /// Its fleet.
    pub fleet: Fleet,
    /// Its clock.
    pub clock: Clock,
    /// How long a failed image is left alone.
    pub backoff: BackoffPolicy,
    /// How many pulls begin and run.
    pub throttle: ThrottlePolicy,
    /// The most that one pull may take.
    pub pull_timeout: Option<Duration>,
    /// How the services reach each other.
    pub delivery: Delivery,
}

impl Plan {
    /// A node on a bus in memory, on tokio's clock, with kubelet's back-off and without a throttle.
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

/// A node at work.
pub struct TestNode(pub Node);

impl TestNode {
    /// Starts the four services as the program does. Must be called inside an actix system.
    pub async fn start(plan: Plan) -> Self {
        let Plan { runtime, bus, fleet, clock, backoff, throttle, pull_timeout, delivery } = plan;
        let policies = Policies { backoff, throttle, pull_timeout, keep_events: KEEP_DEFAULT, delivery };
        let parts = NodeParts { name: "n1".parse().expect("a name"), fleet, bus, runtime, clock, policies };
        Self(Node::start(parts).await.expect("the bus is open"))
    }

    /// Makes sure that an image is there.
    pub async fn ensure(&self, ask: EnsureImage) -> PullOutcome {
        self.0.pull(ask).await.expect("the coordinator answers")
    }

    /// Makes sure that an image is there, beside whatever else happens.
    pub fn begin(&self, ask: EnsureImage) -> JoinHandle<PullOutcome> {
        let sender = self.0.ensure();
        actix::spawn(async move { sender.call(root_envelope(ask), STANDING).await.expect("the coordinator answers") })
    }

    /// As [`TestNode::begin`], but the coordinator is asked past any bus.
    pub fn begin_here(&self, ask: EnsureImage) -> JoinHandle<PullOutcome> {
        let coordinator = self.0.actors.coordinator.clone();
        actix::spawn(async move { put(&coordinator, ask).await })
    }

    /// What would happen to a pull.
    ///
    /// # Errors
    /// The image cannot be read.
    pub async fn explain(&self, image: &str, policy: Option<PullPolicy>) -> Result<Explanation, CallError> {
        self.explained(ExplainImage { image: image.to_owned(), policy, ..ExplainImage::default() }).await
    }

    /// What would happen to a pull, and what else is asked.
    ///
    /// # Errors
    /// The image, or what else was asked, cannot be read.
    pub async fn explained(&self, wanted: ExplainImage) -> Result<Explanation, CallError> {
        self.0.actors.coordinator.send(Ask(root_envelope(wanted))).await.expect("the coordinator lives")
    }

    /// Every event that is kept, oldest first.
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

    /// What is in flight and queued.
    pub async fn pulls(&self) -> Vec<PullStatus> {
        put(&self.0.actors.coordinator, ListPulls {}).await.pulls
    }

    /// How the node's back-offs stand.
    pub async fn backoffs(&self) -> BackoffCounts {
        put(&self.0.actors.backoff, CountBackoffs {}).await
    }

    /// How the node's budget stands.
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

    /// Whether all four actors live.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        let Actors { coordinator, backoff, throttler, recorder } = &self.0.actors;
        coordinator.connected() && backoff.connected() && throttler.connected() && recorder.connected()
    }
}

/// Asks an actor in this process, past any bus.
async fn put<C, A>(actor: &Addr<A>, body: C) -> C::Reply
where
    C: Command,
    A: actix::Actor<Context = actix::Context<A>> + Handler<Ask<C>>,
{
    actor.send(Ask(root_envelope(body))).await.expect("the actor lives").expect("the actor answers")
}

/// An ask without a pod and without a time-out.
#[must_use]
pub fn ask(image: &str, policy: PullPolicy) -> EnsureImage {
    EnsureImage { image: image.to_owned(), policy: Some(policy), ..EnsureImage::default() }
}

/// A pod by its name.
#[must_use]
pub fn pod(name: &str) -> PodRef {
    PodRef { namespace: "test-ns".to_owned(), name: name.to_owned(), uid: String::new() }
}
