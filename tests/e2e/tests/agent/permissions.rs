//! Agents with the logins of deploy/nats/accounts.conf: they share, and may not create or change the fleet's buckets.

use std::cell::RefCell;
use std::time::Duration;

use contract::messages::backoff_tracker::CountBackoffs;
use contract::messages::pull_coordinator::{EnsureImage, OutcomeKind};
use contract::messages::throttler::CountPermits;
use e2e::{Agent, Finished, Registry, Signal, Watch, Workplace, until, until_within};
use memory_registry::MadeImage;
use support::nats::{Accounts, NatsServer, current_program};
use support::requirement::met;

/// The longest time until an error is reported, and until a repaired bus is used.
const WITHIN: Duration = Duration::from_secs(10);
/// The most that the first pull waits for the bus.
const FIRST_WAITS_MS: u64 = 2_000;
const ADVICE: &str = "run `fleetpull nats-setup`";
const BUCKETS: usize = 8;
/// How often the services of an agent open a bucket or the stream: two services each use reports, leaders and members.
const OPENED: usize = 11;

/// A server with the example's accounts, and a workplace with a context for each user.
struct Fleet {
    accounts: Accounts,
    server: RefCell<NatsServer>,
    place: Workplace,
    registry: Registry,
}

impl Fleet {
    fn new() -> Self {
        let accounts = Accounts::new();
        let (server, place, registry) = (NatsServer::start(accounts.config()), Workplace::new(), Registry::new());
        for user in ["n1", "n2", "operator", "viewer", "setup"] {
            accounts.write_context(&place.path(".config"), user, &server.address());
        }
        for tag in 1..=4_u64 {
            registry.add_image("shop/web", &format!("v{tag}"), &MadeImage::of_layers([4_000 + tag]));
        }
        Self { accounts, server: RefCell::new(server), place, registry }
    }

    fn agent(&self, node: &str) -> Agent<'_> {
        Agent::start(&self.place, node, &["--nats-context", node]).ready()
    }

    fn run(&self, user: &str, arguments: &[&str]) -> Finished {
        self.place.run(&[arguments, &["--nats-context", user]].concat())
    }

    fn set_up(&self) {
        let rows = self.run("setup", &["nats-setup", "-o", "json"]).expect(0).objects();
        assert!(rows.len() == BUCKETS && rows.iter().all(|row| row["state"] == "made"), "{rows:?}");
    }

    fn image(&self, tag: &str) -> String {
        self.registry.image(&format!("shop/web:{tag}"))
    }

    /// Deletes the buckets, as if the server's disk was lost.
    fn lose_buckets(&self) {
        let mut server = self.server.borrow_mut();
        server.kill();
        self.accounts.wipe_store();
        server.restart();
    }

    /// The server's log lines about messages and subscriptions that it did not permit.
    fn violations(&self) -> Vec<String> {
        self.server.borrow().log().lines().filter(|line| line.contains("Violation")).map(str::to_owned).collect()
    }
}

fn pull(agent: &Agent<'_>, image: String) -> (OutcomeKind, u64) {
    let outcome = agent.ask(&EnsureImage { image, ..EnsureImage::default() });
    (outcome.outcome, outcome.waiting_ms)
}

