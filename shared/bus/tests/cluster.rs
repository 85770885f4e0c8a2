//! A cluster of three nats-servers with JetStream, as in production: the loss of one server loses nothing, and a read is never older than
//! an acknowledged write.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;
use std::time::Duration;

use bus::nats::{NatsBus, NatsOptions, SetupOptions, SetupState};
use bus::{BucketSpec, BusHealth, KeyValue, KeyValueError, Message, Messaging, SharedState};
use futures::StreamExt;
use serde_json::Value;
use support::nats::{NatsCluster, NatsConfig, current_program};
use support::requirement::met;

/// The time limit of a step. An election takes at most 9 s, and as long again if the vote was split.
const LIMIT: Duration = Duration::from_secs(60);
/// A bucket with one replica.
const OF_ONE: &str = r#"{"name":"KV_state","subjects":["$KV.state.>"],"max_msgs_per_subject":1,"num_replicas":1,"allow_direct":true,"allow_rollup_hdrs":true}"#;
/// The pause before an operation that may fail for a while is tried again.
const AGAIN: Duration = Duration::from_millis(100);

fn bucket() -> BucketSpec {
    let republish_to = Some("changes".to_owned());
    BucketSpec {
        name: "state".to_owned(),
        marker_ttl: Some(Duration::from_secs(60)),
        max_bytes: Some(1_000_000),
        forgets_oldest: false,
        republish_to,
    }
}

/// A connection that uses this server first, and the others if it is down.
async fn connected(cluster: &NatsCluster, server: usize) -> NatsBus {
    let bus = NatsBus::connect(NatsOptions { urls: Some(cluster.server(server).url()), ..NatsOptions::default() }).await.unwrap();
    let mut health = bus.health_changes();
    while tokio::time::timeout(LIMIT, health.next()).await.expect("it connects in time") != Some(BusHealth::Connected) {}
    bus
}

/// A connection to each server.
async fn each(cluster: &NatsCluster) -> Vec<NatsBus> {
    futures::future::join_all((0..cluster.size()).map(|server| connected(cluster, server))).await
}

async fn info(bus: &NatsBus) -> Value {
    let answer = bus.request(Message::new("$JS.API.STREAM.INFO.KV_state", ""), LIMIT).await.unwrap();
    serde_json::from_slice(&answer.payload).unwrap()
}

/// Repeats until it succeeds. An operation may have been done although no answer came, so it must not be a compare-and-set.
async fn at_last<T, E: std::fmt::Debug, F: Future<Output = Result<T, E>>>(mut attempt: impl FnMut() -> F) -> T {
    let mut errors = Vec::new();
    let trying = async {
        loop {
            match attempt().await {
                Ok(done) => return done,
                Err(error) => errors.push(error),
            }
            tokio::time::sleep(AGAIN).await;
        }
    };
    let done = tokio::time::timeout(LIMIT, trying).await;
    done.unwrap_or_else(|_| panic!("it does not succeed in time; the last error is {:?}", errors.last()))
}

/// Puts a value as soon as the bucket accepts it, and checks that it is stored.
async fn put_at_last(state: &Arc<dyn KeyValue>, key: &str, value: &'static str) -> u64 {
    let revision = at_last(|| state.put(key, value.into(), None)).await;
    let found = at_last(|| state.get(key)).await.unwrap();
    assert_eq!((found.revision, &found.value[..]), (revision, value.as_bytes()));
    revision
}

/// Waits until the status of the bucket names three servers, of which so many are down.
async fn until_down(state: &Arc<dyn KeyValue>, count: usize) {
    let seen = async {
        loop {
            let servers = state.status().await.ok().and_then(|status| status.servers);
            if servers.is_some_and(|servers| servers.total == 3 && servers.down.len() == count) {
                return;
            }
            tokio::time::sleep(AGAIN).await;
        }
    };
    tokio::time::timeout(LIMIT, seen).await.expect("it is reported in time");
}

#[tokio::test]
async fn a_bucket_is_kept_on_three_servers_and_outlives_the_one_that_leads_it() {
    if met(current_program()).is_none() {
        return;
    }
    let mut cluster = NatsCluster::start(&NatsConfig::default());
    let any = connected(&cluster, 0).await;
    let leases = any.bucket(&bucket()).await.unwrap();
    assert_eq!(info(&any).await["config"]["num_replicas"], 3);
    let leader = cluster.leader_of("KV_state").expect("the stream has a leader");
    let bus = connected(&cluster, leader).await;
    let state = bus.bucket(&bucket()).await.unwrap();
    let first = state.create("lease", "me".into(), None).await.unwrap();
    let before = state.status().await.unwrap();
    let mut health = bus.health_changes();
    until_down(&state, 0).await;

    cluster.kill(leader);
    while !matches!(health.next().await, Some(BusHealth::Disconnected { .. })) {}
    while !matches!(health.next().await, Some(BusHealth::Connected)) {}
    // A node that was connected to another server, and one that had to look for another server.
    for state in [&leases, &state] {
        assert_eq!(at_last(|| state.get("lease")).await.unwrap().revision, first);
    }
    let status = at_last(|| state.status()).await;
    assert_eq!((&status.created, status.sequence), (&before.created, before.sequence), "it is the same bucket");
    let conflict = KeyValueError::Conflict { key: "lease".to_owned() };
    assert_eq!(leases.create("lease", "you".into(), None).await, Err(conflict));
    let second = put_at_last(&state, "lease", "me").await;
    until_down(&state, 1).await;

    cluster.restart(leader);
    cluster.until_whole();
    until_down(&state, 0).await;
    assert_eq!(at_last(|| leases.get("lease")).await.unwrap().revision, second);
    assert_eq!(at_last(|| leases.snapshot(None)).await.entries.len(), 1);
}

