//! A node under test, composed as the program composes one.

use std::sync::Arc;
use std::time::Duration;

use actix::{Actor as _, Addr, Handler};
use actors::{Ask, Deaths, Delivery, Sender, Served, Wiring};
use backoff_tracker::BackoffTracker;
use backoff_tracker::core::BackoffPolicy;
use bus::BusRef;
use bus::memory::MemoryBus;
use clock::{Clock, Random};
use contract::messages::backoff_tracker::{BackoffCounts, CountBackoffs};
use contract::messages::event_recorder::{CountEvents, EventCounts, ListEvents};
use contract::messages::pull_coordinator::{EnsureImage, ListPulls, PullOutcome, PullPolicy, PullStatus};
use contract::messages::throttler::{CountPermits, PermitCounts};
use contract::subject::Fleet;
use contract::{Command, Envelope, Meta, NodeName, PodRef, PullEvent};
use event_recorder::core::KEEP_DEFAULT;
use event_recorder::{EventRecorder, Flush};
use pull_coordinator::{Neighbours, PullCoordinator};
use runtimes::{ImageRuntime, RuntimeRef};
use throttler::Throttler;
use throttler::core::{OnExhausted, ThrottlePolicy};
use tokio::task::JoinHandle;

/// Every pull begins at once.
pub const UNLIMITED: ThrottlePolicy = ThrottlePolicy { per_second: 0.0, burst: 0, slots: 0, on_exhausted: OnExhausted::Wait, queue: 1_000 };
/// The wall time at which paused tests begin.
const WALL: Duration = Duration::from_secs(1_700_000_000);
/// How long an ask may stand that has no time-out of its own: longer than any test.
const STANDING: Duration = Duration::from_secs(24 * 3_600);

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
pub struct TestNode {
    /// How its services are reached.
    pub wiring: Wiring,
    /// Which of its actors died.
    pub deaths: Deaths,
    coordinator: Addr<PullCoordinator>,
    backoff: Addr<BackoffTracker>,
    throttler: Addr<Throttler>,
    recorder: Addr<EventRecorder>,
    _served: Vec<Served>,
}

impl TestNode {
    /// Starts the four services, and takes their commands from the bus. Must be called inside an actix system.
    pub async fn start(plan: Plan) -> Self {
        let name: NodeName = "n1".parse().expect("a name");
        let wiring = Wiring { bus: plan.bus.clone(), fleet: plan.fleet.clone(), node: name.clone(), delivery: plan.delivery };
        let (gravestone, deaths) = actors::deaths();
        let backoff = BackoffTracker::new(plan.backoff, plan.clock.clone(), gravestone("backoff-tracker")).start();
        let throttler = Throttler::new(plan.throttle, plan.clock.clone(), gravestone("throttler")).start();
        let recorder = EventRecorder::new(KEEP_DEFAULT, plan.bus, plan.fleet, gravestone("event-recorder")).start();
        let neighbours = Neighbours {
            check: Sender::local(wiring.clone(), backoff.clone().recipient()),
            report: Sender::local(wiring.clone(), backoff.clone().recipient()),
            acquire: Sender::local(wiring.clone(), throttler.clone().recipient()),
            release: Sender::local(wiring.clone(), throttler.clone().recipient()),
            record: Sender::local(wiring.clone(), recorder.clone().recipient()),
        };
        let coordinator =
            PullCoordinator::new(name, plan.runtime, neighbours, plan.clock, plan.pull_timeout, gravestone("pull-coordinator")).start();
        let mut served = backoff_tracker::serve(&wiring, &backoff).await.expect("the bus is open");
        served.extend(throttler::serve(&wiring, &throttler).await.expect("the bus is open"));
        served.extend(event_recorder::serve(&wiring, &recorder).await.expect("the bus is open"));
        served.extend(pull_coordinator::serve(&wiring, &coordinator).await.expect("the bus is open"));
        Self { wiring, deaths, coordinator, backoff, throttler, recorder, _served: served }
    }

    /// Makes sure that an image is there.
    pub async fn ensure(&self, ask: EnsureImage) -> PullOutcome {
        let sender = Sender::local(self.wiring.clone(), self.coordinator.clone().recipient());
        sender.call(root(ask), STANDING).await.expect("the coordinator answers")
    }

    /// Makes sure that an image is there, beside whatever else happens.
    pub fn begin(&self, ask: EnsureImage) -> JoinHandle<PullOutcome> {
        let sender = Sender::local(self.wiring.clone(), self.coordinator.clone().recipient());
        actix::spawn(async move { sender.call(root(ask), STANDING).await.expect("the coordinator answers") })
    }

    /// As [`TestNode::begin`], but the coordinator is asked past any bus.
    pub fn begin_here(&self, ask: EnsureImage) -> JoinHandle<PullOutcome> {
        let coordinator = self.coordinator.clone();
        actix::spawn(async move { put(&coordinator, ask).await })
    }

    /// Every event that is kept, oldest first.
    pub async fn events(&self) -> Vec<PullEvent> {
        let (mut events, mut after) = (Vec::new(), 0);
        loop {
            let page = put(&self.recorder, ListEvents { after, ..ListEvents::default() }).await;
            events.extend(page.events);
            after = page.next_after;
            if !page.more {
                return events;
            }
        }
    }

    /// What is in flight and queued.
    pub async fn pulls(&self) -> Vec<PullStatus> {
        put(&self.coordinator, ListPulls {}).await.pulls
    }

    /// How the node's back-offs stand.
    pub async fn backoffs(&self) -> BackoffCounts {
        put(&self.backoff, CountBackoffs {}).await
    }

    /// How the node's budget stands.
    pub async fn permits(&self) -> PermitCounts {
        put(&self.throttler, CountPermits {}).await
    }

    /// How many events were recorded and published.
    pub async fn event_counts(&self) -> EventCounts {
        put(&self.recorder, CountEvents {}).await
    }

    /// Waits until everything recorded so far is published.
    pub async fn flush(&self) {
        self.recorder.send(Flush).await.expect("the recorder lives");
    }

    /// Whether all four actors live.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.coordinator.connected() && self.backoff.connected() && self.throttler.connected() && self.recorder.connected()
    }
}

/// Asks an actor in this process, past any bus.
async fn put<C, A>(actor: &Addr<A>, body: C) -> C::Reply
where
    C: Command,
    A: actix::Actor<Context = actix::Context<A>> + Handler<Ask<C>>,
{
    actor.send(Ask(root(body))).await.expect("the actor lives").expect("the actor answers")
}

fn root<C: Command>(body: C) -> Envelope<C> {
    Envelope { meta: Meta::root(&mut Random::from_system()), body }
}

/// An ask without a pod and without a time-out.
#[must_use]
pub fn ask(image: &str, policy: PullPolicy) -> EnsureImage {
    EnsureImage { image: image.to_owned(), policy: Some(policy), platform: None, pod: None, timeout_ms: None }
}

/// A pod by its name.
#[must_use]
pub fn pod(name: &str) -> PodRef {
    PodRef { namespace: "test-ns".to_owned(), name: name.to_owned(), uid: String::new() }
}
