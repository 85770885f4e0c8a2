//! A coordinator whose neighbours are absent or do not answer.
//!
//! Contract: without an answer of a neighbour the pull goes on as by kubelet alone (no back-off, no throttle), after a bounded time; the
//! pull succeeds and its caller gets the answer.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, Addr, Context, Handler, ResponseFuture};
use actors::{Ask, Delivery, Sender, Wiring};
use bus::memory::MemoryBus;
use bus::{Messaging as _, Subscription};
use clock::{Clock, Random};
use contract::messages::pull_coordinator::{EnsureImage, ExplainImage, OutcomeKind, PullOutcome, PullPolicy};
use contract::subject::Fleet;
use contract::{CallError, Command, Envelope, Meta, Reason};
use integration::{ask, paused};
use pull_coordinator::{Extras, FleetNeighbours, Locality, Neighbours, PullCoordinator, Sharing};
use runtimes::PullFailure;
use runtimes::scripted::ScriptedRuntime;

fn wiring(bus: &MemoryBus, delivery: Delivery) -> Wiring {
    Wiring { bus: Arc::new(bus.clone()), fleet: Fleet::default(), node: "n1".parse().unwrap(), delivery }
}

/// A coordinator that calls its neighbours over a bus.
fn coordinator_alone(runtime: &ScriptedRuntime, bus: &MemoryBus) -> Addr<PullCoordinator> {
    let wiring = wiring(bus, Delivery::Bus);
    let neighbours = Neighbours {
        check: Sender::remote(wiring.clone()),
        report: Sender::remote(wiring.clone()),
        acquire: Sender::remote(wiring.clone()),
        release: Sender::remote(wiring.clone()),
        record: Sender::remote(wiring.clone()),
    };
    coordinator_with(neighbours, runtime)
}

fn coordinator_with(neighbours: Neighbours, runtime: &ScriptedRuntime) -> Addr<PullCoordinator> {
    let panic_guard = actors::PanicGuard::of;
    let (runtime, clock) = (Arc::new(runtime.clone()), Clock::simulated(Duration::ZERO));
    PullCoordinator::new("n1".parse().unwrap(), runtime, neighbours, clock, None, panic_guard("pull-coordinator")).start()
}

/// A service of the same process that accepts every message and answers none.
struct Hangs;

impl Actor for Hangs {
    type Context = Context<Self>;
}

impl<C: Command> Handler<Ask<C>> for Hangs {
    type Result = ResponseFuture<Result<C::Reply, CallError>>;

    fn handle(&mut self, _: Ask<C>, _: &mut Self::Context) -> Self::Result {
        Box::pin(std::future::pending())
    }
}

async fn ensure(coordinator: &Addr<PullCoordinator>, body: EnsureImage) -> PullOutcome {
    let meta = Meta::root(&mut Random::seeded(1));
    coordinator.send(Ask(Envelope { meta, body })).await.unwrap().unwrap()
}

#[test]
fn missing_services_delay_no_pull() {
    paused(async {
        let runtime = ScriptedRuntime::new();
        runtime.answer_pulls("gone:v1", [Err(PullFailure { text: "gone".to_owned(), ..PullFailure::default() })]);
        let coordinator = coordinator_alone(&runtime, &MemoryBus::new(Clock::host()));
        let clock = Clock::simulated(Duration::ZERO);
        assert_eq!(ensure(&coordinator, ask("app:v1", PullPolicy::IfNotPresent)).await.outcome, OutcomeKind::Pulled);
        assert_eq!(ensure(&coordinator, ask("app:v1", PullPolicy::IfNotPresent)).await.outcome, OutcomeKind::Present);
        for _ in 0..2 {
            let failed = ensure(&coordinator, ask("gone:v1", PullPolicy::Always)).await;
            assert_eq!((failed.reason, failed.next_attempt_ms), (Some(Reason::ErrImagePull), None), "no back-off is kept");
        }
        assert_eq!(clock.now().monotonic, Duration::ZERO, "a request without responders fails at once");
    });
}