#[tokio::test]
async fn acknowledged_write_is_read_from_any_server() {
    if met(current_program()).is_none() {
        return;
    }
    let cluster = NatsCluster::start(&NatsConfig::default());
    let buses = each(&cluster).await;
    let mut states: Vec<Arc<dyn KeyValue>> = Vec::new();
    for bus in &buses {
        states.push(bus.bucket(&bucket()).await.unwrap());
    }
    for round in 0..100 {
        let (writer, readers) = (&states[round % 3], [&states[(round + 1) % 3], &states[(round + 2) % 3]]);
        let key = format!("report.{round}");
        let revision = writer.put(&key, "1".into(), None).await.unwrap();
        for reader in readers {
            let snapshot = reader.snapshot(None).await.unwrap();
            assert!(snapshot.status.sequence >= revision, "round {round}: {:?}", snapshot.status);
            assert!(snapshot.entries.iter().any(|aged| aged.entry.revision == revision), "round {round}: a snapshot lacks the last word");
        }
        // A lease that one releases, the other can take, repeatedly.
        let lease = writer.create("lease", "me".into(), None).await.unwrap();
        assert_eq!(readers[0].get("lease").await.unwrap().unwrap().revision, lease);
        writer.delete("lease", Some(lease)).await.unwrap();
        let taken = readers[1].create("lease", "you".into(), None).await.unwrap();
        assert_eq!(writer.update("lease", "me".into(), lease, None).await, Err(KeyValueError::Conflict { key: "lease".to_owned() }));
        assert_eq!(writer.get("lease").await.unwrap().unwrap().revision, taken);
        readers[1].delete("lease", Some(taken)).await.unwrap();
    }
}

#[tokio::test]
async fn every_change_is_republished_once_and_in_order_by_each_server() {
    if met(current_program()).is_none() {
        return;
    }
    let cluster = NatsCluster::start(&NatsConfig::default());
    let buses = each(&cluster).await;
    let state = buses[0].bucket(&bucket()).await.unwrap();
    let mut subscriptions = Vec::new();
    for bus in &buses {
        subscriptions.push(bus.subscribe("changes.>", None).await.unwrap());
    }
    // A server forwards a new subscription to the others; once a change has arrived through all of them, none is missed.
    let mut last = Vec::new();
    for subscription in &mut subscriptions {
        let received = async {
            loop {
                state.put("early", "1".into(), None).await.unwrap();
                if let Ok(Some(message)) = tokio::time::timeout(AGAIN, subscription.next()).await {
                    return sequence(&message);
                }
            }
        };
        last.push(tokio::time::timeout(LIMIT, received).await.unwrap());
    }
    for number in 0..200 {
        state.put(&format!("key.{}", number % 7), "1".into(), None).await.unwrap();
    }
    let end = state.put("end", "1".into(), None).await.unwrap();
    for (subscription, last) in subscriptions.iter_mut().zip(last) {
        for expected in last + 1..=end {
            let message = tokio::time::timeout(LIMIT, subscription.next()).await.unwrap().unwrap();
            assert_eq!(sequence(&message), expected, "{}", message.subject);
        }
    }
}

fn sequence(message: &Message) -> u64 {
    message.headers.get("Nats-Sequence").unwrap().parse().unwrap()
}

#[tokio::test]
async fn bucket_that_cannot_have_three_replicas_gets_one_and_a_mark() {
    if met(current_program()).is_none() {
        return;
    }
    // Room for one megabyte, not for three: callers get the same error as on a cluster that lacks servers.
    let limits = "accounts { A { jetstream: { max_file: 2MB }, users: [{ user: a, password: a }] } }\nno_auth_user: a";
    let cluster = NatsCluster::start(&NatsConfig::default().with(limits));
    let bus = connected(&cluster, 0).await;
    let state = bus.bucket(&bucket()).await.unwrap();
    let config = info(&bus).await["config"].take();
    assert_eq!((&config["num_replicas"], &config["metadata"]["fleetpull-replicas-wanted"]), (&1.into(), &"3".into()), "{config}");
    put_at_last(&state, "a", "1").await;
}

