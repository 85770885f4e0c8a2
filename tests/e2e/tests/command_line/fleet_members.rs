//! The list of nodes outlives the registrar: ten of thirty agents are killed, and every node still has its row.

use std::collections::{BTreeMap, BTreeSet};

use clock::Random;
use e2e::{Registry, Signal, Started, Workplace, until};
use memory_registry::MadeImage;
use serde_json::Value;
use support::nats::{NatsConfig, NatsServer, current_program};
use support::requirement::met;

const NODES: usize = 30;
const KILLED: usize = 10;
/// How often ten agents are killed and started again; `FLEET_DRAWS` sets another number.
const DRAWS: u64 = 3;
/// The log messages of an agent that becomes registrar, and of one that is no longer registrar.
const LEADS: &str = "this agent is the fleet's registrar";
const LEADS_NO_MORE: &str = "this agent is not the fleet's registrar any more";

struct Members {
    place: Workplace,
    agents: BTreeMap<String, Started>,
    _nats: NatsServer,
}

/// The zone of a node: every third node is in zone b.
fn zone_of(node: &str) -> &'static str {
    let number: usize = node.trim_start_matches('n').parse().unwrap();
    if number.is_multiple_of(3) { "b" } else { "a" }
}

impl Members {
    fn start() -> Option<Self> {
        met(current_program())?;
        let nats = NatsServer::start(NatsConfig::default());
        let place = Workplace::new().with("NATS_URL", nats.url());
        let mut members = Self { place, agents: BTreeMap::new(), _nats: nats };
        for number in 0..NODES {
            members.start_node(&format!("n{number:02}"));
        }
        members.until_all_answer();
        Some(members)
    }

    fn start_node(&mut self, node: &str) {
        let label = format!("zone={}", zone_of(node));
        let agent = self.place.start(&["run", "--node", node, "--store", node, "--label", &label, "--log-level", "info"]);
        self.agents.insert(node.to_owned(), agent);
    }

    fn until_all_answer(&self) {
        until("all agents answer", || {
            let answering = self.rows(&["nodes"]).1.iter().filter(|row| row["state"] == "ok").count();
            (answering == NODES).then_some(())
        });
    }

    /// Exit status and rows of a command.
    fn rows(&self, arguments: &[&str]) -> (i32, Vec<Value>) {
        let done = self.place.run(&[arguments, &["-o", "json"]].concat());
        (done.status, done.objects())
    }

    /// The registrar, by its own log.
    fn registrar(&self) -> Option<String> {
        let leads = |agent: &Started| {
            agent
                .stderr()
                .lines()
                .rfind(|line| line.contains(LEADS) || line.contains(LEADS_NO_MORE))
                .is_some_and(|line| line.contains(LEADS))
        };
        self.agents.iter().find(|(_, agent)| leads(agent)).map(|(node, _)| node.clone())
    }

    /// Kills these agents with SIGKILL.
    fn kill(&mut self, nodes: &BTreeSet<String>) {
        for node in nodes {
            self.agents[node].signal(Signal::Kill);
        }
        for node in nodes {
            let _ = self.agents.remove(node).unwrap().wait();
        }
    }
}

/// Draws ten nodes: the registrar if it is known, five of those that were started last, and any others.
fn draw(random: &mut Random, registrar: Option<String>, young: &BTreeSet<String>) -> BTreeSet<String> {
    let mut drawn: BTreeSet<String> = registrar.into_iter().chain(young.iter().take(KILLED / 2).cloned()).collect();
    while drawn.len() < KILLED {
        drawn.insert(format!("n{:02}", random.word() % NODES as u64));
    }
    drawn
}

/// Checks that each node has one row, and that `is_left_out` is true exactly for the killed nodes.
fn check(what: &str, rows: &[Value], meant: &BTreeSet<String>, killed: &BTreeSet<String>, is_left_out: impl Fn(&Value) -> bool) {
    let node = |row: &Value| row["node"].as_str().unwrap().to_owned();
    let named: BTreeSet<String> = rows.iter().map(node).collect();
    assert_eq!((rows.len(), &named), (meant.len(), meant), "{what}: a row for each node");
    let left_out: BTreeSet<String> = rows.iter().filter(|row| is_left_out(row)).map(node).collect();
    assert_eq!(left_out, killed.intersection(meant).cloned().collect(), "{what}: {rows:?}");
}

#[test]
fn every_node_has_its_row_whichever_ten_of_thirty_were_killed() {
    let Some(mut members) = Members::start() else { return };
    let registry = Registry::new();
    registry.add_image("shop/web", "v1", &MadeImage::of_layers([5_000]));
    let image = registry.image("shop/web:v1");
    let all: BTreeSet<String> = members.agents.keys().cloned().collect();
    let in_a: BTreeSet<String> = all.iter().filter(|node| zone_of(node) == "a").cloned().collect();
    let draws = std::env::var("FLEET_DRAWS").map_or(DRAWS, |text| text.parse().unwrap());
    let mut young = all.clone();
    for number in 0..draws {
        // Every third draw takes any nodes, the others the registrar and nine more.
        let registrar = if number % 3 == 2 { None } else { Some(until("one is registrar", || members.registrar())) };
        let killed = draw(&mut Random::seeded(number), registrar, &young);
        members.kill(&killed);
        let failed = |row: &Value| row["outcome"] == "failed";
        let (status, rows) = members.rows(&["pull", &image, "--all-nodes"]);
        check("pull --all-nodes", &rows, &all, &killed, failed);
        assert_eq!(status, 3, "draw {number}: {rows:?}");
        let (status, rows) = members.rows(&["pull", &image, "-l", "zone=a"]);
        check("pull -l", &rows, &in_a, &killed, failed);
        assert_eq!(status, 3, "draw {number}: {rows:?}");
        let (status, rows) = members.rows(&["pull", &image, "--all-nodes", "--dry-run"]);
        check("pull --dry-run", &rows, &all, &killed, |row| !row["error"].is_null());
        assert_eq!(status, 3, "draw {number}: {rows:?}");
        let silent = |row: &Value| row["state"] == "silent";
        check("nodes", &members.rows(&["nodes"]).1, &all, &killed, silent);
        check("nodes -l", &members.rows(&["nodes", "-l", "zone=a"]).1, &in_a, &killed, silent);
        let unanswered = members.place.run(&["pulls", "--node", killed.first().unwrap()]).expect(1);
        assert!(unanswered.stderr.contains("known to the fleet, but its agent does not answer; last seen "), "{unanswered}");
        for node in &killed {
            members.start_node(node);
        }
        members.until_all_answer();
        young = killed;
    }
}
