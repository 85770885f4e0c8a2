//! Servers that stop and come back.

use std::time::Duration;

use bus::nats::NatsBus;
use bus::{BucketSpec, Bus, BusError, BusHealth, Message, Messaging, SharedState};
use futures::StreamExt;
use support::nats::NatsConfig;

use super::{LIMIT, is_disconnected, passes_a_message, server, until_connected, until_disconnected, urls, within, works};

#[tokio::test]
async fn a_server_that_comes_later_is_found() {
    let mut server = server!(NatsConfig::default());
    server.kill();
    let bus = NatsBus::connect(urls(server.url())).await.unwrap();
    let mut early = bus.subscribe("news", None).await.unwrap();
    let mut changes = bus.health_changes();
    until_disconnected(&mut changes).await;
    server.restart();
    until_connected(&mut changes).await;
    passes_a_message(&bus).await;
    bus.publish(Message::new("news", "good")).await.unwrap();
    assert_eq!(within(early.next()).await.unwrap().payload, "good", "a subscription made before counts");
}

#[tokio::test]
async fn client_reconnects_after_server_restart() {
    let mut server = server!(NatsConfig::default());
    let bus = NatsBus::connect(urls(server.url())).await.unwrap();
    let mut changes = bus.health_changes();
    until_connected(&mut changes).await;
    let mut subscription = bus.subscribe("news", None).await.unwrap();
    server.kill();
    until_disconnected(&mut changes).await;
    assert!(is_disconnected(&bus.publish(Message::new("news", "lost")).await));
    assert!(is_disconnected(&within(bus.request(Message::new("news", ""), Duration::from_secs(3_600))).await));
    server.restart();
    until_connected(&mut changes).await;
    bus.publish(Message::new("news", "new")).await.unwrap();
    assert_eq!(within(subscription.next()).await.unwrap().payload, "new", "what was refused is not sent later");
}

#[tokio::test]
async fn another_server_is_taken_when_the_first_is_dead() {
    let server = server!(NatsConfig::default());
    works(urls(format!("nats://127.0.0.1:1,{}", server.url()))).await;
}

#[tokio::test]
async fn another_server_is_taken_when_the_connected_one_dies() {
    let mut servers = [server!(NatsConfig::default()), server!(NatsConfig::default())];
    let both = servers.iter().map(|server| server.url()).collect::<Vec<_>>().join(",");
    let bus = NatsBus::connect(urls(both)).await.unwrap();
    let mut changes = bus.health_changes();
    for dying in 0..2 {
        until_connected(&mut changes).await;
        passes_a_message(&bus).await;
        servers[dying].kill();
        servers[1 - dying].restart();
    }
    until_connected(&mut changes).await;
    passes_a_message(&bus).await;
}

fn bucket() -> BucketSpec {
    BucketSpec {
        name: "state".to_owned(),
        marker_ttl: Some(Duration::from_secs(60)),
        max_bytes: None,
        forgets_oldest: false,
        republish_to: None,
    }
}

#[tokio::test]
async fn state_outlives_its_server() {
    let mut server = server!(NatsConfig::default());
    let bus = NatsBus::connect(urls(server.url())).await.unwrap();
    let mut changes = bus.health_changes();
    until_connected(&mut changes).await;
    let state = bus.bucket(&bucket()).await.unwrap();
    for key in ["a", "b", "c"] {
        state.put(key, "1".into(), None).await.unwrap();
    }
    server.kill();
    until_disconnected(&mut changes).await;
    server.restart();
    until_connected(&mut changes).await;
    assert_eq!(state.get("a").await.unwrap().unwrap().revision, 1);
    assert_eq!(state.put("b", "2".into(), None).await, Ok(4), "revisions go on");
}

#[tokio::test]
async fn dropping_the_bus_ends_its_attempts() {
    let mut server = server!(NatsConfig::default());
    let bus = NatsBus::connect(urls(server.url())).await.unwrap();
    let mut changes = bus.health_changes();
    until_connected(&mut changes).await;
    server.kill();
    until_disconnected(&mut changes).await;
    drop(bus);
    drop(within(changes.collect::<Vec<_>>()).await);
}

#[tokio::test]
async fn a_suspended_bus_is_disconnected_for_that_reason_and_has_its_subscriptions_afterwards() {
    let mut server = server!(NatsConfig::default());
    let (bus, other) = (NatsBus::connect(urls(server.url())).await.unwrap(), NatsBus::connect(urls(server.url())).await.unwrap());
    bus.wait_connected(LIMIT).await.unwrap();
    other.wait_connected(LIMIT).await.unwrap();
    let mut kept = bus.subscribe("hello", None).await.unwrap();
    let reason = "another one has the name".to_owned();
    bus.set_suspended(Some(reason.clone()));
    assert_eq!(bus.health(), BusHealth::Disconnected { reason: reason.clone() });
    assert_eq!(within(bus.publish(Message::new("hello", "refused"))).await, Err(BusError::Disconnected { reason: reason.clone() }));
    // The server learns of it too: soon the subject has no subscriber there.
    let until_nobody = async {
        while other.request(Message::new("hello", "early"), LIMIT / 20).await.err()
            != Some(BusError::NoResponders { subject: "hello".into() })
        {}
    };
    within(until_nobody).await;
    server.kill();
    server.restart();
    within(until_connected(&mut other.health_changes())).await;
    let other_reason = "yet another one has it".to_owned();
    bus.set_suspended(Some(other_reason.clone()));
    assert_eq!(bus.health(), BusHealth::Disconnected { reason: other_reason });
    bus.set_suspended(None);
    bus.wait_connected(LIMIT).await.unwrap();
    bus.publish(Message::new("hello", "late")).await.unwrap();
    while within(kept.next()).await.unwrap().payload != "late" {}
    bus.set_suspended(Some(reason));
    within(bus.drain()).await;
}
