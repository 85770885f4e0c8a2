//! Whether the services of one agent bypass the bus, as `bus.local_delivery` sets it.
#![allow(clippy::disallowed_methods, reason = "tasks of a test")]

use std::collections::BTreeSet;
use std::time::Duration;

use bus::nats::{NatsBus, NatsOptions};
use bus::{Message, Messaging as _};
use e2e::{Agent, Registry, Workplace};
use futures::StreamExt as _;
use memory_registry::MadeImage;
use support::nats::{NatsConfig, NatsServer, current_program};
use support::requirement::met;

/// A limit that no message reaches.
const LIMIT: Duration = Duration::from_secs(20);
/// The subject of a message that is sent after all messages of a command.
const END: &str = "end";

/// The `<service>.<verb>` of all commands to `n1` on the bus while `during` runs.
fn commands_on_the_bus(server: &NatsServer, during: impl FnOnce() + Send + 'static) -> BTreeSet<String> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        let bus = NatsBus::connect(NatsOptions { urls: Some(server.url()), ..NatsOptions::default() }).await.unwrap();
        bus.wait_connected(LIMIT).await.unwrap();
        let mut commands = bus.subscribe("fleetpull.v1.cmd.n1.>", None).await.unwrap();
        // The server has the subscription once this message has come back.
        let mut received = BTreeSet::new();
        let mut until_end = async || {
            bus.publish(Message::new(format!("fleetpull.v1.cmd.n1.{END}"), "")).await.unwrap();
            loop {
                let message = tokio::time::timeout(LIMIT, commands.next()).await.expect("it comes").expect("the bus is open");
                match message.subject.strip_prefix("fleetpull.v1.cmd.n1.").unwrap() {
                    END => return,
                    command => received.insert(command.to_owned()),
                };
            }
        };
        until_end().await;
        tokio::task::spawn_blocking(during).await.unwrap();
        until_end().await;
        received
    })
}

#[test]
fn without_local_delivery_each_message_of_a_pull_travels_over_the_bus() {
    if met(current_program()).is_none() {
        return;
    }
    let asked: &[&str] = &["pull-coordinator.ensure"];
    let others: &[&str] =
        &["backoff-tracker.check", "backoff-tracker.report", "event-recorder.record", "throttler.acquire", "throttler.release"];
    for (local_delivery, expected) in [("true", asked.to_vec()), ("false", [others, asked].concat())] {
        let (server, registry) = (NatsServer::start(NatsConfig::default()), Registry::new());
        registry.add_image("shop/web", "v1", &MadeImage::of_layers([4_000]));
        // Sharing would add messages of its own.
        let place = Workplace::new().with("FLEETPULL_BUS_LOCAL_DELIVERY", local_delivery).with("FLEETPULL_FLEET_SHARE", "off");
        let agent = Agent::start(&place, "n1", &["--nats", &server.url()]).ready();
        agent.until_state("it has the bus", |state| state == "ok");
        let (url, image) = (server.url(), registry.image("shop/web:v1"));
        let command = place.command(&["pull", "--node", "n1", "-q", "--nats", &url, &image]);
        let received = commands_on_the_bus(&server, move || {
            let (status, _, stderr) = e2e::Started::of(command).wait();
            assert_eq!(status, 0, "{stderr}");
        });
        let received: BTreeSet<&str> = received.iter().map(String::as_str).collect();
        let missing: Vec<_> = expected.iter().filter(|command| !received.contains(*command)).collect();
        assert!(missing.is_empty(), "local_delivery = {local_delivery}: {missing:?} is not in {received:?}");
        let inner = received.iter().filter(|command| others.contains(command)).count();
        assert_eq!(inner, expected.len() - 1, "local_delivery = {local_delivery}: {received:?}");
        drop(agent);
    }
}
