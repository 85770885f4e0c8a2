//! What a semantic is tried on: connections to one bus of either kind.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bus::memory::MemoryBus;
use bus::nats::{NatsBus, NatsOptions};
use bus::{BucketSpec, Bus, BusRef, EntryChange, EntryWatch, Message, Subscription};
use clock::Clock;
use futures::StreamExt;
use support::nats::{NatsConfig, NatsServer, current_program};
use support::requirement;

/// Far more than anything here takes: only a test that fails waits so long.
const LIMIT: Duration = Duration::from_secs(20);

/// Connections to one bus.
pub struct Bench {
    kind: Kind,
    bus: BusRef,
    other: BusRef,
}

enum Kind {
    Memory(MemoryBus),
    Nats { _server: NatsServer },
}

impl Bench {
    pub fn memory() -> Self {
        let bus = MemoryBus::new(Clock::host());
        let other = bus.connect();
        Self { kind: Kind::Memory(bus.clone()), bus: Arc::new(bus), other: Arc::new(other) }
    }

    /// None where there is no server and that is allowed.
    pub async fn nats() -> Option<Self> {
        requirement::met(current_program())?;
        let server = NatsServer::start(NatsConfig::default());
        let (bus, other) = (connected(&server).await, connected(&server).await);
        Some(Self { kind: Kind::Nats { _server: server }, bus, other })
    }

    /// A connection.
    pub fn bus(&self) -> &BusRef {
        &self.bus
    }

    /// Another connection.
    pub fn other(&self) -> &BusRef {
        &self.other
    }

    pub fn is_memory(&self) -> bool {
        matches!(self.kind, Kind::Memory(_))
    }

    /// Loses a bucket as when its server's store is wiped.
    pub async fn lose_bucket(&self, name: &str) {
        match &self.kind {
            Kind::Memory(bus) => bus.lose_bucket(name),
            Kind::Nats { .. } => {
                let delete = Message::new(format!("$JS.API.STREAM.DELETE.KV_{name}"), "");
                let answer = self.bus.request(delete, LIMIT).await.unwrap();
                assert!(!answer.payload.windows(7).any(|part| part == b"\"error\""), "{answer:?}");
            }
        }
    }
}

async fn connected(server: &NatsServer) -> BusRef {
    let options = NatsOptions { urls: Some(server.url()), ..NatsOptions::default() };
    let bus = NatsBus::connect(options).await.unwrap();
    bus.wait_connected(LIMIT).await.unwrap();
    Arc::new(bus)
}

/// Waits, but not for ever.
pub async fn within<T>(waiting: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, waiting).await.expect("what is waited for comes in time")
}

/// The next message of a subscription.
pub async fn next(subscription: &mut Subscription) -> Message {
    within(subscription.next()).await.expect("the subscription goes on")
}

/// The next change of a watch.
pub async fn change(watch: &mut EntryWatch) -> EntryChange {
    within(watch.next()).await.expect("the watch goes on")
}

/// Everything up to the end of a stream.
pub async fn rest<T>(stream: impl futures::Stream<Item = T>) -> Vec<T> {
    within(stream.collect()).await
}

/// Returns when all that this connection has published before has been delivered to its own subscriptions.
pub async fn settle(bus: &BusRef) {
    drop(bus.subscribe("settle", None).await.unwrap());
}

/// Sends a text.
pub async fn publish(bus: &BusRef, subject: &str, text: &str) {
    bus.publish(Message::new(subject, text.to_owned())).await.unwrap();
}

/// The payload as text.
pub fn text(message: &Message) -> &str {
    std::str::from_utf8(&message.payload).unwrap()
}

/// A bucket whose keys may expire.
pub fn bucket(name: &str) -> BucketSpec {
    let marker_ttl = Some(Duration::from_secs(2));
    BucketSpec { name: name.to_owned(), marker_ttl, max_bytes: None, republish_to: None }
}