#[tokio::test]
async fn a_bucket_that_is_marked_for_more_gets_three_replicas_when_it_is_opened() {
    if met(current_program()).is_none() {
        return;
    }
    let cluster = NatsCluster::start(&NatsConfig::default());
    let bus = connected(&cluster, 0).await;
    let marked = OF_ONE.replace('}', r#","metadata":{"fleetpull-replicas-wanted":"3","of":"operator"}}"#);
    bus.request(Message::new("$JS.API.STREAM.CREATE.KV_state", marked), LIMIT).await.unwrap();
    let state = bus.bucket(&bucket()).await.unwrap();
    let revision = put_at_last(&state, "a", "1").await;
    let grown = async {
        loop {
            let config = info(&bus).await["config"].take();
            if config["num_replicas"] == 3 {
                return config;
            }
            tokio::time::sleep(AGAIN).await;
        }
    };
    let config = tokio::time::timeout(LIMIT, grown).await.expect("it is kept on three servers in time");
    assert_eq!((&config["metadata"]["of"], config["metadata"].get("fleetpull-replicas-wanted")), (&"operator".into(), None), "{config}");
    assert_eq!(at_last(|| state.get("a")).await.unwrap().revision, revision);
    put_at_last(&state, "a", "2").await;
}

#[tokio::test]
async fn a_bucket_of_one_server_that_an_operator_made_is_left_as_it_is() {
    if met(current_program()).is_none() {
        return;
    }
    let cluster = NatsCluster::start(&NatsConfig::default());
    let bus = connected(&cluster, 0).await;
    bus.request(Message::new("$JS.API.STREAM.CREATE.KV_state", OF_ONE), LIMIT).await.unwrap();
    let state = bus.bucket(&bucket()).await.unwrap();
    assert_eq!(state.put("a", "1".into(), Some(Duration::from_secs(60))).await, Ok(1), "it has learned to expire");
    let found = info(&bus).await;
    assert_eq!((&found["config"]["num_replicas"], &found["config"]["republish"]["dest"]), (&1.into(), &"changes.>".into()));
}

#[tokio::test]
async fn a_bucket_that_is_set_up_has_three_replicas_also_one_that_had_fewer() {
    if met(current_program()).is_none() {
        return;
    }
    let cluster = NatsCluster::start(&NatsConfig::default());
    let bus = connected(&cluster, 0).await;
    bus.request(Message::new("$JS.API.STREAM.CREATE.KV_state", OF_ONE), LIMIT).await.unwrap();
    let one = bus.set_up(&bucket(), SetupOptions { replicas: Some(1), ..SetupOptions::default() }).await.unwrap();
    assert_eq!(one.replicas, Some(1), "as it is asked for");
    let three = bus.set_up(&bucket(), SetupOptions::default()).await.unwrap();
    assert_eq!((three.replicas, info(&bus).await["config"]["num_replicas"].take()), (Some(3), 3.into()));
    let made = bus.set_up(&BucketSpec { name: "other".to_owned(), ..bucket() }, SetupOptions::default()).await.unwrap();
    assert_eq!((made.state, made.replicas), (SetupState::Made, Some(3)));
    let too_many = SetupOptions { replicas: Some(5), ..SetupOptions::default() };
    let refused = bus.set_up(&BucketSpec { name: "third".to_owned(), ..bucket() }, too_many).await;
    assert!(refused.is_err(), "a cluster of three has no five to give: {refused:?}");
}

#[tokio::test]
async fn a_cluster_without_a_quorum_is_reported_and_found_again() {
    if met(current_program()).is_none() {
        return;
    }
    let mut cluster = NatsCluster::start(&NatsConfig::default());
    let bus = connected(&cluster, 0).await;
    let state = bus.bucket(&bucket()).await.unwrap();
    let revision = state.put("a", "1".into(), None).await.unwrap();
    // A stream that loses its servers while it is being made may find no leader again.
    until_down(&state, 0).await;
    let mut health = bus.health_changes();
    cluster.kill(1);
    cluster.kill(2);
    // A caller that waits for the bus: the server is there, but the cluster has no majority.
    let asking = async {
        loop {
            let _ = tokio::time::timeout(AGAIN, state.get("a")).await;
            tokio::time::sleep(AGAIN).await;
        }
    };
    let degraded = async {
        loop {
            if let Some(BusHealth::Degraded { reason, .. }) = health.next().await {
                return reason;
            }
        }
    };
    let reason = tokio::select! {
        () = asking => unreachable!("it asks for ever"),
        reason = tokio::time::timeout(LIMIT, degraded) => reason.expect("it is reported in time"),
    };
    assert!(reason.contains("JetStream"), "{reason}");
    assert!(state.put("a", "2".into(), None).await.is_err());
    cluster.restart(1);
    while tokio::time::timeout(LIMIT, health.next()).await.expect("it is found in time") != Some(BusHealth::Connected) {}
    assert!(put_at_last(&state, "a", "2").await > revision);
}
