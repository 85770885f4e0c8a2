//! The agents of a fleet in NATS' services API, requested as by `nats micro`.

use std::collections::BTreeSet;
use std::time::Duration;

use bus::nats::{NatsBus, NatsOptions};
use bus::{Message, Messaging};
use contract::subject::SERVICES_API;
use e2e::{Registry, Workplace};
use futures::StreamExt;
use memory_registry::MadeImage;
use serde_json::Value;
use support::nats::{NatsConfig, NatsServer, current_program};
use support::requirement::met;

use e2e::Agent;

/// A limit that no answer reaches.
const LIMIT: Duration = Duration::from_secs(20);
/// The four services, and the agent itself.
const SERVICES: usize = 5;

/// Collects `answers` answers to one request, as a client that knows only the services API.
fn asked(server: &NatsServer, verb: &str, answers: usize) -> Vec<Value> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let bus = NatsBus::connect(NatsOptions { urls: Some(server.url()), ..NatsOptions::default() }).await.unwrap();
        bus.wait_connected(LIMIT).await.unwrap();
        let inbox = bus.subscribe("answers", None).await.unwrap();
        let mut question = Message::new(format!("{SERVICES_API}.{verb}"), "");
        question.reply_to = Some("answers".to_owned());
        bus.publish(question).await.unwrap();
        let answers: Vec<Message> = tokio::time::timeout(LIMIT, inbox.take(answers).collect()).await.expect("all answer");
        answers.iter().map(|answer| serde_json::from_slice(&answer.payload).unwrap()).collect()
    })
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_else(|| panic!("{field} of {value}"))
}

#[test]
fn every_service_of_every_node_answers() {
    if met(current_program()).is_none() {
        return;
    }
    let (server, registry, place) = (NatsServer::start(NatsConfig::default()), Registry::new(), Workplace::new());
    registry.add_image("shop/web", "v1", &MadeImage::of_layers([4_000]));
    let agents = ["n1", "n2"].map(|node| Agent::start(&place, node, &["--nats", &server.url()])).map(Agent::ready);
    let pings = asked(&server, "PING", SERVICES * agents.len());
    let found: BTreeSet<(&str, &str)> = pings.iter().map(|ping| (text(&ping["metadata"], "node"), text(ping, "name"))).collect();
    assert_eq!(found.len(), SERVICES * agents.len(), "{pings:?}");
    for agent in &agents {
        let instance = agent.described()["instance"].clone();
        assert_eq!(pings.iter().filter(|ping| ping["id"] == instance).count(), SERVICES, "{pings:?}");
    }

    let image = registry.image("shop/web:v1");
    let _ = place.run(&["pull", "--node", "n1", "-q", "--nats", &server.url(), &image]).expect(0);
    let stats = asked(&server, "STATS", SERVICES * agents.len());
    let ensured = |node: &str| -> u64 {
        let endpoints = stats
            .iter()
            .filter(|service| text(&service["metadata"], "node") == node)
            .flat_map(|service| service["endpoints"].as_array().unwrap().iter().filter(|endpoint| text(endpoint, "name") == "ensure"));
        endpoints.map(|endpoint| endpoint["num_requests"].as_u64().unwrap()).sum()
    };
    assert_eq!((ensured("n1"), ensured("n2")), (1, 0));
}
