//! Three nats-servers that are one JetStream.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::held_port::HeldPort;

use super::{Member, NatsConfig, NatsServer};

/// Servers of a cluster: as many as can lose one.
const SERVERS: usize = 3;

/// A server that lost its leader elects another after nine seconds at the latest, and again if the vote was split.
const WHOLE_WITHIN: Duration = Duration::from_secs(60);

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A cluster of three nats-servers; killed when dropped.
pub struct NatsCluster {
    servers: Vec<NatsServer>,
    /// Where they listen for each other.
    _routes: Vec<HeldPort>,
}

impl NatsCluster {
    /// Starts three servers of this configuration and waits until they are one cluster with a leader.
    ///
    /// # Panics
    /// When no fit nats-server is found or they do not come together: the text says what to do.
    #[must_use]
    pub fn start(config: &NatsConfig) -> Self {
        let held: Vec<HeldPort> = (0..SERVERS).map(|_| HeldPort::any()).collect();
        let routes: Vec<u16> = held.iter().map(|port| port.address().port()).collect();
        let start = |number| {
            let member = Member { name: name(number), port: routes[number], routes: routes.clone() };
            NatsServer::start(NatsConfig { member: Some(member), ..config.clone() })
        };
        let cluster = Self { servers: (0..SERVERS).map(start).collect(), _routes: held };
        cluster.until_whole();
        cluster
    }

    /// How many servers there are, running or not.
    #[must_use]
    pub fn size(&self) -> usize {
        self.servers.len()
    }

    /// Where to connect: all servers, beginning with this one and going round.
    #[must_use]
    pub fn urls_from(&self, first: usize) -> String {
        let urls: Vec<String> = (0..SERVERS).map(|number| self.servers[(first + number) % SERVERS].url()).collect();
        urls.join(",")
    }

    /// One of the servers.
    #[must_use]
    pub fn server(&self, number: usize) -> &NatsServer {
        &self.servers[number]
    }

    /// Ends a server at once, as a crash does.
    pub fn kill(&mut self, number: usize) {
        self.servers[number].kill();
    }

    /// Ends a server in good order: the others know at once that it is gone.
    pub fn stop(&mut self, number: usize) {
        self.servers[number].stop();
    }

    /// Starts a server again, with what it has stored.
    pub fn restart(&mut self, number: usize) {
        self.servers[number].restart();
    }

    /// Which server leads a stream.
    #[must_use]
    pub fn leader_of(&self, stream: &str) -> Option<usize> {
        (0..SERVERS).find(|number| {
            let told = self.ask(*number, "/jsz?accounts=true&streams=true");
            let accounts = told["account_details"].as_array().into_iter().flatten();
            let mut streams = accounts.flat_map(|account| account["stream_detail"].as_array().into_iter().flatten());
            streams.any(|known| known["name"] == stream && known["cluster"]["leader"] == name(*number))
        })
    }

    /// Waits until all three are part of the cluster, and it has a leader that all three know.
    ///
    /// # Panics
    /// When that takes longer than it can.
    #[expect(clippy::disallowed_methods, reason = "real servers take real time")]
    pub fn until_whole(&self) {
        let began = Instant::now();
        loop {
            let told: Vec<Value> = (0..SERVERS).map(|number| self.ask(number, "/jsz")["meta_cluster"].take()).collect();
            if is_whole(&told) {
                return;
            }
            assert!(began.elapsed() < WHOLE_WITHIN, "three nats-servers are no cluster within {WHOLE_WITHIN:?}: {told:?}");
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// What a server says of itself; null of one that does not answer.
    fn ask(&self, number: usize, path: &str) -> Value {
        self.servers[number].monitoring().map(|monitoring| monitoring.ask(path)).unwrap_or_default()
    }
}

/// Whether the leader has heard of both others lately, and all know it.
fn is_whole(told: &[Value]) -> bool {
    let leader = told.iter().zip(0..).find(|(told, number)| told["leader"] == name(*number));
    let Some((leader, number)) = leader else { return false };
    let others = leader["replicas"].as_array().map(Vec::as_slice).unwrap_or_default();
    let well = |peer: &Value| peer["current"] == true && peer["offline"] != true;
    others.len() == SERVERS - 1 && others.iter().all(well) && told.iter().all(|told| told["leader"] == name(number))
}

fn name(number: usize) -> String {
    format!("nats-{}", number + 1)
}
