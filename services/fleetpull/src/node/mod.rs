//! The services of one node, composed on any bus with any runtime.

mod boot;
mod connection;
pub mod fleet_key;
mod local_agent;
mod membership;
mod name;
mod runtime;
mod sharing;
mod spread;

pub use boot::boot_id;
pub use connection::{check_bus, connect_agent, connect_client, connect_nats, open_bus, open_second_connection, shown_bus};
pub use local_agent::{LocalAgent, SOCKET_FILE, local_agent};
pub use membership::Membership;
pub use name::{node_name, own_name};
pub use runtime::{logins, open_runtime, open_shared_runtime};
pub use sharing::Sharing;

use std::time::Duration;

use actix::{Actor as _, Addr};
use actors::{Delivery, EventSender, PanicGuard, Sender, Served, Wiring};
use backoff_tracker::BackoffTracker;
use backoff_tracker::core::BackoffPolicy;
use bus::{BusError, BusHealth, BusRef};
use clock::{Clock, Random};
use contract::messages::pull_coordinator::{EnsureImage, PullOutcome};
use contract::messages::registrar::FleetSeen;
use contract::subject::Fleet;
use contract::{CallError, Command, Envelope, Meta, NodeName};
use event_recorder::{Close, Durability, EventRecorder, Flush};
use futures::future::{OptionFuture, join_all};
use membership::MemberRecord;
use metrics::Instruments;
use pull_coordinator::{Extras, MidPullSenders, Neighbours, PullCoordinator, StandingPullStoreRef};
use registrar::{Leave, Registrar};
use runtimes::RuntimeRef;
use settings::Settings;
use throttler::Throttler;
use throttler::core::{OnExhausted, ThrottlePolicy};
use tokio::sync::watch;

/// The parts of a node.
pub struct NodeParts {
    /// The node's name.
    pub name: NodeName,
    /// The node's fleet.
    pub fleet: Fleet,
    /// The node's bus.
    pub bus: BusRef,
    /// The runtime that pulls.
    pub runtime: RuntimeRef,
    /// The node's clock.
    pub clock: Clock,
    /// The node's policies.
    pub policies: Policies,
}

/// The parts of a fleet's node that a single pull does not need.
#[derive(Default)]
pub struct NodeOptions {
    /// What the node shares with its fleet. None if it follows kubelet's rule alone.
    pub sharing: Option<Sharing>,
    /// The node's record as a member of its fleet. None if the node is known only while it answers.
    pub membership: Option<Membership>,
    /// Where standing pulls are stored. None if they end with the process.
    pub standing_pulls: Option<StandingPullStoreRef>,
    /// Bytes of free space that a pull without a pod must leave. None for no limit.
    pub keep_free: Option<u64>,
    /// Where events are stored until the fleet's stream has them. None if they are only published and end with the process.
    pub events: Option<Durability>,
    /// The instruments for the node's metrics. By default nothing reads them.
    pub instruments: Instruments,
}

/// `pull.keep_free` for a node. None if nothing has to be left free.
#[must_use]
pub fn keep_free(settings: &Settings) -> Option<u64> {
    Some(settings.pull.keep_free).filter(|bytes| *bytes > 0)
}

/// The policies of a node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Policies {
    /// The back-off after a failure.
    pub backoff: BackoffPolicy,
    /// The limits on the rate and the number of pulls.
    pub throttle: ThrottlePolicy,
    /// The longest pull.
    pub pull_timeout: Option<Duration>,
    /// The number of events that are kept.
    pub keep_events: usize,
    /// How the services reach each other.
    pub delivery: Delivery,
}

impl Policies {
    /// The configured policies.
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

/// A running node. Dropping it ends its services.
pub struct Node {
    /// The wiring of its services.
    pub wiring: Wiring,
    /// The actors.
    pub actors: Actors,
    /// Makes the node known to the fleet. None if the node does not share.
    pub registrar: Option<Addr<Registrar>>,
    served: Vec<Served>,
    record: Option<MemberRecord>,
    seen: watch::Receiver<FleetSeen>,
}

/// The actors of a node.
#[derive(Clone, Debug)]
pub struct Actors {
    /// Handles each pull request from the first check to the outcome.
    pub coordinator: Addr<PullCoordinator>,
    /// Keeps the back-off entries.
    pub backoff: Addr<BackoffTracker>,
    /// Keeps the node's rate limiter and slots.
    pub throttler: Addr<Throttler>,
    /// Records the events.
    pub recorder: Addr<EventRecorder>,
}

impl Node {
    /// Starts the four services, and serves their commands on the bus. Must be called inside an actix system.
    ///
    /// # Errors
    /// The bus is closed.
    pub async fn start(parts: NodeParts) -> Result<Self, BusError> {
        Self::start_with(parts, NodeOptions::default()).await
    }

