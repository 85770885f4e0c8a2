//! A JetStream that answers and does not do what is asked: the bus is degraded and says what to change, until it was done.

use std::time::Duration;

use bus::nats::NatsBus;
use bus::{BucketSpec, Bus, BusError, BusHealth, KeyValueError, Message, StreamSpec};
use futures::StreamExt;
use support::nats::{NatsConfig, NatsServer};

use super::{LIMIT, passes_a_message, says, server, urls, within};

fn bucket(max_bytes: u64) -> BucketSpec {
    let marker_ttl = Some(Duration::from_secs(1));
    BucketSpec { name: "state".to_owned(), marker_ttl, max_bytes: Some(max_bytes), forgets_oldest: false, republish_to: None }
}

fn denied(subject: &str) -> NatsConfig {
    let permissions = format!("permissions: {{ publish: {{ deny: [\"{subject}\"] }} }}");
    NatsConfig::default().with(&format!("authorization {{ users: [{{ user: ann, password: pw, {permissions} }}] }}"))
}

async fn connected(server: &NatsServer) -> NatsBus {
    let bus = NatsBus::connect(urls(format!("nats://ann:pw@{}", server.address()))).await.unwrap();
    bus.wait_connected(LIMIT).await.unwrap();
    bus
}

async fn until_connected(bus: &NatsBus) {
    let mut changes = bus.health_changes();
    within(async { while changes.next().await.expect("the bus goes on") != BusHealth::Connected {} }).await;
}

#[tokio::test]
async fn what_jetstream_refuses_is_said_and_made_when_it_is_allowed() {
    let user = "users: [{ user: ann, password: pw }]";
    let account = |limits: &str| NatsConfig::default().with(&format!("accounts {{ A {{ jetstream: {{ {limits} }}, {user} }} }}"));
    let of_server = NatsConfig::default().with_jetstream("max_file_store: 100KB").with(&format!("authorization {{ {user} }}"));
    let table = [
        (of_server, ["KV_state", "insufficient storage", "max_file_store"]),
        (account("max_mem: 64MB, max_file: 100KB"), ["KV_state", "insufficient storage", "max_file"]),
        (account("max_mem: 64MB, max_file: 1GB, max_streams: 1"), ["KV_state", "maximum number of streams", "max_streams"]),
        (account("max_mem: 64MB, max_file: 1GB, disk_max_stream_bytes: 1KB"), ["KV_state", "", "disk_max_stream_bytes"]),
        (denied("$JS.API.STREAM.CREATE.>"), ["KV_state", "may not publish to $JS.API.STREAM.CREATE.KV_state", "allow it"]),
    ];
    let tried = table.map(|(config, parts)| async move {
        let mut server = server!(config.clone());
        let bus = connected(&server).await;
        if parts.contains(&"max_streams") {
            let subjects = vec!["other".to_owned()];
            let other = StreamSpec { name: "other".to_owned(), subjects, max_age: None, max_bytes: Some(1_000), duplicate_window: LIMIT };
            bus.stream(&other).await.unwrap();
        }
        let refused = within(bus.bucket(&bucket(1_000_000))).await.err();
        let reason = says(&bus, &parts).await;
        assert_eq!(bus.health(), BusHealth::Degraded { reason: reason.clone(), transient: false });
        assert_eq!(refused, Some(BusError::Unsupported { reason }), "the caller is told the same");
        passes_a_message(&bus).await;
        server.restart_with(NatsConfig::default().with("authorization { users: [{ user: ann, password: pw }] }"));
        // Nobody asks for the bucket again.
        until_connected(&bus).await;
        bus.bucket(&bucket(1_000_000)).await.unwrap().put("a", "1".into(), None).await.unwrap();
    });
    futures::future::join_all(tried).await;
}

#[tokio::test]
async fn a_bucket_that_is_full_or_forbidden_is_said_until_it_takes_a_value() {
    let server = server!(NatsConfig::default().with("authorization { users: [{ user: ann, password: pw }] }"));
    let bus = connected(&server).await;
    let state = bus.bucket(&bucket(2_000)).await.unwrap();
    let full = state.put("a", vec![0; 4_000].into(), None).await;
    assert_eq!(full, Err(KeyValueError::Full { key: "a".to_owned() }));
    says(&bus, &["KV_state", "maximum bytes", "raise its limit"]).await;
    state.put("a", "1".into(), None).await.unwrap();
    assert_eq!(bus.health(), BusHealth::Connected);

    let server = server!(denied("$KV.>"));
    let bus = connected(&server).await;
    let state = bus.bucket(&bucket(2_000)).await.unwrap();
    let forbidden = within(state.put("a", "1".into(), None)).await;
    assert!(matches!(forbidden, Err(KeyValueError::Bus(BusError::Unsupported { .. }))), "{forbidden:?}");
    says(&bus, &["KV_state", "may not publish to $KV.state.a", "allow it"]).await;
}

#[tokio::test]
async fn whoever_asks_where_the_login_may_not_is_told_at_once() {
    let server = server!(denied("private.>"));
    let bus = connected(&server).await;
    let patient = Duration::from_secs(3_600);
    let asked = within(bus.request(Message::new("private.a", ""), patient)).await;
    assert_eq!(asked, Err(BusError::Forbidden { subject: "private.a".to_owned() }));
    assert_eq!(bus.health(), BusHealth::Connected);
}
