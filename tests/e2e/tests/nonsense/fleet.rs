//! Two honest agents, their bus, and a registry.

use contract::messages::agent::CountAll;
use contract::messages::backoff_tracker::{BackoffEntry, ListBackoffs};
use e2e::{Agent, Registry, Workplace, until};
use memory_registry::MadeImage;
use serde_json::Value;
use support::nats::{NatsConfig, NatsServer};

/// The time of a standing pull, longer than any test here takes.
pub(crate) const LONG: &str = "10m";

/// Two agents that know each other.
pub(crate) struct Honest<'a> {
    pub(crate) server: NatsServer,
    pub(crate) registry: Registry,
    pub(crate) agents: Vec<Agent<'a>>,
}

impl<'a> Honest<'a> {
    pub(crate) fn start(place: &'a Workplace) -> Self {
        let (server, registry) = (NatsServer::start(NatsConfig::default()), Registry::new());
        registry.add_image("shop/web", "v1", &MadeImage::of_layers([4_000]));
        let agents = ["n1", "n2"].map(|node| Agent::start(place, node, &["--nats", &server.url()]));
        let agents: Vec<_> = agents.into_iter().map(Agent::ready).collect();
        for agent in &agents {
            until("they know each other", || (count(agent, "presence_alive") == 2).then_some(()));
            until("the node shares over the bus", || (count(agent, "shared_alone") == 0).then_some(()));
        }
        Self { server, registry, agents }
    }

    /// The row of one pull on a node.
    pub(crate) fn pull(&self, node: usize, image: &str, status: i32) -> Value {
        self.agents[node].asked(&["pull", &self.registry.image(image), "-o", "json"]).expect(status).object()
    }

    /// The row of a pull on a node that may wait long for its permit.
    pub(crate) fn pull_waiting(&self, node: usize, image: &str) -> Value {
        self.agents[node].asked(&["pull", &self.registry.image(image), "--wait", LONG, "-o", "json"]).expect(0).object()
    }

    /// The shared entry of an image that a node has; none if there is none.
    pub(crate) fn shared(&self, node: usize, image: &str) -> Option<BackoffEntry> {
        let text = format!("image {}", self.registry.image(image));
        let entries = self.agents[node].ask(&ListBackoffs::default()).entries;
        entries.into_iter().find(|entry| entry.is_shared() && entry.key_parts.to_string() == text)
    }
}

/// One of an agent's counters.
pub(crate) fn count(agent: &Agent<'_>, name: &str) -> u64 {
    agent.ask(&CountAll {}).counters.get(name).copied().unwrap_or_default()
}
