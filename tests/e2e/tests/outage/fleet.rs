//! A fleet under an outage.

use std::time::{Duration, SystemTime};

use contract::messages::agent::CountAll;
use contract::messages::backoff_tracker::CountBackoffs;
use e2e::{Agent, Registry, Started, Watch, Workplace, until_within};
use memory_registry::MadeImage;
use serde_json::Value;
use support::far_away::FarAway;
use support::nats::{NatsConfig, NatsServer, current_program};
use support::requirement::met;

use super::case::{Case, OUTAGE};

/// Longer than any case takes; the standing pull goes on as long as that.
const STANDING_PULL: &str = "10m";
/// How long a fleet may take to know itself: each agent tells the registrar within five seconds that it is there.
const KNOWN_WITHIN: Duration = Duration::from_secs(30);
/// Longer than anybody may take. When all were served is told by the registry's clock and by their stores, not by who looks.
const PATIENCE: Duration = Duration::from_secs(120);

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

/// When the registry was healed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Healed {
    watch: Watch,
    /// By the registry's clock.
    at: Duration,
    /// By that of files.
    date: SystemTime,
}

impl<'a> Outage<'a> {
    /// A fleet that knows itself, before a registry that fails.
    pub(crate) fn begin(place: &'a Workplace, case: Case, nodes: usize) -> Self {
        Self::begin_by(0, place, case, nodes)
    }

    /// The same with so many ways to the server, each for an equal part of the fleet: the first nodes go by the first.
    pub(crate) fn begin_by(ways: usize, place: &'a Workplace, case: Case, nodes: usize) -> Self {
        Self::start(ways, Duration::ZERO, place, case, nodes).knowing_itself()
    }

    /// The same by one way that takes so long, there and back.
    pub(crate) fn begin_far_away(round_trip: Duration, place: &'a Workplace, case: Case, nodes: usize) -> Self {
        Self::start(1, round_trip, place, case, nodes).knowing_itself()
    }

    fn knowing_itself(self) -> Self {
        // What the registrar has told the last of them, it knows of all.
        let last = self.agents.last().expect("a fleet has nodes");
        until_within("the fleet knows itself", KNOWN_WITHIN, || {
            (last.ask(&CountAll {}).counters.get("presence_alive") == Some(&(self.agents.len() as u64))).then_some(())
        });
        Self { began: Watch::start(), ..self }
    }

    /// One whose nodes share nothing, as `place` tells them, and so know of nobody else.
    pub(crate) fn begin_apart(place: &'a Workplace, case: Case, nodes: usize) -> Self {
        let outage = Self::start(0, Duration::ZERO, place, case, nodes);
        let url = outage.server.url();
        until_within("all answer", KNOWN_WITHIN, || {
            let known = place.run(&["nodes", "-o", "json", "--nats", &url]).expect(0).objects();
            (known.len() == nodes).then_some(())
        });
        Self { began: Watch::start(), ..outage }
    }

    fn start(ways: usize, round_trip: Duration, place: &'a Workplace, case: Case, nodes: usize) -> Self {
        let (server, registry) = (NatsServer::start(NatsConfig::default()), Registry::new());
        registry.add_image("shop/web", "v1", &MadeImage::of_layers([4_000]));
        registry.faults().add(case.fault());
        let ways: Vec<_> = (0..ways).map(|_| FarAway::from(&server.address(), round_trip)).collect();
        let start = |node: usize| {
            let way = ways.get((node - 1) * ways.len() / nodes);
            let url = way.map_or_else(|| server.url(), |way| format!("nats://{}", way.address()));
            Agent::start(place, &format!("n{node:02}"), &["--nats", &url])
        };
        let agents: Vec<_> = (1..=nodes).map(start).collect();
        let agents: Vec<_> = agents.into_iter().map(Agent::ready).collect();
        Self { case, place, server, ways, registry, agents, began: Watch::start() }
    }

    pub(crate) fn image(&self) -> String {
        self.registry.image("shop/web:v1")
    }

    /// A standing pull on every node, standing until it is fulfilled.
    pub(crate) fn standing_pull(&self) -> Started {
        let arguments = ["pull", "--all-nodes", "--wait", STANDING_PULL, "-o", "json", "--nats", &self.server.url(), &self.image()];
        self.place.start(&arguments)
    }

