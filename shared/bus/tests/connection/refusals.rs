//! A JetStream that answers and refuses: the bus is degraded and names what to change until it succeeds.

use std::time::Duration;

use bus::nats::{NatsBus, SetupOptions, SetupState};
use bus::{BucketSpec, BusError, BusHealth, EventLog, KeyValueError, Message, Messaging, SharedState, StreamSpec};
use futures::StreamExt;
use support::nats::{NatsConfig, NatsServer};

use super::{LIMIT, passes_a_message, reported_reason, server, urls, within};

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
async fn bucket_refused_by_jetstream_is_reported_and_created_when_allowed() {
    let user = "users: [{ user: ann, password: pw }]";
    let account = |limits: &str| NatsConfig::default().with(&format!("accounts {{ A {{ jetstream: {{ {limits} }}, {user} }} }}"));
    let of_server = NatsConfig::default().with_jetstream("max_file_store: 100KB").with(&format!("authorization {{ {user} }}"));
    let table = [
        (of_server, ["KV_state", "insufficient storage", "max_file_store"]),
        (account("max_mem: 64MB, max_file: 100KB"), ["KV_state", "insufficient storage", "max_file"]),
        (account("max_mem: 64MB, max_file: 1GB, max_streams: 1"), ["KV_state", "maximum number of streams", "max_streams"]),
        (account("max_mem: 64MB, max_file: 1GB, disk_max_stream_bytes: 1KB"), ["KV_state", "", "disk_max_stream_bytes"]),
        (denied("$JS.API.STREAM.CREATE.>"), ["buckets of the fleet are missing", "this login may not make them", "`fleetpull nats-setup`"]),
    ];
    let tried = table.map(|(config, parts)| async move {
        let mut server = server!(config.clone());
        let bus = connected(&server).await;
        if parts.contains(&"max_streams") {
            let subjects = vec!["other".to_owned()];
            let other = StreamSpec {
                name: "other".to_owned(),
                subjects,
                max_age: None,
                max_bytes: Some(1_000),
                duplicate_window: LIMIT,
                transform: None,
            };
            bus.stream(&other).await.unwrap();
        }
        let refused = within(bus.bucket(&bucket(1_000_000))).await.err();
        let reason = reported_reason(&bus, &parts).await;
        assert_eq!(bus.health(), BusHealth::Degraded { reason: reason.clone(), transient: false });
        assert_eq!(refused, Some(BusError::Unsupported { reason }), "the caller gets the same reason");
        passes_a_message(&bus).await;
        server.restart_with(NatsConfig::default().with("authorization { users: [{ user: ann, password: pw }] }"));
        // Without another call for the bucket.
        until_connected(&bus).await;
        bus.bucket(&bucket(1_000_000)).await.unwrap().put("a", "1".into(), None).await.unwrap();
    });
    futures::future::join_all(tried).await;
}

#[tokio::test]
async fn a_full_or_forbidden_bucket_is_reported_until_it_takes_a_value() {
    let server = server!(NatsConfig::default().with("authorization { users: [{ user: ann, password: pw }] }"));
    let bus = connected(&server).await;
    let state = bus.bucket(&bucket(2_000)).await.unwrap();
    let full = state.put("a", vec![0; 4_000].into(), None).await;
    assert_eq!(full, Err(KeyValueError::Full { key: "a".to_owned() }));
    reported_reason(&bus, &["KV_state", "maximum bytes", "raise its limit"]).await;
    state.put("a", "1".into(), None).await.unwrap();
    assert_eq!(bus.health(), BusHealth::Connected);

    let server = server!(denied("$KV.>"));
    let bus = connected(&server).await;
    let state = bus.bucket(&bucket(2_000)).await.unwrap();
    let forbidden = within(state.put("a", "1".into(), None)).await;
    assert!(matches!(forbidden, Err(KeyValueError::Bus(BusError::Unsupported { .. }))), "{forbidden:?}");
    reported_reason(&bus, &["KV_state", "may not publish to $KV.state.a", "allow it"]).await;
}

#[tokio::test]
async fn a_request_that_the_login_may_not_send_is_answered_at_once() {
    let server = server!(denied("private.>"));
    let bus = connected(&server).await;
    let patient = Duration::from_secs(3_600);
    let asked = within(bus.request(Message::new("private.a", ""), patient)).await;
    assert_eq!(asked, Err(BusError::Forbidden { subject: "private.a".to_owned() }));
    assert_eq!(bus.health(), BusHealth::Connected);
}

/// Two logins of one account: `setup` may make and change streams, `node` may do neither.
fn two_logins() -> NatsConfig {
    let deny = "permissions: { publish: { deny: [\"$JS.API.STREAM.CREATE.>\", \"$JS.API.STREAM.UPDATE.>\"] } }";
    let users = format!("users: [{{ user: setup, password: pw }}, {{ user: ann, password: pw, {deny} }}]");
    NatsConfig::default().with(&format!("authorization {{ {users} }}"))
}

/// How often a server has refused this call of JetStream's API; waits until it has at least once.
async fn refused_by(server: &NatsServer, verb: &str) -> usize {
    let refused = |line: &&str| line.contains("Publish Violation") && line.contains(&format!("$JS.API.STREAM.{verb}."));
    let count = || server.log().lines().filter(refused).count();
    within(async {
        while count() == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await
        }
    })
    .await;
    count()
}

#[tokio::test]
async fn a_login_that_may_not_make_buckets_asks_once_and_uses_them_when_another_has_made_them() {
    let server = server!(two_logins());
    let bus = connected(&server).await;
    for _ in 0..5 {
        let refused = within(bus.bucket(&bucket(1_000_000))).await.err();
        assert!(matches!(refused, Some(BusError::Unsupported { .. })), "{refused:?}");
    }
    reported_reason(&bus, &["buckets of the fleet are missing", "`fleetpull nats-setup`"]).await;
    let setup = NatsBus::connect(urls(format!("nats://setup:pw@{}", server.address()))).await.unwrap();
    setup.wait_connected(LIMIT).await.unwrap();
    let plain = BucketSpec { marker_ttl: None, ..bucket(1_000_000) };
    let made = setup.set_up(&plain, SetupOptions::default()).await.unwrap();
    assert_eq!((made.state, made.replicas), (SetupState::Made, Some(1)));
    // Without another call for the bucket.
    until_connected(&bus).await;
    assert_eq!(refused_by(&server, "CREATE").await, 1, "it is asked once a connection");

    // It exists, and lacks what this login may not add.
    for _ in 0..5 {
        let refused = within(bus.bucket(&bucket(1_000_000))).await.err();
        assert!(matches!(refused, Some(BusError::Unsupported { .. })), "{refused:?}");
    }
    reported_reason(&bus, &["buckets of the fleet lack settings", "`fleetpull nats-setup`"]).await;
    assert_eq!(refused_by(&server, "UPDATE").await, 1, "it is asked once a connection");
    let changed = setup.set_up(&bucket(1_000_000), SetupOptions::default()).await.unwrap();
    assert_eq!(changed.state, SetupState::Changed, "{changed:?}");
    let state = bus.bucket(&bucket(1_000_000)).await.unwrap();
    state.put("a", "1".into(), Some(Duration::from_secs(60))).await.unwrap();
    assert_eq!(bus.health(), BusHealth::Connected);
}
