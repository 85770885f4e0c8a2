//! The messages of a node on its bus, as a plain client sees them.
//!
//! Contracts: with every message over the bus a pull is a request to each of the four services, in one trace; every event is published
//! once, as documented; a message of another version, or one that is malformed or too large, is refused with a text, and the services go
//! on; without a bus a node goes on alone. Tests that need no fault of a server run on both buses.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod alone;
mod bad_messages;
mod commands;
mod events;
mod oversized;

use std::sync::Arc;
use std::time::Duration;

use bus::memory::MemoryBus;
use bus::nats::{NatsBus, NatsOptions};
use bus::{BusRef, Message, Subscription};
use clock::Clock;
use futures::StreamExt as _;
use support::nats::{NatsConfig, NatsServer, current_program};
use support::requirement::met;

/// The longest time for a message on a busy machine before a test fails.
const PATIENCE: Duration = Duration::from_secs(30);

/// A bus with two connections: the node's and a plain client's.
pub(crate) struct Buses {
    pub(crate) node: BusRef,
    pub(crate) client: BusRef,
    pub(crate) server: Option<NatsServer>,
}

impl Buses {
    pub(crate) fn in_memory() -> Self {
        let bus = MemoryBus::new(Clock::host());
        Self { node: Arc::new(bus.connect()), client: Arc::new(bus), server: None }
    }

    /// A bus of a real server; none if there is no nats-server and tests may be skipped.
    pub(crate) async fn on_nats() -> Option<Self> {
        met(current_program())?;
        let server = NatsServer::start(NatsConfig::default());
        Some(Self { node: connect(&server).await, client: connect(&server).await, server: Some(server) })
    }

    /// Buses of both kinds.
    pub(crate) async fn each() -> Vec<Self> {
        let mut buses = vec![Self::in_memory()];
        buses.extend(Self::on_nats().await);
        buses
    }
}

async fn connect(server: &NatsServer) -> BusRef {
    let bus = NatsBus::connect(NatsOptions { urls: Some(server.url()), ..NatsOptions::default() }).await.unwrap();
    bus.wait_connected(PATIENCE).await.unwrap();
    Arc::new(bus)
}

/// The messages that arrive until the node's own connection has sent `end`: all messages that it sent before.
pub(crate) async fn until_end(buses: &Buses, arriving: &mut Subscription, end: &str) -> Vec<Message> {
    buses.node.publish(Message::new(end, "")).await.unwrap();
    let mut messages = Vec::new();
    loop {
        let message = tokio::time::timeout(PATIENCE, arriving.next()).await.expect("the end arrives").expect("the bus goes on");
        if message.subject == end {
            return messages;
        }
        messages.push(message);
    }
}