    /// Waits for the end of the outage, and holds the failing requests against the bar.
    pub(crate) fn heals_after(&self, failing_at_most: u64) -> Healed {
        let (healed, failing) = self.heals();
        eprintln!("{}: {failing} failing requests in {OUTAGE:?} (at most {failing_at_most})", play());
        if failing > failing_at_most {
            let misses: Vec<_> = self.agents.iter().map(|agent| agent.ask(&CountBackoffs {}).shared.bus_misses_total).collect();
            let at: Vec<_> = self.registry.requests().into_iter().map(|request| request.at).collect();
            panic!("{}: {failing} failing requests, at {at:.1?}; answers of the bus missed by each node: {misses:?}", play());
        }
        healed
    }

    /// Waits for the end of the outage; tells how many requests failed in it.
    #[expect(clippy::disallowed_methods, reason = "the date of a file is compared with it")]
    pub(crate) fn heals(&self) -> (Healed, u64) {
        self.began.until(OUTAGE);
        let failing = self.registry.counts().failing;
        self.registry.faults().clear();
        assert!(failing >= 1, "the outage was felt");
        (Healed { watch: Watch::start(), at: self.registry.age(), date: SystemTime::now() }, failing)
    }

    /// Waits until the command has a row of each node, all of them pulled in time, and ends well.
    pub(crate) fn all_rows(&self, command: Started, healed: Healed) {
        let nodes = self.agents.len();
        self.all_stored(healed);
        let rows = until_within(&format!("{}: {nodes} rows", play()), PATIENCE, || {
            let rows: Vec<Value> = command.stdout().lines().map(|line| serde_json::from_str(line).expect("a row is JSON")).collect();
            (rows.len() >= nodes).then_some(rows)
        });
        assert!(rows.iter().all(|row| row["outcome"] == "pulled"), "{rows:?}");
        let (status, ..) = command.wait();
        assert_eq!(status, 0);
    }

    /// Waits until the image is in each node's store, whichever node asked for it, and was fetched in time.
    pub(crate) fn all_stored(&self, healed: Healed) {
        self.all_stored_within(Duration::ZERO, healed);
    }

    /// The same, or in this time after healing, if that is longer.
    pub(crate) fn all_stored_within(&self, or_within: Duration, healed: Healed) {
        let within = self.within(healed).max(or_within);
        let served = self.stored(healed);
        eprintln!("{}: all served {served:.1?} after healing (within {within:.1?})", play());
        if served > within {
            let requests = self.registry.requests().into_iter().filter(|request| request.at >= healed.at);
            let since: Vec<_> = requests.map(|request| (request.at.saturating_sub(healed.at), request.status)).collect();
            panic!("{}: all served {served:.1?} after healing, not within {within:.1?}: requests since then {since:.1?}", play());
        }
    }

    /// How soon after healing all must be served: what the registry has asked for comes first.
    pub(crate) fn within(&self, healed: Healed) -> Duration {
        self.left_alone(healed) + self.case.served_within()
    }

    /// For how long after healing the registry still has asked to be left alone.
    pub(crate) fn left_alone(&self, healed: Healed) -> Duration {
        let limited = self.registry.requests().into_iter().filter(|request| request.status == Some(429));
        let asked_until = limited.map(|request| request.at + self.case.asks_for()).max();
        asked_until.unwrap_or_default().saturating_sub(healed.at)
    }

    /// Waits until the image is in each node's store; tells how long after healing the last fetched it, by the registry's clock.
    pub(crate) fn stored(&self, healed: Healed) -> Duration {
        for node in 1..=self.agents.len() {
            self.stored_by(node, healed);
        }
        let served = self.registry.requests().into_iter().filter(|request| request.status.is_some_and(|status| status < 400));
        served.map(|request| request.at).max().expect("all were served").saturating_sub(healed.at)
    }

    /// Waits until the image is in this node's store; tells how long after healing it was there.
    pub(crate) fn stored_by(&self, node: usize, healed: Healed) -> Duration {
        let index = self.place.path(&format!("store-of-n{node:02}")).join("index.json");
        until_within(&format!("{}: n{node:02} has the image", play()), PATIENCE, || {
            std::fs::read_to_string(&index).ok().filter(|index| index.contains("shop/web:v1")).map(|_| ())
        });
        let written = index.metadata().and_then(|index| index.modified()).expect("a file has a date");
        written.duration_since(healed.date).unwrap_or_default()
    }
}

impl Healed {
    /// Waits until so much time has passed since then.
    pub(crate) fn until(self, age: Duration) {
        self.watch.until(age);
    }
}

/// What is played on this thread.
pub(crate) fn play() -> String {
    std::thread::current().name().unwrap_or_default().to_owned()
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
