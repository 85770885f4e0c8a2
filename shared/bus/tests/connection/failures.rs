//! Servers that are absent, unsuitable or failing: the error names the cause, and no caller waits for them.
#![allow(clippy::disallowed_methods, reason = "tasks of a test")]

use std::time::Duration;

use bus::nats::NatsBus;
use bus::{BucketSpec, BusError, BusHealth, EventLog, KeyValueError, Message, Messaging, SharedState, StreamSpec};
use futures::StreamExt;
use support::nats::{NatsConfig, NatsServer, old_program};
use support::requirement;

use super::{LIMIT, is_disconnected, passes_a_message, reported_reason, server, urls, within};

fn bucket() -> BucketSpec {
    BucketSpec {
        name: "state".to_owned(),
        marker_ttl: Some(Duration::from_secs(1)),
        max_bytes: None,
        forgets_oldest: false,
        republish_to: None,
    }
}

fn stream() -> StreamSpec {
    StreamSpec {
        name: "events".to_owned(),
        subjects: vec!["evt.>".to_owned()],
        max_age: None,
        max_bytes: None,
        duplicate_window: Duration::from_secs(60),
        transform: None,
    }
}

/// Checks that messages pass, and that state and streams are refused with these parts in the reason.
async fn is_degraded(bus: &NatsBus, parts: &[&str]) {
    bus.wait_connected(LIMIT).await.unwrap();
    let reason = reported_reason(bus, parts).await;
    assert_eq!(bus.health(), BusHealth::Degraded { reason: reason.clone(), transient: false });
    passes_a_message(bus).await;
    let unsupported = BusError::Unsupported { reason };
    assert_eq!(bus.bucket(&bucket()).await.err(), Some(unsupported.clone()));
    assert_eq!(bus.stream(&stream()).await, Err(unsupported.clone()));
    assert_eq!(bus.append(Message::new("evt.a", ""), "id").await, Err(unsupported));
}

#[tokio::test]
async fn refused_connection_is_reported() {
    let mut server = server!(NatsConfig::default());
    server.kill();
    let bus = NatsBus::connect(urls(server.url())).await.unwrap();
    let patient = Duration::from_secs(3_600);
    let message = Message::new("a", "");
    assert!(is_disconnected(&within(bus.publish(message.clone())).await));
    assert!(is_disconnected(&within(bus.request(message.clone(), patient)).await));
    assert!(is_disconnected(&within(bus.append(message, "id")).await));
    assert!(is_disconnected(&within(bus.bucket(&bucket())).await));
    let reason = reported_reason(&bus, &[&server.url(), "onnection refused", "start it, or correct the URL"]).await;
    let error = bus.wait_connected(Duration::from_millis(1)).await;
    assert_eq!(error, Err(BusError::Disconnected { reason }));
    within(bus.drain()).await;
}

#[tokio::test]
async fn a_name_that_cannot_be_resolved() {
    let bus = NatsBus::connect(urls("nats://no-such-host.invalid:4222")).await.unwrap();
    reported_reason(&bus, &["nats://no-such-host.invalid:4222", "cannot be resolved"]).await;
}

#[tokio::test]
async fn each_server_is_named_with_its_own_error() {
    let server = server!(NatsConfig::default().with("authorization { token: s3cret }"));
    let bus = NatsBus::connect(urls(format!("127.0.0.1:1,{}", server.address()))).await.unwrap();
    reported_reason(&bus, &["nats://127.0.0.1:1: ", "no server listens there", &server.url(), "refuses the login"]).await;
}

#[tokio::test]
async fn a_server_without_jetstream() {
    let server = server!(NatsConfig::default().without_jetstream());
    let bus = NatsBus::connect(urls(server.url())).await.unwrap();
    is_degraded(&bus, &["no JetStream", "turn it on"]).await;
}

#[tokio::test]
async fn an_account_without_jetstream() {
    let text = "accounts { A { users: [{ user: ann, password: pw }] } }";
    let server = server!(NatsConfig::default().with(text));
    let bus = NatsBus::connect(urls(format!("nats://ann:pw@{}", server.address()))).await.unwrap();
    is_degraded(&bus, &["JetStream", "account", "turn it on"]).await;
}

