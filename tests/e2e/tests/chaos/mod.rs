//! Pulls while agents and nats-server are killed, networks are cut and disks are full. At the end the answers to callers are compared with
//! the fleet's stream.
//!
//! Contracts: the event of each answered outcome is in the stream exactly once, or counted by the event that represents its repeats; no
//! event is stored twice; each node's events are numbered without a gap, in the order of the answers; the target of a refusal's link is in
//! the tracing backend (`links`).
//!
//! The tests run 300 pulls. `cargo xtask e2e chaos` runs 10,000 with a real Jaeger and a new seed; `FLEETPULL_CHAOS_SEED` repeats a seed.

#![allow(clippy::print_stderr, reason = "`cargo xtask e2e chaos` shows the faults of the run")]

mod callers;
mod faults;
mod links;
mod verdict;

use std::path::PathBuf;
use std::time::Duration;

use bus::nats::{NatsBus, NatsOptions};
use bus::{EventLog as _, StoredMessage, StreamQuery, StreamSpec, StreamStart};
use clock::{Clock, Random};
use contract::subject::Fleet;
use e2e::spans::{Jaeger, Spans, named_program};
use e2e::{Agent, Registry, Workplace, until_within};
use memory_registry::{Fault, MadeImage};
use support::faulty_link::FaultyLink;
use support::nats::{NatsConfig, NatsServer, current_program};
use support::requirement::met;
use support::small_disk::SmallDisk;

use self::callers::Callers;
use self::faults::Faults;

/// The number of nodes.
const NODES: usize = 4;
/// The size of the disk with an agent's state: enough for all of its events.
const DISK_BYTES: u64 = 48 * 1024 * 1024;
/// How many images can be pulled, and how many tags are missing.
const GOOD: usize = 12;
const BAD: usize = 6;
/// How often the image of the troubled registry fails before it can be pulled.
const TROUBLE: u64 = 3;
/// The stream's duplicate window; agents create it with 120 s. The agent itself must find an event that it offers again later. If the
/// network held an event back, it arrives together with the event that is offered again, and only the stream can detect the duplicate then;
/// the window is longer than that takes.
const REMEMBERED: Duration = Duration::from_secs(2);
/// All waiting events are sent within this time.
const DRAINED_WITHIN: Duration = Duration::from_secs(120);

/// An agent that was killed, and the times since 1970 between which that happened.
struct Kill {
    node: String,
    at: (Duration, Duration),
}

/// A fleet in which each part can be broken.
struct World<'a> {
    server: NatsServer,
    bus_links: Vec<FaultyLink>,
    disks: Vec<SmallDisk>,
    agents: Vec<Option<Agent<'a>>>,
}

/// The socket on which a caller finds an agent.
#[derive(Clone, Debug)]
struct AgentSocket {
    node: String,
    socket: PathBuf,
}

impl<'a> World<'a> {
    fn start(place: &'a Workplace, disks: Vec<SmallDisk>) -> Self {
        let server = NatsServer::start(NatsConfig::default());
        drop(block_on(stream_on(&server)));
        let bus_links: Vec<_> = (0..NODES).map(|_| FaultyLink::from(&server.address(), Duration::ZERO)).collect();
        let start = |(node, bus_link): (usize, &FaultyLink)| {
            Agent::start(place, &name(node), &["--nats", &format!("nats://{}", bus_link.address())])
        };
        let agents: Vec<_> = bus_links.iter().enumerate().map(start).collect();
        let agents = agents.into_iter().map(|agent| Some(agent.ready())).collect();
        Self { server, bus_links, disks, agents }
    }

    fn agent_sockets(&self) -> Vec<AgentSocket> {
        let agent_socket = |(node, agent): (usize, &Option<Agent<'_>>)| AgentSocket {
            node: name(node),
            socket: agent.as_ref().expect("it runs").socket().clone(),
        };
        self.agents.iter().enumerate().map(agent_socket).collect()
    }

    fn agent(&self, node: usize) -> &Agent<'a> {
        self.agents[node].as_ref().expect("it runs")
    }

    /// Kills an agent, as a crash does, and starts it again.
    fn kill_agent(&mut self, node: usize) -> Kill {
        let now = || Clock::host().now().wall;
        let from = now();
        self.agents[node] = self.agents[node].take().map(Agent::kill_and_start_again);
        Kill { node: name(node), at: (from, now()) }
    }
}

fn name(node: usize) -> String {
    format!("n{}", node + 1)
}

