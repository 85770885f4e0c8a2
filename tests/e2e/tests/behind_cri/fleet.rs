//! A fleet of agents, each on the socket of a CRI service.

use std::time::Duration;

use e2e::{Agent, Started, Watch, Workplace, until, until_within};
use serde_json::Value;
use support::nats::{NatsConfig, NatsServer};

use super::case::{Case, OUTAGE};

/// The time of the standing pull: longer than any case takes.
const STANDING_PULL: &str = "10m";
/// A limit for the last read of the failures.
const PATIENCE: Duration = Duration::from_secs(60);
/// The time from the end of a back-off until all nodes have the image: a node that has failed leaves the next attempt to others for up to 2
/// s; then it requests clearance and makes the attempt, and the others learn of it and pull.
const SERVED_AFTER_REST: Duration = Duration::from_secs(7);

/// Agents and their bus.
pub(crate) struct Fleet<'a> {
    pub(crate) place: &'a Workplace,
    pub(crate) server: NatsServer,
    agents: Vec<Agent<'a>>,
}

impl<'a> Fleet<'a> {
    /// Starts an agent on each of these sockets, and waits until they know each other.
    pub(crate) fn on(place: &'a Workplace, endpoints: &[String]) -> Self {
        let server = NatsServer::start(NatsConfig::default());
        let start = |(number, endpoint): (usize, &String)| {
            let name = format!("n{}", number + 1);
            Agent::start(place, &name, &["--nats", &server.url(), "--runtime", "cri", "--runtime-endpoint", endpoint])
        };
        let agents: Vec<_> = endpoints.iter().enumerate().map(start).collect();
        let agents: Vec<_> = agents.into_iter().map(Agent::ready).collect();
        let last = agents.last().expect("a fleet has nodes");
        until("all nodes of the fleet know each other", || (last.counter("presence_alive") == agents.len() as u64).then_some(()));
        Self { place, server, agents }
    }

    /// Starts a standing pull on every node; the command runs until the images are present.
    pub(crate) fn standing_pull(&self, image: &str, more: &[&str]) -> Started {
        let arguments = ["pull", "--all-nodes", "--wait", STANDING_PULL, "-o", "json", "--nats", &self.server.url(), image];
        self.place.start(&[&arguments, more].concat())
    }

    /// Waits until the command has a row of each node, all with these outcomes, and ends with status 0.
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

/// Asserts the limits of a case: how many pulls have failed by the end of the outage, and how soon all nodes are served afterwards.
pub(crate) fn outage(fleet: &Fleet<'_>, case: Case, image: &str, failed: impl Fn() -> usize, heal: impl FnOnce(), outcomes: &[&str]) {
    let began = Watch::start();
    let command = fleet.standing_pull(image, &[]);
    let mut failures = Vec::new();
    until_within("the outage is over", OUTAGE + PATIENCE, || {
        failures.resize(failed(), began.elapsed());
        (began.elapsed() >= OUTAGE).then_some(())
    });
    heal();
    // A pull may have failed between the last read and the healing.
    failures.resize(failed(), began.elapsed());
    let test_name = std::thread::current().name().unwrap_or_default().to_owned();
    eprintln!("{test_name}: {} failing pulls in {OUTAGE:?} (at most {}), at {failures:.1?}", failures.len(), case.failing_at_most());
    assert!((1..=case.failing_at_most()).contains(&failures.len()), "{test_name}: {} failing pulls", failures.len());
    // When the registry heals, the back-off of the last failure may have just begun.
    let due = failures[failures.len() - 1] + case.rests_at_most(failures.len()) + SERVED_AFTER_REST;
    fleet.all_served(command, due.saturating_sub(began.elapsed()), outcomes);
    eprintln!("{test_name}: all served at {:.1?}, due by {due:.1?}", began.elapsed());
}

/// The name of a test, its case and its function.
pub(crate) type NamedTest = (&'static str, Case, fn(Case));

/// Runs all tests at the same time, because each mostly waits; the panic names all that failed.
pub(crate) fn all_at_once(tests: &[NamedTest]) {
    let failed: Vec<String> = std::thread::scope(|scope| {
        let begin = |(name, case, test): NamedTest| {
            let name = format!("{name}, {case:?}");
            let thread = std::thread::Builder::new().name(name.clone()).spawn_scoped(scope, move || test(case));
            (name, thread.expect("a thread can be had"))
        };
        let all: Vec<_> = tests.iter().map(|test| begin(*test)).collect();
        all.into_iter().filter_map(|(name, thread)| thread.join().is_err().then_some(name)).collect()
    });
    assert!(failed.is_empty(), "failed: {failed:?}; the output of each is above");
}