#[tokio::test]
async fn a_server_that_is_too_old() {
    let Some(program) = requirement::met(old_program()) else { return };
    let server = NatsServer::start(NatsConfig::default().with_program(program));
    let bus = NatsBus::connect(urls(server.url())).await.unwrap();
    is_degraded(&bus, &["nats-server 2.", "too old", "2.11.7 or newer"]).await;
}

#[tokio::test]
async fn a_server_with_a_smaller_limit() {
    let server = server!(NatsConfig::default().with("max_payload: 1000"));
    let bus = NatsBus::connect(urls(server.url())).await.unwrap();
    bus.wait_connected(LIMIT).await.unwrap();
    let error = BusError::TooLarge { subject: "a".to_owned(), bytes: 1_001, limit: 1_000 };
    assert_eq!(bus.publish(Message::new("a", vec![0; 1_001])).await, Err(error));
    let state = bus.bucket(&bucket()).await;
    assert!(state.is_err() || matches!(state.unwrap().put("a", vec![0; 1_001].into(), None).await, Err(KeyValueError::Bus(_))));
    passes_a_message(&bus).await;
}

/// As while a stream's leader is elected, or before the other servers know its subscription.
#[tokio::test]
async fn message_without_a_stream_at_the_moment_is_stored_by_the_next_attempt() {
    let server = server!(NatsConfig::default());
    let bus = NatsBus::connect(urls(server.url())).await.unwrap();
    bus.wait_connected(LIMIT).await.unwrap();
    // The message is sent before the stream is made.
    let (appended, streamed) = tokio::join!(bus.append(Message::new("evt.a", ""), "id"), async { bus.stream(&stream()).await });
    assert_eq!((appended.map(|appended| appended.sequence), streamed.map(|_| ())), (Ok(1), Ok(())));
}

/// The server's JetStream has too many messages in hand, but plain subscribers have received the message.
#[tokio::test]
async fn event_refused_by_a_busy_stream_reaches_a_subscriber_once() {
    let server = server!(NatsConfig::default().without_jetstream());
    let jetstream = NatsBus::connect(urls(server.url())).await.unwrap();
    jetstream.wait_connected(LIMIT).await.unwrap();
    let answer = async |subject: &str, answer: &'static str| {
        let mut asked = jetstream.subscribe(subject, Some("jetstream")).await.unwrap();
        let jetstream = jetstream.clone();
        tokio::spawn(async move {
            while let Some(reply_to) = asked.next().await.and_then(|message| message.reply_to) {
                jetstream.publish(Message::new(reply_to, answer)).await.unwrap();
            }
        });
    };
    answer("$JS.API.INFO", "{}").await;
    answer("evt.a", "{\"error\":{\"code\":429,\"err_code\":10167,\"description\":\"too many requests\"}}").await;
    let bus = NatsBus::connect(urls(server.url())).await.unwrap();
    bus.wait_connected(LIMIT).await.unwrap();
    assert_eq!(bus.health(), BusHealth::Connected);
    let mut plain = bus.subscribe("evt.a", None).await.unwrap();
    let appended = within(bus.append(Message::new("evt.a", "one"), "id")).await;
    assert!(matches!(&appended, Err(BusError::Other { reason }) if reason.contains("too many requests")), "{appended:?}");
    bus.publish(Message::new("evt.a", "two")).await.unwrap();
    let mut received = async || within(plain.next()).await.unwrap().payload;
    assert_eq!((received().await, received().await), ("one".into(), "two".into()));
}

#[tokio::test]
async fn hanging_server_times_out_each_operation() {
    let server = server!(NatsConfig::default());
    let bus = NatsBus::connect(urls(server.url())).await.unwrap();
    bus.wait_connected(LIMIT).await.unwrap();
    server.pause();
    let timeout = Duration::from_millis(50);
    let asked = bus.request(Message::new("a", ""), timeout).await;
    assert_eq!(asked, Err(BusError::TimedOut { subject: "a".to_owned(), timeout }));
    let flood = async {
        let message = Message::new("a", vec![0; 100_000]);
        while bus.publish(message.clone()).await.is_ok() {}
        bus.publish(message).await
    };
    let refused = within(flood).await;
    assert!(is_disconnected(&refused), "an error is returned when nothing more can be queued: {refused:?}");
    server.resume();
}
