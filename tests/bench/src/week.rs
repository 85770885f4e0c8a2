//! `week`: the fleet's stream after a week of 5,000 nodes that are all replaced every day, on a real nats-server, as fast as it takes
//! events: subjects, bytes, the server's memory, and the cost of reading a million events.

use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use bus::nats::{NatsBus, NatsOptions};
use bus::{EventLog as _, StreamQuery, StreamStart};
use clock::{Clock, Random};
use contract::subject::Fleet;
use contract::{EventReason, NodeName, cloud_event, headers};
use event_recorder::{StreamLimits, event_stream};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use settings::Settings;
use support::nats::{NatsConfig, NatsServer, current_program};

use crate::events::made_event;
use crate::figure::{Bar, Figure, Unit};
use crate::process::{self, Cost};
use crate::program;

const NODES: usize = 5_000;
const DAYS: usize = 7;
/// The events of each node in its day: a new node pulls about 20 images from two registries, a few of them after failures.
const EVENTS_OF_A_NODE: [(EventReason, usize); 4] =
    [(EventReason::Pulling, 20), (EventReason::Pulled, 20), (EventReason::BackOff, 4), (EventReason::Failed, 2)];
const REGISTRIES: [&str; 2] = ["registry.example", "docker.io"];
const AT_ONCE: usize = 512;
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// The bars.
const SUBJECTS_MOST: f64 = 100_000.0;
const COMMAND_MIB_MOST: f64 = 64.0;

pub(crate) async fn measure() -> Result<Vec<Figure>> {
    let server = NatsServer::start(NatsConfig::default().with_program(current_program().map_err(|why| anyhow!(why))?));
    let (bus, fleet, settings) = (connected(&server).await?, Fleet::default(), Settings::default());
    let limits = StreamLimits { max_age: settings.events.stream_max_age, max_bytes: settings.events.stream_max_bytes };
    bus.stream(&event_stream(&fleet, limits)).await?;
    let jetstream = async_nats::jetstream::new(async_nats::connect(server.url()).await.context("the server cannot be reached")?);
    let before = process::resident_bytes(server.id())?;
    let mut bytes_of_a_day = 0;
    for day in 0..DAYS {
        let sent = (0..NODES).flat_map(|number| events_of(&fleet, day, number));
        let publish = async |(subject, headers, payload): (String, async_nats::HeaderMap, Vec<u8>)| -> Result<u64> {
            let bytes = (subject.len() + payload.len()) as u64;
            jetstream.publish_with_headers(subject, headers, payload.into()).await?.await?;
            Ok(bytes)
        };
        stream::iter(sent).map(publish).buffer_unordered(AT_ONCE).try_collect::<Vec<u64>>().await?;
        if day == 0 {
            bytes_of_a_day = jetstream.get_stream(fleet.event_stream()).await?.info().await?.state.bytes;
        }
    }
    let state = jetstream.get_stream(fleet.event_stream()).await?.info().await?.state.clone();
    let after = process::resident_bytes(server.id())?;
    // The resumptions are of agents that know nothing of the stream: of the newest node, and of one removed long ago.
    let events = read_all(&server, "events").await?;
    let report = read_all(&server, "report").await?;
    let newest = resumption(&bus, &fleet, DAYS - 1).await?;
    let oldest = resumption(&bus, &fleet, 0).await?;
    Ok(vec![
        Figure::new("subjects of the stream", Unit::Count, state.subjects_count as f64).with_bar(Bar::Value(SUBJECTS_MOST)),
        Figure::new("stored in a day", Unit::Mebibytes, process::mebibytes(bytes_of_a_day)),
        Figure::new("stored after the week", Unit::Mebibytes, process::mebibytes(state.bytes))
            .compared_with("events.stream_max_bytes", process::mebibytes(limits.max_bytes))
            .with_bar(Bar::Ratio(1.0)),
        Figure::new("events stored after the week", Unit::Count, state.messages as f64)
            .compared_with("events", (DAYS * NODES * EVENTS_OF_A_NODE.iter().map(|(_, times)| times).sum::<usize>()) as f64),
        Figure::new("a node reads its own events of the whole week", Unit::Milliseconds, newest.milliseconds)
            .compared_with("one removed long ago", oldest.milliseconds),
        Figure::new("events read for that", Unit::Count, newest.read as f64).compared_with("its own", newest.own as f64),
        Figure::new("most memory of `fleetpull events` of the whole week", Unit::Mebibytes, process::mebibytes(events.peak_bytes))
            .compared_with("of `fleetpull report`", process::mebibytes(report.peak_bytes))
            .with_bar(Bar::Value(COMMAND_MIB_MOST)),
        Figure::new("time of `fleetpull events` of the whole week", Unit::Seconds, events.wall.as_secs_f64())
            .compared_with("of `fleetpull report`", report.wall.as_secs_f64()),
        Figure::new("memory of the server", Unit::Mebibytes, process::mebibytes(after)).compared_with("empty", process::mebibytes(before)),
    ])
}

