//! A JetStream cluster of three nats-servers.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::held_port::HeldPort;

use super::{Member, NatsConfig, NatsServer};

/// The servers of a cluster: the smallest number of which one can fail.
const SERVERS: usize = 3;

/// The longest until the cluster is complete: servers elect a new leader after at most 9 s, and again if the vote was split.
const WHOLE_WITHIN: Duration = Duration::from_secs(60);

/// The time between two checks.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A cluster of three nats-servers; killed when dropped.
pub struct NatsCluster {
    servers: Vec<NatsServer>,
    /// The ports on which the servers listen for each other.
    _routes: Vec<HeldPort>,
}

impl NatsCluster {
    /// Starts three servers with this configuration and waits until they form a cluster with a leader.
    ///
    /// # Panics
    /// When no suitable nats-server is found or the servers form no cluster: the text explains what to do.
    #[must_use]
    pub fn start(config: &NatsConfig) -> Self {
        let ports: Vec<HeldPort> = (0..SERVERS).map(|_| HeldPort::any()).collect();
        let routes: Vec<u16> = ports.iter().map(|port| port.address().port()).collect();
        let start = |number| {
            let member = Member { name: name(number), port: routes[number], routes: routes.clone() };
            NatsServer::start(NatsConfig { member: Some(member), ..config.clone() })
        };
        let cluster = Self { servers: (0..SERVERS).map(start).collect(), _routes: ports };
        cluster.until_whole();
        cluster
    }

    /// How many servers there are, running or not.
    #[must_use]
    pub fn size(&self) -> usize {
        self.servers.len()
    }

    /// The URLs of all servers, beginning with server `first` and wrapping around.
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

    /// Kills a server, like a crash.
    pub fn kill(&mut self, number: usize) {
        self.servers[number].kill();
    }

    /// Shuts a server down: the others learn of its end at once.
    pub fn stop(&mut self, number: usize) {
        self.servers[number].stop();
    }

    /// Starts a server again with its stored data.
    pub fn restart(&mut self, number: usize) {
        self.servers[number].restart();
    }

    /// Which server leads a stream.
    #[must_use]
    pub fn leader_of(&self, stream: &str) -> Option<usize> {
        (0..SERVERS).find(|number| {
            let answer = self.ask(*number, "/jsz?accounts=true&streams=true");
            let accounts = answer["account_details"].as_array().into_iter().flatten();
            let mut streams = accounts.flat_map(|account| account["stream_detail"].as_array().into_iter().flatten());
            streams.any(|known| known["name"] == stream && known["cluster"]["leader"] == name(*number))
        })
    }

    /// Waits until all three are part of the cluster, and it has a leader that all three know.
    ///
    /// # Panics
    /// When that takes longer than `WHOLE_WITHIN`.
    #[expect(clippy::disallowed_methods, reason = "real servers take real time")]
    pub fn until_whole(&self) {
        let began = Instant::now();
        loop {
            let answers: Vec<Value> = (0..SERVERS).map(|number| self.ask(number, "/jsz")["meta_cluster"].take()).collect();
            if is_whole(&answers) {
                return;
            }
            assert!(began.elapsed() < WHOLE_WITHIN, "three nats-servers are no cluster within {WHOLE_WITHIN:?}: {answers:?}");
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// The monitoring answer of a server; null if it does not answer.
    fn ask(&self, number: usize, path: &str) -> Value {
        self.servers[number].monitoring().map(|monitoring| monitoring.ask(path)).unwrap_or_default()
    }
}

/// Whether the leader sees both others as current, and all three know the leader.
fn is_whole(answers: &[Value]) -> bool {
    let leader = answers.iter().zip(0..).find(|(answer, number)| answer["leader"] == name(*number));
    let Some((leader, number)) = leader else { return false };
    let others = leader["replicas"].as_array().map(Vec::as_slice).unwrap_or_default();
    let well = |peer: &Value| peer["current"] == true && peer["offline"] != true;
    others.len() == SERVERS - 1 && others.iter().all(well) && answers.iter().all(|answer| answer["leader"] == name(number))
}

fn name(number: usize) -> String {
    format!("nats-{}", number + 1)
}
