//! A node of the simulated fleet: the real actors, composed as in the program, with a seeded random generator and a planted bug.
#![allow(clippy::disallowed_methods, reason = "tasks of a test")]

use actix::{Actor as _, Addr};
use actors::{Ask, Delivery, Sender, Served, Wiring};
use backoff_tracker::core::BackoffPolicy;
use backoff_tracker::{BackoffTracker, ReadsReports, SharedBus, TrackerParts};
use bus::BusRef;
use clock::{Clock, Random};
use contract::messages::backoff_tracker::{BackoffEntry, ListBackoffs};
use contract::messages::pull_coordinator::{EnsureImage, PullOutcome, PullPolicy};
use contract::subject::Fleet;
use contract::{Envelope, Meta, NodeName};
use event_recorder::EventRecorder;
use pull_coordinator::{Extras, FleetNeighbours, Locality, MidPullSenders, Neighbours, PullCoordinator};
use registrar::{Registrar, RegistrarParts};
use runtimes::RuntimeRef;
use std::cell::Cell;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use throttler::core::budget::BudgetPolicy;
use throttler::core::{OnExhausted, ThrottlePolicy};
use throttler::{FleetParts, Throttler};
use tokio::task::{JoinHandle, LocalSet};

use crate::refusals::Refusals;

/// The node's own token bucket and slots are turned off.
const NO_THROTTLE: ThrottlePolicy = ThrottlePolicy { per_second: 0.0, burst: 0, slots: 0, on_exhausted: OnExhausted::Wait, queue: 1_000 };
/// How long a standing pull is valid: longer than a run.
const STANDING_PULL_VALID_FOR: Duration = Duration::from_secs(3_600);
/// The capacity of the node's events, which the simulation does not use.
const EVENTS_KEPT: usize = 4;

/// A rule of the cores that is broken on purpose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Planted {
    pub knowledge: Option<backoff_tracker::core::knowledge::PlantedBug>,
    pub budget: Option<throttler::core::budget::PlantedBug>,
}

/// The parts that a node is composed of.
pub struct Parts {
    pub name: NodeName,
    pub instance: String,
    pub bus: BusRef,
    pub read_report: ReadsReports,
    pub runtime: RuntimeRef,
    pub clock: Clock,
    pub budget: BudgetPolicy,
    pub planted: Planted,
    pub watch: throttler::Watch,
    pub refusals: Refusals,
}

/// All tasks of a node: its actors, their timers, and their requests to the bus and the registry.
///
/// A suspended node is like a stopped process, or a machine that its hypervisor does not run: its clock goes on, its timers fire late
/// and together, and messages wait, up to the bounds of the buffers. Two cases are not covered: a server that closes the connection
/// because its client does not answer, and a monotonic clock that stops too, as on a sleeping laptop.
struct Life {
    tasks: LocalSet,
    suspension: Rc<Suspension>,
}

#[derive(Default)]
struct Suspension {
    suspended: Cell<bool>,
    waker: Cell<Option<Waker>>,
}

impl Future for Life {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.suspension.suspended.get() {
            self.suspension.waker.set(Some(context.waker().clone()));
            return Poll::Pending;
        }
        Pin::new(&mut self.tasks).poll(context)
    }
}

/// A running node. Dropping it is a crash: it sends no messages.
pub struct Node {
    bus: BusRef,
    /// The task that drives all tasks of the node.
    life: JoinHandle<()>,
    suspension: Rc<Suspension>,
    coordinator: Addr<PullCoordinator>,
    tracker: Addr<BackoffTracker>,
    _registrar: Addr<Registrar>,
    _served: Vec<Served>,
}

impl Node {
    pub async fn start(parts: Parts) -> Self {
        let tasks = LocalSet::new();
        let mut node = tasks.run_until(Self::begin(parts)).await;
        node.life = tokio::task::spawn_local(Life { tasks, suspension: Rc::clone(&node.suspension) });
        node
    }

