//! `recorder`: the time that a recorder which stores events adds to a pull of a present image, in process, compared with the same services
//! and a recorder that does nothing. Other events are stored all the time.
#![allow(clippy::disallowed_methods, reason = "tasks of a measurement")]

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use actix::{Actor as _, Addr, Context, Handler};
use actors::{Answer, Ask, DeferredReply, Delivery, PanicGuard, Sender, Wiring, deferred_reply};
use anyhow::{Result, ensure};
use backoff_tracker::BackoffTracker;
use bus::BusRef;
use bus::memory::MemoryBus;
use clock::{Clock, Random};
use contract::messages::event_recorder::{EventRecorded, RecordEvent};
use contract::messages::pull_coordinator::{EnsureImage, OutcomeKind, PullPolicy};
use contract::subject::Fleet;
use contract::{Envelope, Meta};
use event_recorder::store::sqlite::{Origin, SqliteStore};
use event_recorder::{Durability, EventRecorder, StreamLimits};
use fleetpull::node::Policies;
use pull_coordinator::{Neighbours, PullCoordinator};
use settings::Settings;
use throttler::Throttler;

use crate::alternate::{median, microseconds, timed};
use crate::events::made_event;
use crate::figure::{Bar, Figure, Unit};
use crate::node::{IMAGE, runtime_in_memory};

const ROUNDS: usize = 40;
const PULLS: usize = 5_000;
/// The pause between two other events that are stored: a node that pulls as fast as it may has about ten per second.
const STORED_EVERY: Duration = Duration::from_millis(20);
const STANDING: Duration = Duration::from_secs(60);
/// The bars, in microseconds.
const MEDIAN_MOST_US: f64 = 5.0;
const P99_MOST_US: f64 = 200.0;

/// A recorder that does nothing.
struct Nobody;

impl actix::Actor for Nobody {
    type Context = Context<Self>;
}

impl Handler<Ask<RecordEvent>> for Nobody {
    type Result = DeferredReply<Ask<RecordEvent>>;

    fn handle(&mut self, _: Ask<RecordEvent>, _: &mut Self::Context) -> Self::Result {
        let (answer, answered): (Answer<Ask<RecordEvent>>, _) = deferred_reply();
        answer.give(Ok(EventRecorded {}));
        answered
    }
}

pub(crate) async fn measure() -> Result<Vec<Figure>> {
    let (clock, dir) = (Clock::host(), tempfile::tempdir()?);
    let bus: BusRef = Arc::new(MemoryBus::new(clock.clone()));
    let wiring = Wiring { bus: bus.clone(), fleet: Fleet::default(), node: "n1".parse()?, delivery: Delivery::Local };
    let recorder = storing(bus, &clock, dir.path())?;
    let with = services(&wiring, &clock, Sender::local(wiring.clone(), recorder.clone().recipient()));
    let without = services(&wiring, &clock, Sender::local(wiring.clone(), Nobody.start().recipient()));
    let storing = tokio::task::spawn_local(async move {
        let mut random = Random::from_system();
        for number in 0.. {
            tokio::time::sleep(STORED_EVERY).await;
            let body = RecordEvent { event: made_event(&mut random, number) };
            let _ = recorder.send(Ask(Envelope { meta: Meta::root(&mut random), body })).await;
        }
    });
    let random = RefCell::new(Random::seeded(1));
    let pull = async |ensure: &Sender<EnsureImage>| {
        let body = EnsureImage { image: IMAGE.to_owned(), policy: Some(PullPolicy::IfNotPresent), ..EnsureImage::default() };
        let meta = Meta::root(&mut random.borrow_mut());
        let outcome = ensure.call(Envelope { meta, body }, STANDING).await?;
        ensure!(outcome.outcome == OutcomeKind::Present, "{}", outcome.message);
        Ok(())
    };
    let (mut ours, mut reference) = (Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        for (ensure, latencies) in [(&with, &mut ours), (&without, &mut reference)] {
            for _ in 0..PULLS {
                let took = timed(&clock, &mut async || pull(ensure).await).await?;
                if round > 0 {
                    latencies.push(took);
                }
            }
            // The pause gives the storing task a turn, also if the pulls leave none.
            tokio::time::sleep(STORED_EVERY).await;
        }
    }
    storing.abort();
    let p99 = |latencies: &mut Vec<Duration>| {
        latencies.sort_unstable();
        microseconds(latencies[latencies.len() * 99 / 100])
    };
    let medians = (microseconds(median(&ours)), microseconds(median(&reference)));
    let p99s = (p99(&mut ours), p99(&mut reference));
    let figure = |what: &str, (ours, reference): (f64, f64), most: f64| {
        let figure = Figure::new(format!("{what} of a present pull"), Unit::Microseconds, ours).compared_with("no recorder", reference);
        figure.with_bar(Bar::Value(reference + most))
    };
    Ok(vec![figure("median", medians, MEDIAN_MOST_US), figure("p99", p99s, P99_MOST_US)])
}

fn storing(bus: BusRef, clock: &Clock, dir: &std::path::Path) -> Result<Addr<EventRecorder>> {
    let opened = SqliteStore::open(dir, &Origin { boot: "bench".to_owned(), new_incarnation: "bench".to_owned() })?;
    let stream = Some(StreamLimits { max_age: Duration::from_secs(3_600), max_bytes: 1 << 30 });
    let sync_every = Duration::from_millis(100);
    let durability = Durability { opened, node: "n1".parse()?, clock: clock.clone(), max_bytes: 1 << 26, sync_every, stream };
    let recorder = EventRecorder::new(1_000, bus, Fleet::default(), PanicGuard::of("event-recorder"));
    Ok(recorder.storing(durability).start())
}

/// The other services of a node.
fn services(wiring: &Wiring, clock: &Clock, record: Sender<RecordEvent>) -> Sender<EnsureImage> {
    let policies = Policies::of(&Settings::default());
    let backoff = BackoffTracker::new(wiring.node.clone(), policies.backoff, clock.clone(), PanicGuard::of("backoff-tracker"));
    let backoff = backoff.recording(wiring.node.clone(), record.clone()).start();
    let throttler = Throttler::new(policies.throttle, clock.clone(), PanicGuard::of("throttler")).start();
    let neighbours = Neighbours {
        check: Sender::local(wiring.clone(), backoff.clone().recipient()),
        report: Sender::local(wiring.clone(), backoff.recipient()),
        acquire: Sender::local(wiring.clone(), throttler.clone().recipient()),
        release: Sender::local(wiring.clone(), throttler.recipient()),
        record,
    };
    let (runtime, panic_guard) = (runtime_in_memory(), PanicGuard::of("pull-coordinator"));
    let coordinator = PullCoordinator::new(wiring.node.clone(), runtime, neighbours, clock.clone(), None, panic_guard);
    Sender::local(wiring.clone(), coordinator.start().recipient())
}