/// The cost of a command that reads the whole stream.
async fn read_all(server: &NatsServer, command: &str) -> Result<Cost> {
    let home = tempfile::tempdir()?;
    let mut reading = program::isolated(&program::fleetpull()?, home.path());
    reading.args([command, "--since", "24h", "-o", "json", "--nats", &server.url()]);
    process::run(&mut reading, &Clock::host()).await
}

/// What a node reads of the stream before it offers its stored events.
struct Resumption {
    milliseconds: f64,
    read: usize,
    own: usize,
}

async fn resumption(bus: &NatsBus, fleet: &Fleet, day: usize) -> Result<Resumption> {
    let (clock, node) = (Clock::host(), node_name(day, NODES / 2)?);
    let began = clock.now().monotonic;
    let (mut from, mut read, mut own) = (Some(1), 0, 0);
    while let Some(sequence) = from {
        let page = bus
            .read(&StreamQuery {
                stream: fleet.event_stream(),
                subjects: fleet.stored_events_of(None, &node),
                from: StreamStart::Sequence(sequence),
                limit: 1_000,
            })
            .await?;
        read += page.messages.len();
        let is_own = |payload: &[u8]| String::from_utf8_lossy(payload).contains(node.as_str());
        own += page.messages.iter().filter(|stored| is_own(&stored.message.payload)).count();
        from = page.next;
    }
    let milliseconds = clock.now().monotonic.saturating_sub(began).as_secs_f64() * 1_000.0;
    Ok(Resumption { milliseconds, read, own })
}

fn node_name(day: usize, number: usize) -> Result<NodeName> {
    format!("node-{day}-{number:05}.eu.example").parse().map_err(|error| anyhow!("{error}"))
}

async fn connected(server: &NatsServer) -> Result<NatsBus> {
    let bus = NatsBus::connect(NatsOptions { urls: Some(server.url()), ..NatsOptions::default() }).await?;
    bus.wait_connected(CONNECT_LIMIT).await?;
    Ok(bus)
}

/// The events of a node's day, as messages.
fn events_of(fleet: &Fleet, day: usize, number: usize) -> Vec<(String, async_nats::HeaderMap, Vec<u8>)> {
    let Ok(node) = node_name(day, number) else { return Vec::new() };
    let mut random = Random::seeded((day * NODES + number) as u64);
    let reasons = EVENTS_OF_A_NODE.iter().flat_map(|(reason, times)| std::iter::repeat_n(*reason, *times));
    let message = |(index, reason): (usize, EventReason)| {
        let registry = REGISTRIES[index % REGISTRIES.len()];
        let mut event = made_event(&mut random, index);
        (event.reason, event.node, event.registry) = (reason, node.clone(), Some(registry.to_owned()));
        event.message.truncate(160);
        let mut lines = async_nats::HeaderMap::new();
        lines.insert("Nats-Msg-Id", event.id.to_string());
        lines.insert(headers::CONTENT_TYPE, headers::CLOUD_EVENT_JSON);
        lines.insert(headers::TRACEPARENT, event.trace.traceparent());
        lines.insert(headers::EVENT_SEQUENCE, format!("0123456789abcdef/{index}"));
        (fleet.event(reason, Some(registry), &node), lines, cloud_event::to_json(&event).unwrap_or_default())
    };
    reasons.enumerate().map(message).collect()
}
