//! Accounts from `fleetpull nats-setup --accounts`, on a real nats-server.

mod callout;
mod files;
mod roles;
mod tokens;

use std::time::Duration;

use bus::nats::{NatsBus, NatsOptions};
use bus::{BusError, Message, Messaging as _};
use e2e::{Finished, Workplace, until};
use serde_json::Value;
use support::nats::{Authority, NatsConfig, NatsServer};

/// A limit that nothing here reaches on a busy machine.
const LIMIT: Duration = Duration::from_secs(10);
/// The folder below a home in which contexts are searched.
const FOLDER: &str = ".config";
const USERS: [&str; 10] = ["--node", "n1", "--node", "n2", "--operator", "operator", "--puller", "puller", "--viewer", "viewer"];

/// A server with generated accounts.
struct Fleet {
    place: Workplace,
    authority: Authority,
    server: NatsServer,
}

impl Fleet {
    /// Starts a server with these options of `nats-setup --accounts`, and a change of the server's configuration.
    fn start(more: &[&str], change: impl Fn(String) -> String) -> Self {
        let (place, authority) = (Workplace::new(), Authority::new("of the fleet"));
        let (certificate, key) = authority.issue("127.0.0.1");
        let paths = [certificate, key, authority.certificate(), place.path("store")].map(|path| path.display().to_string());
        let [certificate, key, ca, store] = paths.each_ref().map(String::as_str);
        let server_options = ["--server-cert", certificate, "--server-key", key, "--server-store", store, "--nats-ca", ca];
        let options = [&["nats-setup", "--accounts", FOLDER][..], &USERS, &server_options, more].concat();
        place.run(&options).expect(0);
        let read = |name: &str| std::fs::read_to_string(place.path(&format!("{FOLDER}/{name}"))).unwrap();
        let text = read("nats-server.conf").replace("include \"accounts.conf\"", &read("accounts.conf"));
        let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with("listen")).collect();
        let server = NatsServer::start(NatsConfig::default().without_jetstream().with(&change(lines.join("\n"))));
        // The server's address is known only now.
        let url = format!("tls://{}", server.address());
        place.run(&[&options[..], &["--nats", &url, "--force"]].concat()).expect(0);
        Self { place, authority, server }
    }

    fn run(&self, user: &str, arguments: &[&str]) -> Finished {
        self.place.run(&[arguments, &["--nats-context", user]].concat())
    }

    /// Creates the buckets and the stream.
    fn set_up(&self) {
        let rows = self.run("setup", &["nats-setup", "-o", "json"]).expect(0).objects();
        assert!(rows.iter().all(|row| row["state"] == "made"), "{rows:?}");
    }

    fn url(&self) -> String {
        format!("tls://{}", self.server.address())
    }

    fn ca(&self) -> String {
        self.authority.certificate().display().to_string()
    }

    async fn connect(&self, user: &str) -> NatsBus {
        let config_home = Some(self.place.path(FOLDER));
        connect(NatsOptions { context: Some(user.to_owned()), config_home, ..NatsOptions::default() }).await
    }

    /// The number of messages in the stream of events, by JetStream's API.
    async fn stored_events(&self) -> u64 {
        let asked = Message::new("$JS.API.STREAM.INFO.FLEETPULL_EVENTS", "");
        let answer = self.connect("setup").await.request(asked, LIMIT).await.unwrap();
        let info: Value = serde_json::from_slice(&answer.payload).unwrap();
        info["state"]["messages"].as_u64().unwrap_or_else(|| panic!("{info}"))
    }

    /// The server's log lines about messages and subscriptions that it did not permit.
    fn violations(&self) -> Vec<String> {
        self.server.log().lines().filter(|line| line.contains("Violation")).map(str::to_owned).collect()
    }
}

async fn connect(options: NatsOptions) -> NatsBus {
    let bus = NatsBus::connect(options).await.unwrap();
    bus.wait_connected(LIMIT).await.unwrap();
    bus
}

/// The subjects to which the server permits a message.
async fn let_through(bus: &NatsBus, subjects: &[String]) -> Vec<String> {
    let mut through = Vec::new();
    for subject in subjects {
        let asked = Message::new(subject.clone(), "x");
        match bus.request(asked, Duration::from_secs(2)).await {
            Err(BusError::Forbidden { subject: refused }) => assert_eq!(refused, *subject),
            _ => through.push(subject.clone()),
        }
    }
    through
}

/// Waits until the agents of these names report state `ok`.
fn are_well(fleet: &Fleet, names: &[&str]) {
    until("all agents are well", || {
        let nodes = fleet.run("viewer", &["nodes", "-o", "json"]).objects();
        let is_well = |name: &&str| nodes.iter().any(|node| node["node"] == **name && node["state"] == "ok");
        names.iter().all(is_well).then_some(())
    });
}
