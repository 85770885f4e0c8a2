//! A fleet under an outage.

use std::ops::RangeInclusive;
use std::time::Duration;

use e2e::{Agent, Registry, Started, Watch, Workplace, until_within};
use practice_registry::MadeImage;
use serde_json::Value;
use support::far_away::FarAway;
use support::nats::{NatsConfig, NatsServer, current_program};
use support::requirement::met;

use crate::case::{Case, OUTAGE};

/// Longer than any case takes; the wish stands as long as that.
const WISH: &str = "10m";
/// How long a fleet may take to know itself: each agent tells the registrar within five seconds that it is there.
const KNOWN_WITHIN: Duration = Duration::from_secs(30);

/// Agents, their bus and their registry.
pub(crate) struct Outage<'a> {
    pub(crate) case: Case,
    pub(crate) place: &'a Workplace,
    pub(crate) server: NatsServer,
    /// The ways by which the agents reach the server, in equal parts; without any they reach it as it is.
    pub(crate) ways: Vec<FarAway>,
    pub(crate) registry: Registry,
    pub(crate) agents: Vec<Agent<'a>>,
    pub(crate) began: Watch,
}

impl<'a> Outage<'a> {
    /// A fleet that knows itself, before a registry that fails.
    pub(crate) fn begin(place: &'a Workplace, case: Case, nodes: usize) -> Self {
        Self::begin_by(0, place, case, nodes)
    }

    /// The same with so many ways to the server, each for an equal part of the fleet: the first nodes go by the first.
    pub(crate) fn begin_by(ways: usize, place: &'a Workplace, case: Case, nodes: usize) -> Self {
        let (server, registry) = (NatsServer::start(NatsConfig::default()), Registry::new());
        registry.add_image("shop/web", "v1", &MadeImage::of_layers([4_000]));
        registry.faults().add(case.fault());
        let ways: Vec<_> = (0..ways).map(|_| FarAway::from(&server.address(), Duration::ZERO)).collect();
        let start = |node: usize| {
            let way = ways.get((node - 1) * ways.len() / nodes);
            let url = way.map_or_else(|| server.url(), |way| format!("nats://{}", way.address()));
            Agent::start(place, &format!("n{node:02}"), &["--nats", &url])
        };
        let agents: Vec<_> = (1..=nodes).map(start).collect();
        let agents: Vec<_> = agents.into_iter().map(Agent::ready).collect();
        // What the registrar has told the last of them, it knows of all.
        let last = agents.last().expect("a fleet has nodes");
        until_within("the fleet knows itself", KNOWN_WITHIN, || (last.counter("presence_alive") == nodes as u64).then_some(()));
        Self { case, place, server, ways, registry, agents, began: Watch::start() }
    }

    pub(crate) fn image(&self) -> String {
        self.registry.image("shop/web:v1")
    }

    /// A wish on every node, standing until it is fulfilled.
    pub(crate) fn wish(&self) -> Started {
        let arguments = ["pull", "--all-nodes", "--wait", WISH, "-o", "json", "--nats", &self.server.url(), &self.image()];
        self.place.start(&arguments)
    }

    /// Waits for the end of the outage, and holds the failing requests against the bar.
    pub(crate) fn heals_after(&self, failing_at_most: u64) -> Watch {
        self.began.until(OUTAGE);
        let failing = self.registry.counts().failing;
        self.registry.faults().clear();
        let play = std::thread::current().name().unwrap_or_default().to_owned();
        eprintln!("{play}: {failing} failing requests in {OUTAGE:?} (at most {failing_at_most})");
        assert!(failing >= 1, "the outage was felt");
        assert!(failing <= failing_at_most, "{play}: {failing} failing requests");
        Watch::start()
    }

    /// Waits until the command has a row of each node, all of them pulled, and ends well.
    pub(crate) fn all_rows(&self, command: Started, healed: Watch) {
        let nodes = self.agents.len();
        let limit = self.case.served_within();
        let what = format!("{:?}: {nodes} rows after healing", self.case);
        let rows = until_within(&what, limit.saturating_sub(healed.elapsed()), || {
            let rows: Vec<Value> = command.stdout().lines().map(|line| serde_json::from_str(line).expect("a row is JSON")).collect();
            (rows.len() >= nodes).then_some(rows)
        });
        served("all", healed);
        assert!(rows.iter().all(|row| row["outcome"] == "pulled"), "{rows:?}");
        let (status, ..) = command.wait();
        assert_eq!(status, 0);
    }

    /// Waits until the image is in each node's store, whoever asked for it.
    pub(crate) fn all_stored(&self, healed: Watch) {
        self.all_stored_within(self.case.served_within(), healed);
    }

    /// The same within another limit.
    pub(crate) fn all_stored_within(&self, limit: Duration, healed: Watch) {
        self.stored_within(1..=self.agents.len(), limit, healed);
    }

    /// The same of these nodes alone.
    pub(crate) fn stored_within(&self, nodes: RangeInclusive<usize>, limit: Duration, healed: Watch) {
        let which = format!("n{:02} to n{:02}", nodes.start(), nodes.end());
        for node in nodes {
            let index = self.place.path(&format!("store-of-n{node:02}")).join("index.json");
            until_within(&format!("{:?}: n{node:02} has the image", self.case), limit.saturating_sub(healed.elapsed()), || {
                std::fs::read_to_string(&index).ok().filter(|index| index.contains("shop/web:v1")).map(|_| ())
            });
        }
        served(&which, healed);
    }
}

fn served(which: &str, healed: Watch) {
    eprintln!("{}: {which} served {:.1?} after healing", std::thread::current().name().unwrap_or_default(), healed.elapsed());
}

/// What happens to a fleet in a case, and its name.
pub(crate) type Play = (&'static str, fn(Case));

/// Plays all of these in all these cases at the same time, as each mostly waits; all that failed are named.
pub(crate) fn all_at_once(plays: &[Play], cases: &[Case]) {
    if met(current_program()).is_none() {
        return;
    }
    let failed: Vec<String> = std::thread::scope(|scope| {
        let begin = |name: &str, play: fn(Case), case: Case| {
            let name = format!("{name}, {case:?}");
            let thread = std::thread::Builder::new().name(name.clone()).spawn_scoped(scope, move || play(case));
            (name, thread.expect("a thread can be had"))
        };
        let all: Vec<_> = plays.iter().flat_map(|(name, play)| cases.iter().map(|case| begin(name, *play, *case))).collect();
        all.into_iter().filter_map(|(name, thread)| thread.join().is_err().then_some(name)).collect()
    });
    assert!(failed.is_empty(), "failed: {failed:?}; what each said stands above");
}
