//! A fleet of agents, each on the socket of a CRI service.

use std::time::Duration;

use e2e::{Agent, Started, Watch, Workplace, until, until_within};
use serde_json::Value;
use support::nats::{NatsConfig, NatsServer};

use crate::case::{Case, OUTAGE};

/// Longer than any case takes.
const WISH: &str = "10m";

/// Agents on their bus.
pub(crate) struct Fleet<'a> {
    pub(crate) place: &'a Workplace,
    pub(crate) server: NatsServer,
    agents: Vec<Agent<'a>>,
}

impl<'a> Fleet<'a> {
    /// An agent on each of these sockets. They know each other.
    pub(crate) fn on(place: &'a Workplace, endpoints: &[String]) -> Self {
        let server = NatsServer::start(NatsConfig::default());
        let start = |(number, endpoint): (usize, &String)| {
            let name = format!("n{}", number + 1);
            Agent::start(place, &name, &["--nats", &server.url(), "--runtime", "cri", "--runtime-endpoint", endpoint])
        };
        let agents: Vec<_> = endpoints.iter().enumerate().map(start).collect();
        let agents: Vec<_> = agents.into_iter().map(Agent::ready).collect();
        let last = agents.last().expect("a fleet has nodes");
        until("the fleet knows itself", || (last.counter("presence_alive") == agents.len() as u64).then_some(()));
        Self { place, server, agents }
    }

    /// A wish on every node, standing until it is fulfilled.
    pub(crate) fn wish(&self, image: &str, more: &[&str]) -> Started {
        let arguments = ["pull", "--all-nodes", "--wait", WISH, "-o", "json", "--nats", &self.server.url(), image];
        self.place.start(&[&arguments, more].concat())
    }

    /// Waits until the command has a row of each node, all of them there, and ends well.
    pub(crate) fn all_served(&self, command: Started, within: Duration, outcomes: &[&str]) {
        let rows = until_within("each node has its row", within, || {
            let rows: Vec<Value> = command.stdout().lines().map(|line| serde_json::from_str(line).expect("a row is JSON")).collect();
            (rows.len() >= self.agents.len()).then_some(rows)
        });
        assert!(rows.iter().all(|row| outcomes.iter().any(|outcome| row["outcome"] == *outcome)), "{rows:?}");
        let (status, ..) = command.wait();
        assert_eq!(status, 0);
    }
}

/// Holds a fleet against the bars of a case: how many pulls have failed by the end of the outage, and how soon all is well after it.
pub(crate) fn outage(fleet: &Fleet<'_>, case: Case, image: &str, failed: impl FnOnce() -> usize, heal: impl FnOnce(), outcomes: &[&str]) {
    let began = Watch::start();
    let command = fleet.wish(image, &[]);
    began.until(OUTAGE);
    let failed = failed();
    heal();
    let healed = Watch::start();
    let play = std::thread::current().name().unwrap_or_default().to_owned();
    eprintln!("{play}: {failed} failing pulls in {OUTAGE:?} (at most {})", case.failing_at_most());
    assert!((1..=case.failing_at_most()).contains(&failed), "{play}: {failed} failing pulls");
    fleet.all_served(command, case.served_within(), outcomes);
    eprintln!("{play}: all served {:.1?} after healing", healed.elapsed());
}

/// What happens to a fleet in a case, and its name.
pub(crate) type Play = (&'static str, Case, fn(Case));

/// Plays all of these at the same time, as each mostly waits; all that failed are named.
pub(crate) fn all_at_once(plays: &[Play]) {
    let failed: Vec<String> = std::thread::scope(|scope| {
        let begin = |(name, case, play): Play| {
            let name = format!("{name}, {case:?}");
            let thread = std::thread::Builder::new().name(name.clone()).spawn_scoped(scope, move || play(case));
            (name, thread.expect("a thread can be had"))
        };
        let all: Vec<_> = plays.iter().map(|play| begin(*play)).collect();
        all.into_iter().filter_map(|(name, thread)| thread.join().is_err().then_some(name)).collect()
    });
    assert!(failed.is_empty(), "failed: {failed:?}; what each said stands above");
}