    async fn begin(parts: Parts) -> Self {
        let Parts { name, instance, bus, read_report, runtime, clock, budget, planted, watch, refusals } = parts;
        let fleet = Fleet::default();
        let wiring = Wiring { bus: bus.clone(), fleet: fleet.clone(), node: name.clone(), delivery: Delivery::Local };
        let panic_guard = actors::PanicGuard::of;
        let tracker = BackoffTracker::sharing(TrackerParts {
            node: name.clone(),
            policy: BackoffPolicy::default(),
            clock: clock.clone(),
            random: Random::from_system(),
            panic_guard: panic_guard("backoff-tracker"),
            share: backoff_tracker::Share::Enforce,
            shared: SharedBus { bus: bus.clone(), fleet: fleet.clone() },
            planted_bug: planted.knowledge,
        });
        let tracker = tracker.reading(read_report).start();
        let parts = FleetParts {
            bus: bus.clone(),
            fleet: fleet.clone(),
            node: name.clone(),
            instance: format!("{:032x}", Random::from_system().id()),
            budget,
            registry_of: contract::registry_of_budget,
            random: Random::from_system(),
            planted_bug: planted.budget,
        };
        let throttler = Throttler::sharing(NO_THROTTLE, clock.clone(), panic_guard("throttler"), parts).watched(watch).start();
        let recorder = EventRecorder::new(EVENTS_KEPT, bus.clone(), fleet, panic_guard("event-recorder")).start();
        let recorder = refusals.before(recorder).start();
        let neighbours = Neighbours {
            check: Sender::local(wiring.clone(), tracker.clone().recipient()),
            report: Sender::local(wiring.clone(), tracker.clone().recipient()),
            acquire: Sender::local(wiring.clone(), throttler.clone().recipient()),
            release: Sender::local(wiring.clone(), throttler.clone().recipient()),
            record: Sender::local(wiring.clone(), recorder.recipient()),
        };
        let sharing = pull_coordinator::Sharing {
            neighbours: FleetNeighbours {
                clearance: Sender::local(wiring.clone(), tracker.clone().recipient()),
                resolve: Sender::local(wiring.clone(), tracker.clone().recipient()),
                withdraw: Sender::local(wiring.clone(), tracker.clone().recipient()),
                list: Sender::local(wiring.clone(), tracker.clone().recipient()),
            },
            locality: Locality {
                scope: "default".to_owned(),
                zone: "default".to_owned(),
                egress: "default".to_owned(),
                boot: instance.clone(),
            },
            max_wait: Duration::from_secs(10),
        };
        let mid_pull = MidPullSenders {
            begin: Sender::local(wiring.clone(), tracker.clone().recipient()),
            limits: Sender::local(wiring.clone(), throttler.clone().recipient()),
        };
        let extras = Extras { sharing: Some(sharing), mid_pull: Some(mid_pull), ..Extras::default() };
        let coordinator = PullCoordinator::new(name, runtime, neighbours, clock.clone(), None, panic_guard("pull-coordinator"));
        let coordinator = coordinator.with(extras).start();
        let registrar = Registrar::new(RegistrarParts {
            wiring: wiring.clone(),
            state: bus.clone(),
            instance,
            zone: "default".to_owned(),
            clock,
            random: Random::from_system(),
            neighbours: Some(registrar::Neighbours {
                tracker: Sender::local(wiring.clone(), tracker.clone().recipient()),
                throttler: Sender::local(wiring.clone(), throttler.clone().recipient()),
            }),
            panic_guard: panic_guard("registrar"),
        });
        let registrar = registrar.await.expect("the bus is open").start();
        let served = throttler::serve(&wiring, &throttler).await.expect("the bus is open");
        let life = tokio::task::spawn_local(async {});
        Self { bus, life, suspension: Rc::default(), coordinator, tracker, _registrar: registrar, _served: served }
    }

    /// Makes a standing pull and waits until the image is present.
    pub fn standing_pull(&self, image: &str) -> impl Future<Output = Option<PullOutcome>> + 'static {
        let ask = EnsureImage {
            image: image.to_owned(),
            policy: Some(PullPolicy::IfNotPresent),
            wait_ms: u64::try_from(STANDING_PULL_VALID_FOR.as_millis()).ok(),
            ..EnsureImage::default()
        };
        let asked = self.coordinator.send(Ask(root(ask)));
        async move { asked.await.ok()?.ok() }
    }

    /// The back-off entries of the node.
    pub async fn entries(&self) -> Vec<BackoffEntry> {
        let listed = self.tracker.send(Ask(root(ListBackoffs::default()))).await;
        let mut entries = listed.expect("the tracker lives").expect("the tracker answers").entries;
        entries.retain(|entry| entry.view.is_some());
        entries
    }

    /// Suspends all tasks of the node until it is resumed.
    pub fn suspend(&self) {
        self.suspension.suspended.set(true);
    }

    pub fn resume(&self) {
        self.suspension.suspended.set(false);
        self.suspension.waker.take().iter().for_each(Waker::wake_by_ref);
    }

    /// Ends the node without any further message.
    pub async fn crash(self) {
        let Self { bus, life, .. } = self;
        life.abort();
        bus.drain().await;
    }
}

fn root<B>(body: B) -> Envelope<B> {
    Envelope { meta: Meta::root(&mut Random::from_system()), body }
}

/// A shared bus for a node.
pub fn shared(bus: impl bus::Bus) -> BusRef {
    Arc::new(bus)
}
