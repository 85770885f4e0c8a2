//! Servers that go and come back.

use std::time::Duration;

use bus::nats::NatsBus;
use bus::{BucketSpec, Bus, Entry, EntryChange, Message};
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
async fn a_server_that_goes_is_missed_and_found_again() {
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

fn put(key: &str, value: &str, revision: u64) -> EntryChange {
    EntryChange::Put(Entry { key: key.to_owned(), value: value.to_owned().into(), revision })
}

fn gone(key: &str, revision: u64) -> EntryChange {
    EntryChange::Gone { key: key.to_owned(), revision }
}

#[tokio::test]
async fn state_outlives_its_server_and_a_watch_tells_only_what_is_new() {
    let mut server = server!(NatsConfig::default());
    let bus = NatsBus::connect(urls(server.url())).await.unwrap();
    let mut changes = bus.health_changes();
    until_connected(&mut changes).await;
    let state = bus.bucket(&bucket()).await.unwrap();
    for key in ["a", "b", "c"] {
        state.put(key, "1".into(), None).await.unwrap();
    }
    let mut watch = state.watch("").await.unwrap();
    for expected in [put("a", "1", 1), put("b", "1", 2), put("c", "1", 3), EntryChange::Current] {
        assert_eq!(within(watch.next()).await.unwrap(), expected);
    }
    server.kill();
    until_disconnected(&mut changes).await;
    server.restart();
    until_connected(&mut changes).await;
    assert_eq!(state.get("a").await.unwrap().unwrap().revision, 1);
    // Changed before the watch has been looked at again.
    state.put("b", "2".into(), None).await.unwrap();
    state.delete("c", None).await.unwrap();
    for expected in [put("b", "2", 4), gone("c", 5)] {
        assert_eq!(within(watch.next()).await.unwrap(), expected);
    }
    state.put("d", "3".into(), None).await.unwrap();
    assert_eq!(within(watch.next()).await.unwrap(), put("d", "3", 6));
}

#[tokio::test]
async fn a_bucket_deleted_under_a_watch_is_noticed_without_a_new_connection() {
    let server = server!(NatsConfig::default());
    let bus = NatsBus::connect(urls(server.url())).await.unwrap();
    bus.wait_connected(LIMIT).await.unwrap();
    let state = bus.bucket(&bucket()).await.unwrap();
    state.put("a", "1".into(), None).await.unwrap();
    let mut watch = state.watch("").await.unwrap();
    for expected in [put("a", "1", 1), EntryChange::Current] {
        assert_eq!(within(watch.next()).await.unwrap(), expected);
    }
    bus.request(Message::new("$JS.API.STREAM.DELETE.KV_state", ""), LIMIT).await.unwrap();
    assert_eq!(within(watch.next()).await.unwrap(), gone("a", 0));
    state.put("a", "2".into(), None).await.unwrap();
    assert_eq!(within(watch.next()).await.unwrap(), put("a", "2", 1));
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
