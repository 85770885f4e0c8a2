//! Three agents on a real nats-server, for tests that use them as an operator does.

use std::collections::{BTreeMap, BTreeSet};

use e2e::{Finished, Signal, Started, Workplace, until};
use serde_json::Value;
use support::nats::{NatsConfig, NatsServer, current_program};
use support::requirement::met;

use super::common::check_row;

pub(crate) const NODES: [&str; 3] = ["n1", "n2", "n3"];

/// The label of each node: n3 is in another zone.
fn label_of(node: &str) -> &'static str {
    if node == "n3" { "zone=b" } else { "zone=a" }
}

fn start(place: &Workplace, node: &str) -> Started {
    place.start(&["run", "--node", node, "--store", node, "--label", label_of(node), "--log-level", "debug"])
}

/// Three agents and their server.
pub(crate) struct Fleet {
    pub(crate) nats: NatsServer,
    pub(crate) place: Workplace,
    pub(crate) agents: BTreeMap<&'static str, Started>,
}

impl Fleet {
    /// Starts three agents, with more environment variables for them and the commands; none if there is no nats-server.
    pub(crate) fn start(variables: &[(&str, &str)]) -> Option<Self> {
        met(current_program())?;
        let nats = NatsServer::start(NatsConfig::default());
        let place = variables.iter().fold(Workplace::new().with("NATS_URL", nats.url()), |place, (name, value)| place.with(name, *value));
        let agents = NODES.into_iter().map(|node| (node, start(&place, node))).collect();
        let fleet = Self { nats, place, agents };
        until("all agents answer", || (fleet.answering() == BTreeSet::from(NODES.map(str::to_owned))).then_some(()));
        Some(fleet)
    }

    /// Ends an agent and starts it again with the same state.
    pub(crate) fn restart(&mut self, node: &'static str, signal: Signal) {
        let agent = self.agents.remove(node).unwrap();
        agent.signal(signal);
        let _ = agent.wait();
        self.agents.insert(node, start(&self.place, node));
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Finished {
        self.place.run(arguments)
    }

    pub(crate) fn rows(&self, arguments: &[&str], status: i32) -> Vec<Value> {
        self.run(&[arguments, &["-o", "json"]].concat()).expect(status).objects()
    }

    /// The rows of a command with any exit status.
    pub(crate) fn rows_any(&self, arguments: &[&str]) -> Vec<Value> {
        self.run(&[arguments, &["-o", "json"]].concat()).objects()
    }

    /// The nodes that answer. A node that is known and silent has a row too, but is not among them.
    pub(crate) fn answering(&self) -> BTreeSet<String> {
        let rows = self.run(&["nodes", "-o", "json"]).objects();
        let answering = rows.iter().filter(|row| row["state"] != "silent");
        answering.map(|row| row["node"].as_str().unwrap().to_owned()).collect()
    }

    /// The URL of an agent's socket.
    pub(crate) fn socket(&self, node: &str) -> String {
        format!("unix://{}", self.place.path(node).join("state").join(node).join("agent.sock").display())
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            for (node, agent) in &self.agents {
                assert!(!agent.stderr().contains("panicked at"), "{node}: {}", agent.stderr());
            }
        }
    }
}

/// The node and the outcome of each row; checks every row.
pub(crate) fn outcomes(rows: &[Value]) -> BTreeMap<&str, String> {
    let outcomes: BTreeMap<&str, String> = rows.iter().map(|row| (row["node"].as_str().unwrap(), check_row(row))).collect();
    assert_eq!(outcomes.len(), rows.len(), "one row a node: {rows:?}");
    outcomes
}
