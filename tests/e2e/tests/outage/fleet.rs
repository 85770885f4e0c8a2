//! A fleet under an outage.

use std::time::{Duration, SystemTime};

use contract::messages::agent::CountAll;
use contract::messages::backoff_tracker::CountBackoffs;
use e2e::{Agent, Registry, Started, Watch, Workplace, until_within};
use memory_registry::MadeImage;
use serde_json::Value;
use support::faulty_link::FaultyLink;
use support::nats::{NatsConfig, NatsServer, current_program};
use support::requirement::met;

use super::case::{Case, OUTAGE};

/// The time of the standing pull: longer than any case takes.
const STANDING_PULL: &str = "10m";
/// The longest time until each agent knows all nodes: each agent reports to the registrar within 5 s.
const KNOWN_WITHIN: Duration = Duration::from_secs(30);
/// A limit that no case reaches. The measured times come from the registry's clock and the stores, not from this process.
const PATIENCE: Duration = Duration::from_secs(120);

/// Agents, their bus and their registry.
pub(crate) struct Outage<'a> {
    pub(crate) case: Case,
    pub(crate) place: &'a Workplace,
    pub(crate) server: NatsServer,
    /// The connections of the agents to the server, each for an equal part of the agents; empty: the agents connect directly.
    pub(crate) bus_links: Vec<FaultyLink>,
    pub(crate) registry: Registry,
    pub(crate) agents: Vec<Agent<'a>>,
    pub(crate) began: Watch,
}

/// When the registry was healed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Healed {
    watch: Watch,
    /// By the registry's clock.
    at: Duration,
    /// By the clock of files.
    date: SystemTime,
}

impl<'a> Outage<'a> {
    /// Starts a fleet whose nodes know each other, with a registry that fails.
    pub(crate) fn begin(place: &'a Workplace, case: Case, nodes: usize) -> Self {
        Self::begin_with_links(0, place, case, nodes)
    }

    /// As `begin`, with this many connections to the server, each for an equal part of the fleet in the order of nodes.
    pub(crate) fn begin_with_links(bus_links: usize, place: &'a Workplace, case: Case, nodes: usize) -> Self {
        Self::start(bus_links, Duration::ZERO, place, case, nodes).once_all_nodes_are_known()
    }

    /// As `begin`, with one connection that has this round trip.
    pub(crate) fn begin_with_round_trip(round_trip: Duration, place: &'a Workplace, case: Case, nodes: usize) -> Self {
        Self::start(1, round_trip, place, case, nodes).once_all_nodes_are_known()
    }

    fn once_all_nodes_are_known(self) -> Self {
        // If the registrar has answered the last agent, it knows all agents.
        let last = self.agents.last().expect("a fleet has nodes");
        until_within("all nodes of the fleet know each other", KNOWN_WITHIN, || {
            (last.ask(&CountAll {}).counters.get("presence_alive") == Some(&(self.agents.len() as u64))).then_some(())
        });
        Self { began: Watch::start(), ..self }
    }

    /// Starts a fleet whose nodes share nothing, by the settings of `place`, and so do not know each other.
    pub(crate) fn begin_apart(place: &'a Workplace, case: Case, nodes: usize) -> Self {
        let outage = Self::start(0, Duration::ZERO, place, case, nodes);
        let url = outage.server.url();
        until_within("all answer", KNOWN_WITHIN, || {
            let known = place.run(&["nodes", "-o", "json", "--nats", &url]).expect(0).objects();
            (known.len() == nodes).then_some(())
        });
        Self { began: Watch::start(), ..outage }
    }

    fn start(bus_links: usize, round_trip: Duration, place: &'a Workplace, case: Case, nodes: usize) -> Self {
        let (server, registry) = (NatsServer::start(NatsConfig::default()), Registry::new());
        registry.add_image("shop/web", "v1", &MadeImage::of_layers([4_000]));
        registry.faults().add(case.fault());
        let bus_links: Vec<_> = (0..bus_links).map(|_| FaultyLink::from(&server.address(), round_trip)).collect();
        let start = |node: usize| {
            let bus_link = bus_links.get((node - 1) * bus_links.len() / nodes);
            let url = bus_link.map_or_else(|| server.url(), |bus_link| format!("nats://{}", bus_link.address()));
            Agent::start(place, &format!("n{node:02}"), &["--nats", &url])
        };
        let agents: Vec<_> = (1..=nodes).map(start).collect();
        let agents: Vec<_> = agents.into_iter().map(Agent::ready).collect();
        Self { case, place, server, bus_links, registry, agents, began: Watch::start() }
    }

    pub(crate) fn image(&self) -> String {
        self.registry.image("shop/web:v1")
    }

    /// Starts a standing pull on every node; the command runs until the images are present.
    pub(crate) fn standing_pull(&self) -> Started {
        let arguments = ["pull", "--all-nodes", "--wait", STANDING_PULL, "-o", "json", "--nats", &self.server.url(), &self.image()];
        self.place.start(&arguments)
    }

    /// Waits for the end of the outage, and asserts the limit of failing requests.
    pub(crate) fn end_outage_with_at_most(&self, failing_at_most: u64) -> Healed {
        let (healed, failing) = self.end_outage();
        eprintln!("{}: {failing} failing requests in {OUTAGE:?} (at most {failing_at_most})", test_name());
        if failing > failing_at_most {
            let misses: Vec<_> = self.agents.iter().map(|agent| agent.ask(&CountBackoffs {}).shared.bus_misses_total).collect();
            let at: Vec<_> = self.registry.requests().into_iter().map(|request| request.at).collect();
            panic!("{}: {failing} failing requests, at {at:.1?}; answers of the bus missed by each node: {misses:?}", test_name());
        }
        healed
    }

