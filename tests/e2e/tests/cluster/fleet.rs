//! A fleet on a cluster, with a registry that fails.

use std::time::Duration;

use contract::messages::backoff_tracker::ListBackoffs;
use e2e::{Agent, Registry, Started, Watch, Workplace, until_within};
use memory_registry::{Fault, MadeImage};
use support::nats::{NatsCluster, NatsConfig};

pub(crate) const NODES: usize = 6;
/// How long the registry answers 503.
const OUTAGE: Duration = Duration::from_secs(60);
/// The most failing requests in the outage if the bus works, whatever the size of the fleet.
pub(crate) const FAILING_AT_MOST: u64 = 18;
/// The longest time after healing until every node has the image, if the bus works.
pub(crate) const SERVED_WITHIN: Duration = Duration::from_secs(15);
/// The time of the standing pull: longer than any test takes.
const STANDING_PULL: &str = "10m";
/// The longest time until each agent knows all nodes: each agent reports to the registrar within 5 s.
const KNOWN_WITHIN: Duration = Duration::from_secs(30);

/// Agents, their bus and their registry.
pub(crate) struct Fleet<'a> {
    place: &'a Workplace,
    pub(crate) cluster: NatsCluster,
    pub(crate) registry: Registry,
    pub(crate) agents: Vec<Agent<'a>>,
    pub(crate) began: Watch,
}

impl<'a> Fleet<'a> {
    /// Starts a fleet whose nodes know each other, with a registry that answers 503. Each agent gets all servers, in a different order.
    pub(crate) fn begin(place: &'a Workplace) -> Self {
        let (cluster, registry) = (NatsCluster::start(&NatsConfig::default()), Registry::new());
        registry.add_image("shop/web", "v1", &MadeImage::of_layers([4_000]));
        registry.faults().add(Fault::answer("/v2/", 503, &[("content-type", "text/plain")], "upstream connect error"));
        let start = |node: usize| Agent::start(place, &name(node), &["--nats", &cluster.urls_from(node)]);
        let agents: Vec<_> = (0..NODES).map(start).collect();
        let agents: Vec<_> = agents.into_iter().map(Agent::ready).collect();
        // If the registrar has answered the last agent, it knows all agents.
        let last = &agents[NODES - 1];
        until_within("the fleet knows itself", KNOWN_WITHIN, || (last.counter("presence_alive") == NODES as u64).then_some(()));
        Self { place, cluster, registry, agents, began: Watch::start() }
    }

    /// Starts a standing pull on every node; the command runs until the images are present.
    pub(crate) fn standing_pull(&self) -> Started {
        let (urls, image) = (self.cluster.urls_from(0), self.registry.image("shop/web:v1"));
        self.place.start(&["pull", "--all-nodes", "--wait", STANDING_PULL, "-o", "json", "--nats", &urls, &image])
    }

    /// Waits for the end of the outage, and asserts the limit of failing requests.
    pub(crate) fn end_outage_with_at_most(&self, failing_at_most: u64) -> Watch {
        self.began.until(OUTAGE);
        let failing = self.registry.counts().failing;
        self.registry.faults().clear();
        print(&format!("{failing} failing requests in {OUTAGE:?} (at most {failing_at_most})"));
        assert!((1..=failing_at_most).contains(&failing), "{failing} failing requests");
        Watch::start()
    }

    /// Waits until the image is in each node's store.
    pub(crate) fn all_stored_within(&self, limit: Duration, healed: Watch) {
        for node in 0..NODES {
            let index = self.place.path(&format!("store-of-{}", name(node))).join("index.json");
            until_within(&format!("{} has the image", name(node)), limit.saturating_sub(healed.elapsed()), || {
                std::fs::read_to_string(&index).ok().filter(|index| index.contains("shop/web:v1")).map(|_| ())
            });
        }
        print(&format!("all served {:.1?} after healing", healed.elapsed()));
    }

    /// Waits until every agent reports that it has the bus.
    pub(crate) fn all_on_the_bus_within(&self, limit: Duration) {
        let watch = Watch::start();
        for agent in &self.agents {
            let has = || agent.state() == "ok" && agent.counter("shared_alone") == 0;
            until_within("an agent has the bus", limit.saturating_sub(watch.elapsed()), || has().then_some(()));
        }
        print(&format!("all on the bus after {:.1?}", watch.elapsed()));
    }

    /// Waits until the last node has a report of the first node, without a request of its own. Uses a new tag each time.
    pub(crate) fn shares_within(&self, limit: Duration) {
        let watch = Watch::start();
        let mut number = 0;
        until_within("one learns, another knows", limit, || {
            number += 1;
            let image = self.registry.image(&format!("shop/web:missing-{number}"));
            let _ = self.agents[0].asked(&["pull", &image, "-o", "json"]);
            let listed = self.agents[NODES - 1].ask(&ListBackoffs::default()).entries;
            listed.iter().any(|entry| entry.key_parts.image == image && entry.reporters == [name(0)]).then_some(())
        });
        print(&format!("one learns, another knows after {:.1?}", watch.elapsed()));
    }
}

pub(crate) fn name(node: usize) -> String {
    format!("n{node:02}")
}

pub(crate) fn print(what: &str) {
    eprintln!("{}: {what}", std::thread::current().name().unwrap_or_default());
}
