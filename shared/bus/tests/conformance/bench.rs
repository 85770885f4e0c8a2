//! Test benches: connections to one bus of either kind.

use std::future::Future;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bus::memory::MemoryBus;
use bus::nats::{NatsBus, NatsOptions};
use bus::{BucketSpec, BusError, BusHealth, BusRef, HealthChanges, Message, Subscription};
use clock::Clock;
use futures::StreamExt;
use futures::future::join_all;
use support::nats::{NatsCluster, NatsConfig, NatsServer, current_program, oldest_program};
use support::requirement;

/// The time limit of a step, far longer than any takes.
const LIMIT: Duration = Duration::from_secs(20);

/// How long an answer is awaited before the question is repeated.
const SHORT: Duration = Duration::from_secs(1);

/// Connections to one bus.
pub(crate) struct Bench {
    kind: Kind,
    bus: BusRef,
    other: BusRef,
}

enum Kind {
    Memory(MemoryBus),
    Nats(Mutex<NatsServer>),
    Cluster,
}

impl Bench {
    pub(crate) fn memory() -> Self {
        let bus = MemoryBus::new(Clock::host());
        let other = bus.connect();
        Self { kind: Kind::Memory(bus.clone()), bus: Arc::new(bus), other: Arc::new(other) }
    }

    /// None if there is no nats-server and this is allowed.
    pub(crate) async fn nats() -> Option<Self> {
        Self::on_server(requirement::met(current_program())?).await
    }

    /// As [`Bench::nats`], on the oldest supported server.
    pub(crate) async fn oldest_nats() -> Option<Self> {
        Self::on_server(requirement::met(oldest_program())?).await
    }

    async fn on_server(program: PathBuf) -> Option<Self> {
        let server = NatsServer::start(NatsConfig::default().with_program(program));
        let (bus, other) = (connected(server.url()).await, connected(server.url()).await);
        Some(Self { kind: Kind::Nats(Mutex::new(server)), bus, other })
    }

    /// Connections to two servers of a cluster, with the JetStream of the test's own user `t<number>`.
    pub(crate) async fn on_cluster(cluster: &NatsCluster, number: usize) -> Self {
        let url = |number_of_server: usize| {
            let server = cluster.server(number_of_server % cluster.size());
            format!("nats://t{number}:t{number}@{}", server.address())
        };
        let (bus, other) = (connected(url(number)).await, connected(url(number + 1)).await);
        Self { kind: Kind::Cluster, bus, other }
    }

    /// A connection.
    pub(crate) fn bus(&self) -> &BusRef {
        &self.bus
    }

    /// Another connection.
    pub(crate) fn other(&self) -> &BusRef {
        &self.other
    }

    /// A subscription of the other connection that messages of the first one reach. In a cluster the subscription reaches the first
    /// connection's server a moment later, but before the message that this function waits for.
    pub(crate) async fn other_receives(&self, subject: &str) -> Subscription {
        let subscription = self.other.subscribe(subject, None).await.unwrap();
        let inbox = self.bus.new_inbox();
        let mut probes = self.bus.subscribe(&inbox, None).await.unwrap();
        let probed = async {
            loop {
                publish(&self.other, &inbox, "probe").await;
                if tokio::time::timeout(SHORT, probes.next()).await.is_ok() {
                    break;
                }
            }
        };
        within(probed).await;
        subscription
    }

    pub(crate) fn is_memory(&self) -> bool {
        matches!(self.kind, Kind::Memory(_))
    }

    /// Loses a bucket, like a server whose store is wiped.
    pub(crate) async fn lose_bucket(&self, name: &str) {
        let server = match &self.kind {
            Kind::Memory(bus) => return bus.lose_bucket(name),
            Kind::Nats(server) => server,
            Kind::Cluster => return self.delete_bucket(name).await,
        };
        // Deleting the stream is not enough, because the server sometimes writes a message of the old stream into a new one of the same
        // name within the next millisecond.
        let mut health = [self.bus.health_changes(), self.other.health_changes()];
        for changes in &mut health {
            assert_eq!(within(changes.next()).await, Some(BusHealth::Connected));
        }
        {
            let mut server = server.lock().unwrap();
            server.kill();
            server.wipe_store();
            server.restart();
        }
        within(join_all(health.map(connected_again))).await;
    }
}

impl Bench {
    /// Deletes a bucket, and waits until the servers have forgotten it.
    async fn delete_bucket(&self, name: &str) {
        let ask = |call: &str, limit| self.bus.request(Message::new(format!("$JS.API.STREAM.{call}.KV_{name}"), ""), limit);
        let deleted = ask("DELETE", LIMIT).await.unwrap();
        assert!(text(&deleted).contains("\"success\":true"), "{}", text(&deleted));
        // During the deletion none of its servers may answer, and one that still listens drops what it receives.
        let is_deleted = |answer: Result<Message, _>| answer.is_ok_and(|answer| text(&answer).contains("stream not found"));
        within(async { while !is_deleted(ask("INFO", SHORT).await) {} }).await;
        for bus in [&self.bus, &self.other] {
            let is_received = |answer| !matches!(answer, Err(BusError::NoResponders { .. }));
            within(async { while is_received(bus.request(Message::new(format!("$KV.{name}.anybody"), ""), SHORT).await) {} }).await;
        }
    }
}

/// Waits for a new connection. Changes in between may be missed.
async fn connected_again(mut changes: HealthChanges) {
    while changes.next().await.expect("the bus goes on") != BusHealth::Connected {}
}

async fn connected(urls: String) -> BusRef {
    let options = NatsOptions { urls: Some(urls), ..NatsOptions::default() };
    let bus = NatsBus::connect(options).await.unwrap();
    bus.wait_connected(LIMIT).await.unwrap();
    Arc::new(bus)
}

/// Waits with a time limit.
pub(crate) async fn within<T>(waiting: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, waiting).await.expect("what is waited for comes in time")
}

/// The next message of a subscription.
pub(crate) async fn next(subscription: &mut Subscription) -> Message {
    within(subscription.next()).await.expect("the subscription goes on")
}

/// All items until the stream ends.
pub(crate) async fn rest<T>(stream: impl futures::Stream<Item = T>) -> Vec<T> {
    within(stream.collect()).await
}

/// Returns when all earlier messages of this connection have been delivered to its own subscriptions.
pub(crate) async fn settle(bus: &BusRef) {
    drop(bus.subscribe("settle", None).await.unwrap());
}

/// Publishes a text.
pub(crate) async fn publish(bus: &BusRef, subject: &str, text: &str) {
    bus.publish(Message::new(subject, text.to_owned())).await.unwrap();
}

/// The payload as text.
pub(crate) fn text(message: &Message) -> &str {
    std::str::from_utf8(&message.payload).unwrap()
}

/// A bucket whose keys may expire.
pub(crate) fn bucket(name: &str) -> BucketSpec {
    let marker_ttl = Some(Duration::from_secs(2));
    BucketSpec { name: name.to_owned(), marker_ttl, max_bytes: None, forgets_oldest: false, republish_to: None }
}
