//! The services API on both adapters: the questions of `nats micro ls`, `info` and `stats`, and their answers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bus::memory::MemoryBus;
use bus::nats::{NatsBus, NatsOptions};
use bus::services::{Endpoint, EndpointCounters, ServiceDescription, announce};
use bus::{BusError, Message, MessagingRef};
use clock::Clock;
use futures::StreamExt;
use serde_json::{Value, json};
use support::nats::{NatsConfig, NatsServer, current_program};
use support::requirement;

const ROOT: &str = "$SRV";
const LIMIT: Duration = Duration::from_secs(20);
/// 2026-01-01T00:00:00Z.
const STARTED: Duration = Duration::from_secs(1_767_225_600);

fn service(name: &str, id: &str, counters: &Arc<EndpointCounters>) -> ServiceDescription {
    ServiceDescription {
        name: name.to_owned(),
        id: id.to_owned(),
        version: "1.2.3".to_owned(),
        description: format!("The {name}"),
        metadata: BTreeMap::from([("node".to_owned(), id.to_owned())]),
        endpoints: vec![Endpoint {
            name: "ask".to_owned(),
            subject: format!("cmd.{id}.{name}.ask"),
            queue_group: None,
            counters: Arc::clone(counters),
        }],
    }
}

/// All answers to one question, in the order of names and ids.
async fn asked(bus: &MessagingRef, question: &str, expected: usize) -> Vec<Value> {
    let mut inbox = bus.subscribe("answers", None).await.unwrap();
    let mut message = Message::new(format!("{ROOT}.{question}"), "");
    message.reply_to = Some("answers".to_owned());
    bus.publish(message).await.unwrap();
    let mut answers = Vec::new();
    for _ in 0..expected {
        let answer = tokio::time::timeout(LIMIT, inbox.next()).await.unwrap().unwrap();
        answers.push(serde_json::from_slice::<Value>(&answer.payload).unwrap());
    }
    answers.sort_by_key(|answer| (answer["name"].to_string(), answer["id"].to_string()));
    answers
}

fn ping(name: &str, id: &str) -> Value {
    json!({ "type": "io.nats.micro.v1.ping_response", "name": name, "id": id, "version": "1.2.3", "metadata": { "node": id } })
}

async fn everything(bus: MessagingRef) {
    let counters = Arc::new(EndpointCounters::default());
    counters.record(Duration::from_nanos(3_000), None);
    counters.record(Duration::from_nanos(1_000), Some("no such image"));
    let clock = Clock::simulated(STARTED);
    let one = vec![service("tracker", "n1", &counters), service("throttler", "n1", &counters)];
    let _one = announce(&bus, ROOT, one, &clock).await.unwrap();
    let two = announce(&bus, ROOT, vec![service("tracker", "n2", &counters)], &clock).await.unwrap();

    assert_eq!(asked(&bus, "PING", 3).await, [ping("throttler", "n1"), ping("tracker", "n1"), ping("tracker", "n2")]);
    assert_eq!(asked(&bus, "PING.tracker", 2).await, [ping("tracker", "n1"), ping("tracker", "n2")]);
    assert_eq!(asked(&bus, "PING.tracker.n2", 1).await, [ping("tracker", "n2")]);
    let info = json!({
        "type": "io.nats.micro.v1.info_response", "name": "tracker", "id": "n1", "version": "1.2.3", "metadata": { "node": "n1" },
        "description": "The tracker", "endpoints": [{ "name": "ask", "subject": "cmd.n1.tracker.ask" }],
    });
    assert_eq!(asked(&bus, "INFO.tracker.n1", 1).await, [info]);
    let stats = asked(&bus, "STATS.throttler", 1).await;
    assert_eq!(stats[0]["type"], "io.nats.micro.v1.stats_response");
    assert!(stats[0]["started"].as_str().unwrap().starts_with("2026-01-01T00:00:0"), "{stats:?}");
    let endpoints = json!([{
        "name": "ask", "subject": "cmd.n1.throttler.ask", "num_requests": 2, "num_errors": 1, "last_error": "no such image",
        "processing_time": 4_000, "average_processing_time": 2_000,
    }]);
    assert_eq!(stats[0]["endpoints"], endpoints);

    let nobody = bus.request(Message::new(format!("{ROOT}.PING.stranger"), ""), LIMIT).await;
    assert_eq!(nobody, Err(BusError::NoResponders { subject: format!("{ROOT}.PING.stranger") }));
    drop(two);
    let bad = announce(&bus, ROOT, vec![service("two words", "n1", &counters)], &clock).await;
    assert_eq!(bad.err(), Some(BusError::BadSubject { subject: "two words".to_owned() }));
}

#[tokio::test]
async fn services_answer_for_themselves_on_memory() {
    everything(Arc::new(MemoryBus::new(Clock::host()))).await;
}

#[tokio::test]
async fn services_answer_for_themselves_on_nats() {
    if requirement::met(current_program()).is_none() {
        return;
    }
    let server = NatsServer::start(NatsConfig::default());
    let bus = NatsBus::connect(NatsOptions { urls: Some(server.url()), ..NatsOptions::default() }).await.unwrap();
    bus.wait_connected(LIMIT).await.unwrap();
    everything(Arc::new(bus)).await;
}