#[test]
fn services_without_answers_delay_a_pull_for_a_bounded_time() {
    paused(async {
        let bus = MemoryBus::new(Clock::host());
        let _silent: Subscription = bus.subscribe("fleetpull.v1.cmd.>", None).await.unwrap();
        let coordinator = coordinator_alone(&ScriptedRuntime::new(), &bus);
        let clock = Clock::simulated(Duration::ZERO);
        let outcome = ensure(&coordinator, ask("app:v1", PullPolicy::IfNotPresent)).await;
        assert_eq!(outcome.outcome, OutcomeKind::Pulled);
        // 2 s for the check, 12 s for the permit and 2 s for asking once more during the 2 s for Pulling, 2 s for the report during Pulled.
        assert!(clock.now().monotonic < Duration::from_secs(19), "{:?}", clock.now().monotonic);
    });
}

#[test]
fn hanging_services_in_process_delay_a_pull_for_a_bounded_time() {
    paused(async {
        let bus = MemoryBus::new(Clock::host());
        let (hangs, wiring) = (Hangs.start(), wiring(&bus, Delivery::Local));
        let neighbours = Neighbours {
            check: Sender::local(wiring.clone(), hangs.clone().recipient()),
            report: Sender::local(wiring.clone(), hangs.clone().recipient()),
            acquire: Sender::local(wiring.clone(), hangs.clone().recipient()),
            release: Sender::local(wiring.clone(), hangs.clone().recipient()),
            record: Sender::local(wiring, hangs.recipient()),
        };
        let coordinator = coordinator_with(neighbours, &ScriptedRuntime::new());
        let clock = Clock::simulated(Duration::ZERO);
        let outcome = ensure(&coordinator, ask("app:v1", PullPolicy::IfNotPresent)).await;
        assert_eq!(outcome.outcome, OutcomeKind::Pulled);
        // 4 s for the check, 14 s for the permit and 4 s for asking once more during the 4 s for Pulling, 4 s for the report during Pulled.
        assert!(clock.now().monotonic < Duration::from_secs(27), "{:?}", clock.now().monotonic);
    });
}

#[test]
fn hanging_tracker_delays_an_explanation_for_a_bounded_time() {
    paused(async {
        let bus = MemoryBus::new(Clock::host());
        let (hangs, wiring) = (Hangs.start(), wiring(&bus, Delivery::Local));
        let neighbours = Neighbours {
            check: Sender::local(wiring.clone(), hangs.clone().recipient()),
            report: Sender::remote(wiring.clone()),
            acquire: Sender::remote(wiring.clone()),
            release: Sender::remote(wiring.clone()),
            record: Sender::remote(wiring.clone()),
        };
        let of_fleet = FleetNeighbours {
            clearance: Sender::local(wiring.clone(), hangs.clone().recipient()),
            resolve: Sender::local(wiring.clone(), hangs.clone().recipient()),
            withdraw: Sender::local(wiring.clone(), hangs.clone().recipient()),
            list: Sender::local(wiring, hangs.recipient()),
        };
        let sharing = Sharing { neighbours: of_fleet, locality: Locality::default(), max_wait: Duration::from_secs(10) };
        let (runtime, clock) = (Arc::new(ScriptedRuntime::new()), Clock::simulated(Duration::ZERO));
        let guard = actors::PanicGuard::of("pull-coordinator");
        let coordinator = PullCoordinator::new("n1".parse().unwrap(), runtime, neighbours, clock.clone(), None, guard);
        let coordinator = coordinator.with(Extras { sharing: Some(sharing), ..Extras::default() }).start();
        let (meta, body) = (Meta::root(&mut Random::seeded(1)), ExplainImage { image: "app:v1".to_owned(), ..ExplainImage::default() });
        coordinator.send(Ask(Envelope { meta, body })).await.unwrap().unwrap();
        // 4 s each for the check and the list.
        assert!(clock.now().monotonic < Duration::from_secs(9), "{:?}", clock.now().monotonic);
    });
}
