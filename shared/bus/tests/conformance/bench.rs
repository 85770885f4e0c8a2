//! What a semantic is tried on: connections to one bus of either kind.

use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bus::memory::MemoryBus;
use bus::nats::{NatsBus, NatsOptions};
use bus::{BucketSpec, BusHealth, BusRef, EntryChange, EntryWatch, HealthChanges, Message, Subscription};
use clock::Clock;
use futures::StreamExt;
use futures::future::join_all;
use support::nats::{NatsConfig, NatsServer, current_program};
use support::requirement;

/// Far more than anything here takes: only a test that fails waits so long.
const LIMIT: Duration = Duration::from_secs(20);

/// Connections to one bus.
pub(crate) struct Bench {
    kind: Kind,
    bus: BusRef,
    other: BusRef,
}

enum Kind {
    Memory(MemoryBus),
    Nats(Mutex<NatsServer>),
}

impl Bench {
    pub(crate) fn memory() -> Self {
        let bus = MemoryBus::new(Clock::host());
        let other = bus.connect();
        Self { kind: Kind::Memory(bus.clone()), bus: Arc::new(bus), other: Arc::new(other) }
    }

    /// None where there is no server and that is allowed.
    pub(crate) async fn nats() -> Option<Self> {
        requirement::met(current_program())?;
        let server = NatsServer::start(NatsConfig::default());
        let (bus, other) = (connected(&server).await, connected(&server).await);
        Some(Self { kind: Kind::Nats(Mutex::new(server)), bus, other })
    }

    /// A connection.
    pub(crate) fn bus(&self) -> &BusRef {
        &self.bus
    }

    /// Another connection.
    pub(crate) fn other(&self) -> &BusRef {
        &self.other
    }

    pub(crate) fn is_memory(&self) -> bool {
        matches!(self.kind, Kind::Memory(_))
    }

    /// Loses a bucket, as when the store of its server is wiped.
    pub(crate) async fn lose_bucket(&self, name: &str) {
        let server = match &self.kind {
            Kind::Memory(bus) => return bus.lose_bucket(name),
            Kind::Nats(server) => server,
        };
        // Deleting the stream would do, but for a message of the old one that the server now and then writes into a new
        // one of the same name within the next millisecond.
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

/// Whatever was missed in between: once it is told again, there is a new connection.
async fn connected_again(mut changes: HealthChanges) {
    while changes.next().await.expect("the bus goes on") != BusHealth::Connected {}
}

async fn connected(server: &NatsServer) -> BusRef {
    let options = NatsOptions { urls: Some(server.url()), ..NatsOptions::default() };
    let bus = NatsBus::connect(options).await.unwrap();
    bus.wait_connected(LIMIT).await.unwrap();
    Arc::new(bus)
}

/// Waits, but not for ever.
pub(crate) async fn within<T>(waiting: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, waiting).await.expect("what is waited for comes in time")
}

/// The next message of a subscription.
pub(crate) async fn next(subscription: &mut Subscription) -> Message {
    within(subscription.next()).await.expect("the subscription goes on")
}

/// The next change of a watch.
pub(crate) async fn change(watch: &mut EntryWatch) -> EntryChange {
    within(watch.next()).await.expect("the watch goes on")
}

/// Everything up to the end of a stream.
pub(crate) async fn rest<T>(stream: impl futures::Stream<Item = T>) -> Vec<T> {
    within(stream.collect()).await
}

/// Returns when all that this connection has published before has been delivered to its own subscriptions.
pub(crate) async fn settle(bus: &BusRef) {
    drop(bus.subscribe("settle", None).await.unwrap());
}

/// Sends a text.
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
    BucketSpec { name: name.to_owned(), marker_ttl, max_bytes: None, republish_to: None }
}