    /// Like [`Node::start`], as a member of a fleet.
    ///
    /// # Errors
    /// The bus is closed.
    pub async fn start_with(parts: NodeParts, options: NodeOptions) -> Result<Self, BusError> {
        let NodeParts { name, fleet, bus, runtime, clock, policies } = parts;
        let NodeOptions { sharing, membership, standing_pulls, keep_free, events, instruments } = options;
        let wiring = Wiring { bus: bus.clone(), fleet: fleet.clone(), node: name.clone(), delivery: policies.delivery };
        let panic_guard = PanicGuard::of;
        let recorder = EventRecorder::new(policies.keep_events, bus.clone(), fleet, panic_guard("event-recorder"));
        let recorder = match events {
            Some(durability) => recorder.storing(durability),
            None => recorder,
        };
        let recorder = recorder.start();
        let record = Sender::local(wiring.clone(), recorder.clone().recipient());
        let backoff = match &sharing {
            Some(sharing) => sharing.tracker(&wiring, bus.clone(), policies.backoff, clock.clone(), panic_guard("backoff-tracker")),
            None => BackoffTracker::new(name.clone(), policies.backoff, clock.clone(), panic_guard("backoff-tracker")),
        };
        let backoff = backoff.recording(name.clone(), record.clone()).counting(instruments.clone()).start();
        let throttler = match &sharing {
            Some(sharing) => sharing.throttler(&wiring, bus.clone(), policies.throttle, clock.clone(), panic_guard("throttler")),
            None => Throttler::new(policies.throttle, clock.clone(), panic_guard("throttler")),
        };
        let recording = throttler::Recording {
            events: EventSender::new(name.clone(), record.clone()),
            registry_of: contract::registry_of_budget,
            in_words: contract::budget_in_words,
        };
        let throttler = throttler.recording(recording).counting(instruments.clone()).start();
        let neighbours = Neighbours {
            check: Sender::local(wiring.clone(), backoff.clone().recipient()),
            report: Sender::local(wiring.clone(), backoff.clone().recipient()),
            acquire: Sender::local(wiring.clone(), throttler.clone().recipient()),
            release: Sender::local(wiring.clone(), throttler.clone().recipient()),
            record,
        };
        let mid_pull = sharing.as_ref().map(|_| MidPullSenders {
            begin: Sender::local(wiring.clone(), backoff.clone().recipient()),
            limits: Sender::local(wiring.clone(), throttler.clone().recipient()),
        });
        let sharing_of = |sharing: &Sharing| sharing.of_coordinator(&wiring, &backoff);
        let extras = Extras { sharing: sharing.as_ref().map(sharing_of), mid_pull, standing_pulls, keep_free };
        let coordinator =
            PullCoordinator::new(name, runtime, neighbours, clock.clone(), policies.pull_timeout, panic_guard("pull-coordinator"));
        let coordinator = coordinator.with(extras).counting(instruments.clone()).start();
        let actors = Actors { coordinator, backoff, throttler, recorder };
        let registrar = async {
            match sharing {
                Some(sharing) => {
                    Registrar::new(sharing.registrar(&wiring, bus.clone(), &actors, clock, panic_guard("registrar"))).await.map(Some)
                }
                None => Ok(None),
            }
        };
        let (served, registrar) = futures::try_join!(actors.serve(&wiring), registrar)?;
        // A node that does not share gets no view of the fleet.
        let nobody = || watch::channel(FleetSeen::default()).1;
        let seen = registrar.as_ref().map_or_else(nobody, Registrar::fleet_seen);
        let registrar = registrar.map(|registrar| registrar.counting(instruments).start());
        let record = membership.map(|membership| MemberRecord::keep(&membership, &wiring, bus, seen.clone(), Random::from_system()));
        Ok(Self { wiring, actors, registrar, served, record, seen })
    }