    /// Waits for the end of the outage; returns how many requests failed in it.
    #[expect(clippy::disallowed_methods, reason = "the date of a file is compared with it")]
    pub(crate) fn end_outage(&self) -> (Healed, u64) {
        self.began.until(OUTAGE);
        let failing = self.registry.counts().failing;
        self.registry.faults().clear();
        assert!(failing >= 1, "requests failed in the outage");
        (Healed { watch: Watch::start(), at: self.registry.age(), date: SystemTime::now() }, failing)
    }

    /// Waits until the command has a row of each node, all pulled in time, and ends with status 0.
    pub(crate) fn all_rows(&self, command: Started, healed: Healed) {
        let nodes = self.agents.len();
        self.all_stored(healed);
        let rows = until_within(&format!("{}: {nodes} rows", test_name()), PATIENCE, || {
            let rows: Vec<Value> = command.stdout().lines().map(|line| serde_json::from_str(line).expect("a row is JSON")).collect();
            (rows.len() >= nodes).then_some(rows)
        });
        assert!(rows.iter().all(|row| row["outcome"] == "pulled"), "{rows:?}");
        let (status, ..) = command.wait();
        assert_eq!(status, 0);
    }

    /// Waits until the image is in each node's store, and asserts that it was fetched in time.
    pub(crate) fn all_stored(&self, healed: Healed) {
        self.all_stored_within(Duration::ZERO, healed);
    }

    /// As `all_stored`, with this time after healing if it is longer.
    pub(crate) fn all_stored_within(&self, or_within: Duration, healed: Healed) {
        self.all_stored_in_time(self.within(healed).max(or_within), healed);
    }

    /// Waits until the image is in each node's store, within this time after healing.
    pub(crate) fn all_stored_in_time(&self, within: Duration, healed: Healed) {
        let served = self.stored(healed);
        eprintln!("{}: all served {served:.1?} after healing (within {within:.1?})", test_name());
        if served > within {
            let requests = self.registry.requests().into_iter().filter(|request| request.at >= healed.at);
            let since: Vec<_> = requests.map(|request| (request.at.saturating_sub(healed.at), request.status)).collect();
            panic!("{}: all served {served:.1?} after healing, not within {within:.1?}: requests since then {since:.1?}", test_name());
        }
    }

    /// The longest time after healing until all nodes are served, with the rest of the last `Retry-After`.
    pub(crate) fn within(&self, healed: Healed) -> Duration {
        self.retry_after_left(healed) + self.case.served_within()
    }

    /// The rest of the registry's last `Retry-After` after healing.
    pub(crate) fn retry_after_left(&self, healed: Healed) -> Duration {
        let limited = self.registry.requests().into_iter().filter(|request| request.status == Some(429));
        let asked_until = limited.map(|request| request.at + self.case.retry_after()).max();
        asked_until.unwrap_or_default().saturating_sub(healed.at)
    }

    /// Waits until the image is in each node's store; returns when the last node fetched it, after healing and by the registry's clock.
    pub(crate) fn stored(&self, healed: Healed) -> Duration {
        for node in 1..=self.agents.len() {
            self.stored_by(node, healed);
        }
        let served = self.registry.requests().into_iter().filter(|request| request.status.is_some_and(|status| status < 400));
        served.map(|request| request.at).max().expect("all were served").saturating_sub(healed.at)
    }

    /// Waits until the image is in this node's store; returns how long after healing it was stored.
    pub(crate) fn stored_by(&self, node: usize, healed: Healed) -> Duration {
        let index = self.place.path(&format!("store-of-n{node:02}")).join("index.json");
        until_within(&format!("{}: n{node:02} has the image", test_name()), PATIENCE, || {
            std::fs::read_to_string(&index).ok().filter(|index| index.contains("shop/web:v1")).map(|_| ())
        });
        let written = index.metadata().and_then(|index| index.modified()).expect("a file has a date");
        written.duration_since(healed.date).unwrap_or_default()
    }
}

impl Healed {
    /// Waits until this much time has passed since healing.
    pub(crate) fn until(self, age: Duration) {
        self.watch.until(age);
    }
}

/// The name of the test that runs on this thread.
pub(crate) fn test_name() -> String {
    std::thread::current().name().unwrap_or_default().to_owned()
}

/// The name of a test, and its function.
pub(crate) type NamedTest = (&'static str, fn(Case));

/// Runs all tests in all cases at the same time, because each mostly waits; the panic names all that failed.
pub(crate) fn all_at_once(tests: &[NamedTest], cases: &[Case]) {
    if met(current_program()).is_none() {
        return;
    }
    let failed: Vec<String> = std::thread::scope(|scope| {
        let begin = |name: &str, test: fn(Case), case: Case| {
            let name = format!("{name}, {case:?}");
            let thread = std::thread::Builder::new().name(name.clone()).spawn_scoped(scope, move || test(case));
            (name, thread.expect("a thread can be had"))
        };
        let all: Vec<_> = tests.iter().flat_map(|(name, test)| cases.iter().map(|case| begin(name, *test, *case))).collect();
        all.into_iter().filter_map(|(name, thread)| thread.join().is_err().then_some(name)).collect()
    });
    assert!(failed.is_empty(), "failed: {failed:?}; the output of each is above");
}