/// Creates the fleet's stream before the agents start, as an operator may: agents do not change its limits.
async fn stream_on(server: &NatsServer) -> NatsBus {
    let fleet = Fleet::default();
    let spec = StreamSpec {
        name: fleet.event_stream(),
        subjects: fleet.stored_events(),
        max_age: None,
        max_bytes: None,
        duplicate_window: REMEMBERED,
        transform: None,
    };
    let bus = NatsBus::connect(NatsOptions { urls: Some(server.url()), ..NatsOptions::default() }).await.unwrap();
    bus.wait_connected(Duration::from_secs(10)).await.unwrap();
    bus.stream(&spec).await.unwrap();
    bus
}

/// All messages of the stream, in order.
async fn stored_on(server: &NatsServer) -> Vec<StoredMessage> {
    let (bus, fleet, mut from, mut all) = (stream_on(server).await, Fleet::default(), Some(1), Vec::new());
    while let Some(sequence) = from {
        let query = StreamQuery {
            stream: fleet.event_stream(),
            subjects: vec![fleet.all_events()],
            from: StreamStart::Sequence(sequence),
            limit: 1_000,
        };
        let page = bus.read(&query).await.unwrap();
        all.extend(page.messages);
        from = page.next;
    }
    all
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

/// Images that can be pulled, tags that are missing, and an image of a registry that fails a few times first.
fn images(registry: &Registry, troubled: &Registry) -> Vec<String> {
    for tag in 0..GOOD {
        registry.add_image("shop/web", &format!("v{tag}"), &MadeImage::of_layers([2_000 + tag as u64]));
    }
    troubled.add_image("shop/slow", "v1", &MadeImage::of_layers([3_000]));
    troubled.faults().add(Fault::answer("/v2/shop/slow/", 500, &[], "trouble").times(TROUBLE));
    let good = (0..GOOD).map(|tag| format!("shop/web:v{tag}"));
    let bad = (0..BAD).map(|tag| format!("shop/web:missing{tag}"));
    good.chain(bad).map(|image| registry.image(&image)).chain([troubled.image("shop/slow:v1")]).collect()
}

fn run(pulls: usize, seed: u64) {
    if met(current_program()).is_none() {
        return;
    }
    eprintln!("{pulls} pulls on {NODES} nodes, FLEETPULL_CHAOS_SEED={seed}");
    // Use a real Jaeger if the variable names one, as `cargo xtask e2e chaos` does.
    let backend = named_program().map_or_else(|_| Spans::receiver(), |program| Spans::Jaeger(Jaeger::start(program)));
    let (registry, troubled, place) = (Registry::new(), Registry::new(), backend.place());
    let place = place.with("FLEETPULL_THROTTLE_QPS", "10000").with("FLEETPULL_THROTTLE_BURST", "10000");
    let place = place.with("FLEETPULL_STORE_FSYNC", "false").with("FLEETPULL_PULL_KEEP_FREE", "0B");
    let disk = |node: usize| SmallDisk::mount(&place.path(&format!("store-of-{}", name(node))).join("state"), DISK_BYTES);
    let Some(disks) = met((0..NODES).map(disk).collect::<Result<Vec<_>, _>>()) else { return };
    let mut world = World::start(&place, disks);
    let callers = Callers::new(world.agent_sockets(), images(&registry, &troubled), pulls);
    let mut random = Random::seeded(seed);
    let (calls, mut kills) = std::thread::scope(|scope| {
        let calling = callers.begin(scope, &mut random);
        let kills = Faults::new(&mut random).inject_until_answered(&mut world, &callers);
        (calling.into_iter().flat_map(|caller| caller.join().expect("a caller ends well")).collect::<Vec<_>>(), kills)
    });
    // An agent records collected repeats when it starts again.
    for node in 0..NODES {
        kills.push(world.kill_agent(node));
        world.agents[node] = world.agents[node].take().map(Agent::ready);
    }
    for node in 0..NODES {
        let agent = world.agent(node);
        agent.until_state("it has the bus", |state| state == "ok");
        until_within("nothing waits", DRAINED_WITHIN, || (agent.counter("events_waiting") == 0).then_some(()));
    }
    let stored = block_on(stored_on(&world.server));
    verdict::hold(&calls, &stored);
    links::hold(&calls, &stored, &kills, &backend);
}

#[test]
fn every_answer_to_a_caller_is_in_the_stream_once_whatever_dies() {
    run(300, 7);
}

#[cfg(feature = "chaos")]
#[test]
fn ten_thousand_pulls() {
    let seed = std::env::var("FLEETPULL_CHAOS_SEED").ok().map(|text| text.parse().expect("FLEETPULL_CHAOS_SEED is a number"));
    run(10_000, seed.unwrap_or_else(|| Random::from_system().word() % 1_000_000));
}