fn are_sharing(agents: &[&Agent<'_>], within: Duration) {
    let watch = Watch::start();
    for agent in agents {
        until_within("the agent uses the bus", within.saturating_sub(watch.elapsed()), || {
            (agent.state() == "ok" && !agent.ask(&CountBackoffs {}).shared.alone).then_some(())
        });
    }
}

fn are_degraded(agents: &[&Agent<'_>]) {
    let watch = Watch::start();
    for agent in agents {
        until_within(&format!("the agent reports what to do: {}", agent.state()), WITHIN.saturating_sub(watch.elapsed()), || {
            Some(agent.state()).filter(|state| state.starts_with("degraded") && state.contains(ADVICE))
        });
    }
}

/// The warnings in an agent's log.
fn warnings(log: &str) -> Vec<&str> {
    log.lines().filter(|line| line.contains(" WARN ") || line.contains(" ERROR ")).collect()
}

#[test]
fn agents_wait_for_buckets_that_they_may_not_make_and_use_them_when_they_are_there() {
    if met(current_program()).is_none() {
        return;
    }
    let fleet = Fleet::new();
    let (n1, n2) = (fleet.agent("n1"), fleet.agent("n2"));
    let (outcome, waited) = pull(&n1, fleet.image("v1"));
    assert!(outcome == OutcomeKind::Pulled && waited <= FIRST_WAITS_MS, "{outcome:?} {waited} ms");
    are_degraded(&[&n1, &n2]);
    for agent in [&n1, &n2] {
        let log = agent.log_with(ADVICE);
        let warned = warnings(&log);
        assert!(warned.len() <= 3 && warned.iter().all(|line| line.contains(ADVICE)), "what to do is logged, and little else: {log}");
    }
    let asked = fleet.violations();
    assert!(
        asked
            .iter()
            .all(|line| line.contains("$JS.API.STREAM.CREATE.KV_fleetpull-") || line.contains("$JS.API.STREAM.CREATE.FLEETPULL_EVENTS")),
        "{asked:?}"
    );
    assert!((1..=2 * OPENED).contains(&asked.len()), "each service asks for each of its buckets once: {asked:?}");

    fleet.set_up();
    are_sharing(&[&n1, &n2], WITHIN);
    assert!(fleet.violations().len() <= 2 * OPENED, "{:?}", fleet.violations());
    assert_eq!(pull(&n2, fleet.image("v2")).0, OutcomeKind::Pulled);

    fleet.lose_buckets();
    are_degraded(&[&n1, &n2]);
    fleet.set_up();
    are_sharing(&[&n1, &n2], WITHIN);
}

#[test]
fn agents_that_may_change_no_bucket_pull_share_and_have_budgets_without_a_refusal() {
    if met(current_program()).is_none() {
        return;
    }
    let fleet = Fleet::new();
    fleet.set_up();
    let (n1, n2) = (fleet.agent("n1"), fleet.agent("n2"));
    are_sharing(&[&n1, &n2], WITHIN);
    let nodes = fleet.run("viewer", &["nodes", "-o", "json"]).expect(0).objects();
    assert!(nodes.len() == 2 && nodes.iter().all(|node| node["state"] == "ok"), "{nodes:?}");
    fleet.run("operator", &["pull", &fleet.image("v1"), "--all-nodes"]).expect(0);

    let led = || [&n1, &n2].map(|agent| agent.ask(&CountPermits {}).budgets_led);
    until("one of them leads the registry's budget", || (led().iter().sum::<u64>() == 1).then_some(()));

    // Each node finds that a tag is missing, and each learns that both have reported it.
    let missing = fleet.image("missing");
    for agent in [&n1, &n2] {
        assert_eq!(pull(agent, missing.clone()).0, OutcomeKind::Failed);
    }
    for node in ["n1", "n2"] {
        until(&format!("{node} knows that both report it"), || {
            let held = fleet.run("viewer", &["backoff", "list", "--node", node, "-o", "json"]).expect(0).objects();
            held.iter().any(|row| row["shared"] == true && row["reporter_count"] == 2).then_some(())
        });
    }
    fleet.run("operator", &["backoff", "clear", &missing]).expect(0);
    for (command, status) in [(&["budget", "list"][..], 0), (&["pulls"], 0), (&["events"], 0), (&["nodes", "n1"], 0)] {
        fleet.run("viewer", command).expect(status);
    }
    // One agent restarts and still has the entry.
    n2.signal(Signal::Terminate);
    assert_eq!(n2.end().status, 0);
    let n2 = fleet.agent("n2");
    are_sharing(&[&n1, &n2], WITHIN);

    assert_eq!(fleet.violations(), [""; 0], "no client has made a forbidden request");
    for agent in [&n1, &n2] {
        let log = agent.log_with("the bus is connected");
        assert_eq!(warnings(&log), [""; 0], "{log}");
    }
    let pulled = fleet.run("viewer", &["pull", &fleet.image("v2"), "--node", "n1"]);
    assert_ne!(pulled.status, 0, "a viewer lets nothing be pulled: {pulled}");
}