    /// The node's view of the fleet. It never changes if the node does not share.
    #[must_use]
    pub fn fleet_seen(&self) -> watch::Receiver<FleetSeen> {
        self.seen.clone()
    }

    /// A sender of the pull coordinator's `ensure`.
    #[must_use]
    pub fn ensure(&self) -> Sender<EnsureImage> {
        Sender::local(self.wiring.clone(), self.actors.coordinator.clone().recipient())
    }

    /// The commands that are served on the bus, with their services.
    #[must_use]
    pub fn served(&self) -> &[Served] {
        &self.served
    }

    /// Ensures that an image is present, in a new trace.
    ///
    /// # Errors
    /// The coordinator has ended.
    pub async fn pull(&self, ask: EnsureImage) -> Result<PullOutcome, CallError> {
        self.pull_as(root_envelope(ask)).await
    }

    /// Like [`Node::pull`], in the trace of the envelope.
    ///
    /// # Errors
    /// The coordinator has ended.
    pub async fn pull_as(&self, ask: Envelope<EnsureImage>) -> Result<PullOutcome, CallError> {
        self.ensure().call(ask, STANDING).await
    }

    /// Leaves the fleet, tells waiting callers that no answer comes, and waits until the recorded events are published.
    pub async fn stop(mut self) {
        let leaving = self.registrar.take().map(|registrar| registrar.send(Leave));
        // The registrar may have ended already; the node's silence then shows that it left.
        let _ = futures::join!(OptionFuture::from(leaving), OptionFuture::from(self.record.take().map(MemberRecord::withdraw)));
        join_all(self.served.drain(..).map(Served::end)).await;
        // The recorder may have ended already. Events that the stream does not take in time stay stored.
        let alone = matches!(self.wiring.bus.health(), BusHealth::Disconnected { .. });
        let limit = if alone { FLUSH_ALONE_WITHIN } else { FLUSH_WITHIN };
        let _ = tokio::time::timeout(limit, self.actors.recorder.send(Flush)).await;
        let _ = self.actors.recorder.send(Close).await;
        self.wiring.bus.drain().await;
    }
}

impl Actors {
    /// Serves the commands of the four services on a bus.
    ///
    /// # Errors
    /// The bus is closed.
    pub async fn serve(&self, wiring: &Wiring) -> Result<Vec<Served>, BusError> {
        // Concurrently, because each subscription waits for the server's confirmation.
        let (one, two, three, four) = futures::try_join!(
            pull_coordinator::serve(wiring, &self.coordinator),
            backoff_tracker::serve(wiring, &self.backoff),
            throttler::serve(wiring, &self.throttler),
            event_recorder::serve(wiring, &self.recorder),
        )?;
        Ok([one, two, three, four].into_iter().flatten().collect())
    }
}

/// How long the end of a node waits for the fleet's stream.
const FLUSH_WITHIN: Duration = Duration::from_secs(3);
/// The same limit without a bus, when events only have to be stored.
const FLUSH_ALONE_WITHIN: Duration = Duration::from_millis(200);

/// The longest request without its own time-out. It is longer than any pull.
pub const STANDING: Duration = Duration::from_secs(7 * 24 * 3_600);

/// A command as the first message of a new trace.
pub fn root_envelope<C: Command>(body: C) -> Envelope<C> {
    Envelope { meta: Meta::root(&mut Random::from_system()), body }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_reaches_its_policy() {
        let mut settings = Settings::default();
        let second = Duration::from_secs(1);
        (settings.backoff.initial, settings.backoff.max) = (second, 2 * second);
        (settings.throttle.qps, settings.throttle.burst) = (3.5, 4);
        settings.throttle.on_exhausted = settings::OnExhausted::Fail;
        (settings.pull.parallel, settings.pull.queue, settings.pull.timeout) = (6, 7, Some(8 * second));
        (settings.events.keep, settings.bus.local_delivery) = (9, false);
        let set = Policies {
            backoff: BackoffPolicy { initial: second, max: 2 * second },
            throttle: ThrottlePolicy { per_second: 3.5, burst: 4, slots: 6, on_exhausted: OnExhausted::Fail, queue: 7 },
            pull_timeout: Some(8 * second),
            keep_events: 9,
            delivery: Delivery::Bus,
        };
        assert_eq!(Policies::of(&settings), set);
        settings.pull.serial = true;
        assert_eq!(Policies::of(&settings).throttle.slots, 1);
    }
}
