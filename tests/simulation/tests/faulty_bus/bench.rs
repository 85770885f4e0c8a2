//! The test bench of the bus suite: two connections through a network without faults.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bus::memory::MemoryBus;
use bus::{BucketSpec, BusRef, Message, Subscription};
use clock::{Clock, Random};
use futures::StreamExt as _;

use super::faulty_network::FaultyNetwork;
use super::latency::ONE_WAY;

/// The longest a test waits, far more than any step takes.
const LIMIT: Duration = Duration::from_secs(20);

pub(crate) struct Bench {
    hub: MemoryBus,
    bus: BusRef,
    other: BusRef,
}

impl Bench {
    pub(crate) fn fair() -> Self {
        let hub = MemoryBus::new(Clock::host());
        let network = FaultyNetwork::new(ONE_WAY, Random::seeded(1), Clock::host());
        let (bus, other) = (network.over(hub.clone(), 1), network.over(hub.connect(), 2));
        Self { hub, bus: Arc::new(bus), other: Arc::new(other) }
    }

    pub(crate) fn bus(&self) -> &BusRef {
        &self.bus
    }

    pub(crate) fn other(&self) -> &BusRef {
        &self.other
    }

    /// A subscription of the other connection. Both use one hub, so it is active at once.
    pub(crate) async fn other_receives(&self, subject: &str) -> Subscription {
        self.other.subscribe(subject, None).await.unwrap()
    }

    pub(crate) fn is_memory(&self) -> bool {
        true
    }

    pub(crate) async fn lose_bucket(&self, name: &str) {
        self.hub.lose_bucket(name);
    }
}

pub(crate) async fn within<T>(waiting: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, waiting).await.expect("the wait ends in time")
}

pub(crate) async fn next(subscription: &mut Subscription) -> Message {
    within(subscription.next()).await.expect("the subscription goes on")
}

pub(crate) async fn rest<T>(stream: impl futures::Stream<Item = T>) -> Vec<T> {
    within(stream.collect()).await
}

pub(crate) async fn settle(bus: &BusRef) {
    drop(bus.subscribe("settle", None).await.unwrap());
}

pub(crate) async fn publish(bus: &BusRef, subject: &str, text: &str) {
    bus.publish(Message::new(subject, text.to_owned())).await.unwrap();
}

pub(crate) fn text(message: &Message) -> &str {
    std::str::from_utf8(&message.payload).unwrap()
}

pub(crate) fn bucket(name: &str) -> BucketSpec {
    let marker_ttl = Some(Duration::from_secs(2));
    BucketSpec { name: name.to_owned(), marker_ttl, max_bytes: None, forgets_oldest: false, republish_to: None }
}
