//! The services of one node, composed on any bus with any runtime.

mod connection;
mod name;
pub mod presence;
mod runtime;

pub use connection::{connect_client, open_bus, shown_bus};
pub use name::node_name;
pub use runtime::open_runtime;

use std::time::Duration;

use actix::{Actor as _, Addr};
use actors::{Deaths, Delivery, Sender, Served, Wiring};
use backoff_tracker::BackoffTracker;
use backoff_tracker::core::BackoffPolicy;
use bus::{BusError, BusRef};
use clock::{Clock, Random};
use contract::messages::pull_coordinator::{EnsureImage, PullOutcome};
use contract::subject::Fleet;
use contract::{CallError, Command, Envelope, Meta, NodeName};
use event_recorder::{EventRecorder, Flush};
use pull_coordinator::{Neighbours, PullCoordinator};
use runtimes::RuntimeRef;
use settings::Settings;
use throttler::Throttler;
use throttler::core::{OnExhausted, ThrottlePolicy};

/// What a node is made of.
pub struct NodeParts {
    /// Its name.
    pub name: NodeName,
    /// Its fleet.
    pub fleet: Fleet,
    /// The bus it speaks on.
    pub bus: BusRef,
    /// What pulls.
    pub runtime: RuntimeRef,
    /// Its clock.
    pub clock: Clock,
    /// Its policies.
    pub policies: Policies,
}

/// How a node behaves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Policies {
    /// How long a failed image is left alone.
    pub backoff: BackoffPolicy,
    /// How many pulls begin and run.
    pub throttle: ThrottlePolicy,
    /// The most that one pull may take.
    pub pull_timeout: Option<Duration>,
    /// How many events are kept.
    pub keep_events: usize,
    /// How the services reach each other.
    pub delivery: Delivery,
}

impl Policies {
    /// As set.
    #[must_use]
    pub fn of(settings: &Settings) -> Self {
        let count = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
        Self {
            backoff: BackoffPolicy { initial: settings.backoff.initial, max: settings.backoff.max },
            throttle: ThrottlePolicy {
                per_second: settings.throttle.qps,
                burst: settings.throttle.burst,
                slots: count(settings.pull.slots()),
                on_exhausted: match settings.throttle.on_exhausted {
                    settings::OnExhausted::Wait => OnExhausted::Wait,
                    settings::OnExhausted::Fail => OnExhausted::Fail,
                },
                queue: count(settings.pull.queue),
            },
            pull_timeout: settings.pull.timeout,
            keep_events: count(settings.events.keep),
            delivery: if settings.bus.local_delivery { Delivery::Local } else { Delivery::Bus },
        }
    }
}

/// A node at work. Dropping it ends its services.
pub struct Node {
    /// How its services are reached.
    pub wiring: Wiring,
    /// The actors.
    pub actors: Actors,
    /// Which of them died.
    pub deaths: Deaths,
    served: Vec<Served>,
}

/// The actors of a node.
#[derive(Clone, Debug)]
pub struct Actors {
    /// One pull request from first check to outcome.
    pub coordinator: Addr<PullCoordinator>,
    /// Who failed, why, and when to try again.
    pub backoff: Addr<BackoffTracker>,
    /// The node's bucket and slots.
    pub throttler: Addr<Throttler>,
    /// The facts.
    pub recorder: Addr<EventRecorder>,
}

impl Node {
    /// Starts the four services, and takes their commands from the bus. Must be called inside an actix system.
    ///
    /// # Errors
    /// The bus is closed.
    pub async fn start(parts: NodeParts) -> Result<Self, BusError> {
        let NodeParts { name, fleet, bus, runtime, clock, policies } = parts;
        let wiring = Wiring { bus: bus.clone(), fleet: fleet.clone(), node: name.clone(), delivery: policies.delivery };
        let (gravestone, deaths) = actors::deaths();
        let backoff = BackoffTracker::new(policies.backoff, clock.clone(), gravestone("backoff-tracker")).start();
        let throttler = Throttler::new(policies.throttle, clock.clone(), gravestone("throttler")).start();
        let recorder = EventRecorder::new(policies.keep_events, bus, fleet, gravestone("event-recorder")).start();
        let neighbours = Neighbours {
            check: Sender::local(wiring.clone(), backoff.clone().recipient()),
            report: Sender::local(wiring.clone(), backoff.clone().recipient()),
            acquire: Sender::local(wiring.clone(), throttler.clone().recipient()),
            release: Sender::local(wiring.clone(), throttler.clone().recipient()),
            record: Sender::local(wiring.clone(), recorder.clone().recipient()),
        };
        let coordinator =
            PullCoordinator::new(name, runtime, neighbours, clock, policies.pull_timeout, gravestone("pull-coordinator")).start();
        let mut served = backoff_tracker::serve(&wiring, &backoff).await?;
        served.extend(throttler::serve(&wiring, &throttler).await?);
        served.extend(event_recorder::serve(&wiring, &recorder).await?);
        served.extend(pull_coordinator::serve(&wiring, &coordinator).await?);
        Ok(Self { wiring, actors: Actors { coordinator, backoff, throttler, recorder }, deaths, served })
    }

    /// A sender of the pull coordinator's `ensure`.
    #[must_use]
    pub fn ensure(&self) -> Sender<EnsureImage> {
        Sender::local(self.wiring.clone(), self.actors.coordinator.clone().recipient())
    }

    /// What is taken from the bus, and by which service.
    #[must_use]
    pub fn served(&self) -> &[Served] {
        &self.served
    }

    /// Makes sure that an image is there, in a trace of its own.
    ///
    /// # Errors
    /// The coordinator has ended.
    pub async fn pull(&self, ask: EnsureImage) -> Result<PullOutcome, CallError> {
        self.ensure().call(root_envelope(ask), STANDING).await
    }

    /// Takes no more commands from the bus, and waits until what is recorded is published.
    pub async fn stop(mut self) {
        self.served.clear();
        // The recorder may be gone already; then there is nothing to wait for.
        let _ = self.actors.recorder.send(Flush).await;
        self.wiring.bus.drain().await;
    }
}

/// How long a request may stand that has no time-out of its own: longer than any pull.
pub const STANDING: Duration = Duration::from_secs(7 * 24 * 3_600);

/// A command as the first message of a new trace.
pub fn root_envelope<C: Command>(body: C) -> Envelope<C> {
    Envelope { meta: Meta::root(&mut Random::from_system()), body }
}
