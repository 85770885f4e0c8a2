//! `events`: from `record` to the stream's acknowledgement, through the actor, the store on this disk and a real nats-server, compared with
//! a bare publisher that offers the same bytes to the same stream with as many messages under way.
#![allow(clippy::disallowed_methods, reason = "tasks of a measurement")]

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use actix::{Actor as _, Addr};
use actors::{Ask, PanicGuard};
use anyhow::{Context as _, Result, anyhow, ensure};
use bus::nats::{NatsBus, NatsOptions};
use bus::{BusRef, EventLog as _};
use clock::{Clock, Random};
use contract::messages::event_recorder::{CountEvents, EventCounts, RecordEvent};
use contract::subject::Fleet;
use contract::{Command, Envelope, EventReason, MessageId, Meta, PullEvent, TraceContext, cloud_event};
use event_recorder::store::sqlite::{Origin, SqliteStore};
use event_recorder::{Durability, EventRecorder, StreamLimits, event_stream};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use support::nats::{NatsConfig, NatsServer, current_program};

use crate::figure::{Bar, Figure, Unit};

/// The events of each side.
const EVENTS: usize = 50_000;
/// How many calls of `record`, or bare messages, are under way at a time.
const AT_ONCE: usize = 256;
/// The size of an event's message in bytes; the whole CloudEvent has about 800.
const MESSAGE_BYTES: usize = 300;
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// A limit that the events never reach.
const LIMIT: Duration = Duration::from_secs(120);
/// The pause between two checks whether the stream has all events.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// The bar: at least 0.3 of the bare publisher's rate.
const MOST: f64 = 1.0 / 0.3;

pub(crate) async fn measure() -> Result<Vec<Figure>> {
    let program = current_program().map_err(|why| anyhow!(why))?;
    let (clock, dir) = (Clock::host(), tempfile::tempdir()?);
    let server = NatsServer::start(NatsConfig::default().with_program(program));
    let bus = Arc::new(NatsBus::connect(NatsOptions { urls: Some(server.url()), ..NatsOptions::default() }).await?);
    bus.wait_connected(CONNECT_LIMIT).await?;
    let limits = StreamLimits { max_age: Duration::from_secs(3_600), max_bytes: 1 << 30 };
    let opened = SqliteStore::open(dir.path(), &Origin { boot: "bench".to_owned(), new_incarnation: "bench".to_owned() })?;
    let durability = Durability {
        opened,
        node: "n1".parse()?,
        clock: clock.clone(),
        max_bytes: 1 << 30,
        sync_every: Duration::from_millis(100),
        stream: Some(limits),
    };
    let fleet = Fleet::default();
    let recorder = EventRecorder::new(1_000, bus.clone() as BusRef, fleet.clone(), PanicGuard::of("event-recorder"));
    let recorder = recorder.storing(durability).start();
    let events: Vec<PullEvent> = events();
    let messages: Vec<Vec<u8>> =
        events.iter().map(|event| cloud_event::to_json(event).context("an event is written")).collect::<Result<_>>()?;
    // The stream exists, and the recorder has read its contents.
    until(&recorder, |counts| counts.is_delivering).await?;
    let bare = bare(&server, &clock, &fleet, messages).await?;
    let began = clock.now().monotonic;
    let random = RefCell::new(Random::from_system());
    stream::iter(events).map(|event| record(&recorder, &random, event)).buffer_unordered(AT_ONCE).try_collect::<Vec<()>>().await?;
    until(&recorder, |counts| counts.waiting == 0 && counts.appended_total == EVENTS as u64).await?;
    let ours = clock.now().monotonic.saturating_sub(began);
    let stored = bus.stream(&event_stream(&fleet, limits)).await?.last_sequence;
    ensure!(stored == 2 * EVENTS as u64, "the stream has {stored} messages and not {}", 2 * EVENTS);
    let figure = Figure::new(format!("{EVENTS} events, recorded to acknowledged"), Unit::Seconds, ours.as_secs_f64());
    Ok(vec![
        figure.compared_with("bare publisher", bare.as_secs_f64()).with_bar(Bar::Ratio(MOST)),
        Figure::new("events", Unit::PerSecond, EVENTS as f64 / ours.as_secs_f64()),
    ])
}

/// Events that are not repeats of each other.
fn events() -> Vec<PullEvent> {
    let mut random = Random::from_system();
    (0..EVENTS).map(|number| made_event(&mut random, number)).collect()
}

/// An event of a pull, of an image with this number.
pub(crate) fn made_event(random: &mut Random, number: usize) -> PullEvent {
    let trace = TraceContext::root(random).child(random);
    let node = "n1".parse().unwrap_or_else(|_| unreachable!("it is a name"));
    PullEvent {
        image: format!("registry.example/team/app:{number}"),
        registry: Some("registry.example".to_owned()),
        duration_ms: Some(1),
        ..PullEvent::new(MessageId::random(random), 1_700_000_000_000, node, EventReason::Pulled, "m".repeat(MESSAGE_BYTES), trace)
    }
}

async fn record(recorder: &Addr<EventRecorder>, random: &RefCell<Random>, event: PullEvent) -> Result<()> {
    ask(recorder, random, RecordEvent { event }).await.map(|_| ())
}

async fn ask<C: Command>(recorder: &Addr<EventRecorder>, random: &RefCell<Random>, body: C) -> Result<C::Reply>
where
    EventRecorder: actix::Handler<Ask<C>>,
    <EventRecorder as actix::Actor>::Context: actix::dev::ToEnvelope<EventRecorder, Ask<C>>,
{
    let meta = Meta::root(&mut random.borrow_mut());
    Ok(recorder.send(Ask(Envelope { meta, body })).await??)
}

async fn until(recorder: &Addr<EventRecorder>, is: impl Fn(&EventCounts) -> bool) -> Result<()> {
    let random = RefCell::new(Random::from_system());
    let waiting = async {
        while !is(&ask(recorder, &random, CountEvents {}).await?) {
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Ok(())
    };
    tokio::time::timeout(LIMIT, waiting).await.context("the stream does not get all events")?
}

/// Publishes the same bytes with the client library alone, with its own acknowledgements.
async fn bare(server: &NatsServer, clock: &Clock, fleet: &Fleet, messages: Vec<Vec<u8>>) -> Result<Duration> {
    let client = async_nats::connect(server.url()).await.context("the server cannot be reached")?;
    let jetstream = async_nats::jetstream::new(client);
    let subject = fleet.event(EventReason::Pulled, Some("registry.example"), &"n1".parse()?);
    let began = clock.now().monotonic;
    stream::iter(messages)
        .map(async |message| -> Result<()> {
            jetstream.publish(subject.clone(), message.into()).await?.await?;
            Ok(())
        })
        .buffer_unordered(AT_ONCE)
        .try_collect::<Vec<()>>()
        .await?;
    Ok(clock.now().monotonic.saturating_sub(began))
}
