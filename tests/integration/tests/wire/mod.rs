//! What a node says and hears on its bus, as a plain client sees it.
//!
//! Contracts: with every message over the bus a pull is a request to each of the four services, in one trace; every event is
//! published once, as documented; a message that is of another version, malformed or too large is refused in words, and the
//! services go on; without a bus a node goes on alone. Everything that needs no fault of a server runs on both buses.
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

/// How long something that is on its way may take on a busy machine before a test gives up.
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

    /// None where there is no nats-server and that is allowed.
    pub(crate) async fn on_nats() -> Option<Self> {
        met(current_program())?;
        let server = NatsServer::start(NatsConfig::default());
        Some(Self { node: connect(&server).await, client: connect(&server).await, server: Some(server) })
    }

    /// Both kinds.
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

/// What arrives until the node's own connection has sent `end`: all that it sent before.
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
