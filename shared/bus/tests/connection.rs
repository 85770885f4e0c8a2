//! Connecting to real nats-servers as in production, and the errors if that fails.
//!
//! Checks that connecting returns at once; TLS with a private authority and client certificates; logins by password, token, credentials
//! file, nkey and context; a clear error for each mistake; work without a server, and its return.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod failures;
mod far_away;
mod logins;
mod options;
mod reconnecting;
mod refusals;
mod tls;

use std::time::Duration;

use bus::nats::{NatsBus, NatsOptions};
use bus::{BusError, BusHealth, HealthChanges, Message, Messaging};
use futures::StreamExt;

/// The time limit of a step, far longer than any takes.
const LIMIT: Duration = Duration::from_secs(20);

/// A real server; ends the test if there is none and this is allowed.
macro_rules! server {
    ($config:expr) => {
        match support::requirement::met(support::nats::current_program()) {
            Some(_) => support::nats::NatsServer::start($config),
            None => return,
        }
    };
}
pub(crate) use server;

fn urls(urls: impl Into<String>) -> NatsOptions {
    NatsOptions { urls: Some(urls.into()), ..NatsOptions::default() }
}

/// Connects, and checks that a message arrives.
async fn works(options: NatsOptions) {
    let bus = NatsBus::connect(options).await.unwrap();
    bus.wait_connected(LIMIT).await.unwrap();
    assert_eq!(bus.health(), BusHealth::Connected);
    passes_a_message(&bus).await;
}

async fn passes_a_message(bus: &NatsBus) {
    let mut subscription = bus.subscribe("hello", None).await.unwrap();
    bus.publish(Message::new("hello", "world")).await.unwrap();
    assert_eq!(within(subscription.next()).await.unwrap().payload, "world");
}

/// Waits until the bus reports why it is not connected, in words with all of these parts; returns the words.
async fn reported_reason(bus: &NatsBus, parts: &[&str]) -> String {
    let fits = |reason: &str| parts.iter().all(|part| reason.contains(part));
    let mut changes = bus.health_changes();
    let mut others = Vec::new();
    let waiting = async {
        loop {
            match changes.next().await.expect("the bus goes on") {
                BusHealth::Disconnected { reason } | BusHealth::Degraded { reason, .. } if fits(&reason) => return reason,
                other => others.push(other),
            }
        }
    };
    match tokio::time::timeout(LIMIT, waiting).await {
        Ok(reason) => reason,
        Err(_) => panic!("no reason contains {parts:?}, but: {others:?}"),
    }
}

async fn until_connected(changes: &mut HealthChanges) {
    while within(changes.next()).await.expect("the bus goes on") != BusHealth::Connected {}
}

async fn until_disconnected(changes: &mut HealthChanges) {
    while !matches!(within(changes.next()).await, Some(BusHealth::Disconnected { .. })) {}
}

async fn within<T>(waiting: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, waiting).await.expect("what is waited for comes in time")
}

fn is_disconnected<T>(result: &Result<T, BusError>) -> bool {
    matches!(result, Err(BusError::Disconnected { .. }))
}
