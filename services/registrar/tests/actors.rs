//! Registrars as actors: on the memory bus with time paused, and on a real nats-server.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, Addr, Context, Handler, MessageResult, System};
use actors::{Ask, Delivery, PanicGuard, Sender, Wiring};
use bus::memory::MemoryBus;
use bus::nats::{NatsBus, NatsOptions};
use bus::{BusRef, Messaging as _, SharedState as _};
use clock::{Clock, Jumps, Random};
use contract::know::SharedBucket;
use contract::messages::registrar::{FleetSeen, ListNodes, NodeList, Place, ReportAlive};
use contract::messages::{backoff_tracker, throttler};
use contract::subject::Fleet;
use contract::{CallError, Command as _, Envelope, Meta, NodeName, Service};
use futures::StreamExt as _;
use registrar::{CountRegistrar, Leave, Neighbours, Registrar, RegistrarParts};
use support::nats::{NatsConfig, NatsServer, current_program};
use support::requirement::met;
use tokio::runtime::Builder;
use tokio::sync::watch;

/// A limit that no test reaches on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// How far clocks jump.
const MINUTES: Duration = Duration::from_secs(300);

struct Agent {
    address: Addr<Registrar>,
    bus: BusRef,
    seen: watch::Receiver<FleetSeen>,
}

fn wiring(bus: &BusRef, node: &str) -> Wiring {
    Wiring { bus: bus.clone(), fleet: Fleet::default(), node: node.parse().unwrap(), delivery: Delivery::Local }
}

async fn start(bus: BusRef, clock: &Clock, node: &str, seed: u64) -> Agent {
    start_with_neighbours(Delivery::Local, None, bus, clock, node, seed).await
}

async fn start_with_neighbours(
    delivery: Delivery,
    neighbours: Option<Neighbours>,
    bus: BusRef,
    clock: &Clock,
    node: &str,
    seed: u64,
) -> Agent {
    let parts = RegistrarParts {
        wiring: Wiring { delivery, ..wiring(&bus, node) },
        state: bus.clone(),
        instance: format!("{seed:x}"),
        zone: "a".to_owned(),
        clock: clock.clone(),
        random: Random::seeded(seed),
        neighbours,
        panic_guard: PanicGuard::of("registrar"),
    };
    let registrar = Registrar::new(parts).await.unwrap();
    let seen = registrar.fleet_seen();
    Agent { address: registrar.start(), bus, seen }
}

impl Agent {
    fn place(&self) -> Place {
        self.seen.borrow().place
    }

    /// When the bucket of reports was created, by the digest.
    fn reports_created(&self) -> String {
        self.seen.borrow().digest.clone().unwrap_or_default().reports_created
    }

    async fn count(&self, name: &str) -> u64 {
        let counts = self.address.send(CountRegistrar).await.unwrap().0;
        counts.into_iter().find(|(of, _)| *of == name).unwrap().1
    }

    async fn is_registrar(&self) -> bool {
        self.count("presence_registrar").await == 1
    }

    /// Ends the agent as a kill would, without a farewell.
    async fn crash(self) {
        self.bus.drain().await;
    }
}

async fn nodes(bus: &BusRef) -> Result<NodeList, CallError> {
    let envelope = Envelope { meta: Meta::root(&mut Random::seeded(1)), body: ListNodes {} };
    Sender::<ListNodes>::to_leader(wiring(bus, "asker")).call(envelope, Duration::from_secs(2)).await
}

/// A tracker and a throttler that note the fleet's state.
#[derive(Default)]
struct Noting {
    noted: Rc<RefCell<Vec<(Service, FleetSeen)>>>,
}

impl Actor for Noting {
    type Context = Context<Self>;
}

impl Handler<Ask<backoff_tracker::SeeFleet>> for Noting {
    type Result = MessageResult<Ask<backoff_tracker::SeeFleet>>;

    fn handle(&mut self, Ask(seen): Ask<backoff_tracker::SeeFleet>, _: &mut Self::Context) -> Self::Result {
        self.noted.borrow_mut().push((Service::BackoffTracker, seen.body.0));
        MessageResult(Ok(backoff_tracker::FleetNoted {}))
    }
}

impl Handler<Ask<throttler::SeeFleet>> for Noting {
    type Result = MessageResult<Ask<throttler::SeeFleet>>;

    fn handle(&mut self, Ask(seen): Ask<throttler::SeeFleet>, _: &mut Self::Context) -> Self::Result {
        self.noted.borrow_mut().push((Service::Throttler, seen.body.0));
        MessageResult(Ok(throttler::FleetNoted {}))
    }
}

fn paused<F: Future>(test: F) -> F::Output {
    let runtime = || Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    System::with_tokio_rt(runtime).block_on(test)
}

/// A fleet of actors on a memory bus with tokio's time.
async fn fleet(hub: &MemoryBus, clock: &Clock, count: u64) -> Vec<Agent> {
    let mut agents = Vec::new();
    for index in 0..count {
        agents.push(start(Arc::new(hub.connect()), clock, &format!("n{index}"), index).await);
    }
    agents
}

async fn registrar_of(agents: &[Agent]) -> Vec<usize> {
    let mut found = Vec::new();
    for (index, agent) in agents.iter().enumerate() {
        if agent.is_registrar().await {
            found.push(index);
        }
    }
    found
}

fn places(agents: &[Agent]) -> Vec<Place> {
    agents.iter().map(Agent::place).collect()
}

fn all_known(count: u64) -> Vec<Place> {
    (0..count).map(|rank| Place { alive: count, alive_in_zone: count, rank: Some(rank) }).collect()
}

#[test]
fn fleet_elects_a_registrar_and_replaces_a_dead_one() {
    paused(async {
        let clock = Clock::simulated(Duration::from_secs(1_700_000_000));
        let hub = MemoryBus::new(clock.clone());
        let mut agents = fleet(&hub, &clock, 4).await;
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert_eq!(places(&agents), all_known(4));
        let first = registrar_of(&agents).await;
        assert_eq!(first.len(), 1);
        let members_created = |agent: &Agent| agent.seen.borrow().digest.clone().unwrap().members_created;
        assert!(agents.iter().all(|agent| !members_created(agent).is_empty()), "all know which bucket of members there is");
        let asker: BusRef = Arc::new(hub.connect());
        let known: Vec<NodeName> = nodes(&asker).await.unwrap().last_seen_ms_ago.into_keys().collect();
        assert_eq!(known, ["n0", "n1", "n2", "n3"].map(|name| name.parse().unwrap()));

        agents.remove(first[0]).crash().await;
        // The lease ends after 10 s, and the new registrar gets reports of all nodes except the dead one within a round.
        tokio::time::sleep(Duration::from_secs(35)).await;
        assert_eq!(registrar_of(&agents).await.len(), 1);
        let ranks: Vec<Option<u64>> = agents.iter().map(|agent| agent.place().rank).collect();
        assert_eq!(ranks, [Some(0), Some(1), Some(2)]);
        assert!(agents.iter().all(|agent| agent.place().alive == 3));
    });
}

#[test]
fn services_receive_the_fleets_state_in_process_and_over_the_bus() {
    for delivery in [Delivery::Local, Delivery::Bus] {
        paused(async {
            let clock = Clock::simulated(Duration::from_secs(1_700_000_000));
            let bus: BusRef = Arc::new(MemoryBus::new(clock.clone()).connect());
            let noting = Noting::default();
            let (noted, wiring) = (Rc::clone(&noting.noted), Wiring { delivery, ..wiring(&bus, "n0") });
            let noting = noting.start();
            let _served = actors::serve::<throttler::SeeFleet>(&wiring, noting.clone().recipient()).await.unwrap();
            let neighbours = Neighbours {
                tracker: Sender::local(wiring.clone(), noting.clone().recipient()),
                throttler: Sender::local(wiring.clone(), noting.recipient()),
            };
            let agent = start_with_neighbours(delivery, Some(neighbours), bus, &clock, "n0", 1).await;
            tokio::time::sleep(Duration::from_secs(20)).await;
            for service in [Service::BackoffTracker, Service::Throttler] {
                let last = noted.borrow().iter().rev().find(|(of, _)| *of == service).map(|(_, seen)| seen.clone());
                assert_eq!(last.as_ref(), Some(&*agent.seen.borrow()), "{service:?}, {delivery:?}");
            }
        });
    }
}

#[test]
fn registrar_that_leaves_is_replaced_at_once() {
    paused(async {
        let clock = Clock::simulated(Duration::from_secs(1_700_000_000));
        let hub = MemoryBus::new(clock.clone());
        let mut agents = fleet(&hub, &clock, 3).await;
        tokio::time::sleep(Duration::from_secs(15)).await;
        let first = agents.remove(registrar_of(&agents).await[0]);
        first.address.send(Leave).await.unwrap();
        first.bus.drain().await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(registrar_of(&agents).await.len(), 1);
    });
}

#[test]
fn registrar_that_leaves_waits_for_no_answer_to_a_report_of_its_own() {
    paused(async {
        let clock = Clock::simulated(Duration::from_secs(1_700_000_000));
        let hub = MemoryBus::new(clock.clone());
        let mut agents = fleet(&hub, &clock, 3).await;
        tokio::time::sleep(Duration::from_secs(15)).await;
        // It receives all reports and answers none.
        let _silent = hub.subscribe(&Fleet::default().command_to_leader(Service::Registrar, ReportAlive::VERB), None).await.unwrap();
        let (first, began) = (agents.remove(registrar_of(&agents).await[0]), clock.now().monotonic);
        first.address.send(Leave).await.unwrap();
        assert_eq!(clock.now().monotonic, began);
        first.bus.drain().await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(registrar_of(&agents).await.len(), 1);
    });
}

#[test]
fn node_that_leaves_is_forgotten() {
    paused(async {
        let clock = Clock::simulated(Duration::from_secs(1_700_000_000));
        let hub = MemoryBus::new(clock.clone());
        let mut agents = fleet(&hub, &clock, 3).await;
        tokio::time::sleep(Duration::from_secs(15)).await;
        let registrar = registrar_of(&agents).await[0];
        let departed = usize::from(registrar == 0);
        agents.remove(departed).address.send(Leave).await.unwrap();
        let asker: BusRef = Arc::new(hub.connect());
        assert!(!nodes(&asker).await.unwrap().last_seen_ms_ago.contains_key(&format!("n{departed}").parse().unwrap()));
    });
}

#[test]
fn wiped_bucket_leaves_one_registrar() {
    paused(async {
        let clock = Clock::simulated(Duration::from_secs(1_700_000_000));
        let hub = MemoryBus::new(clock.clone());
        let agents = fleet(&hub, &clock, 3).await;
        tokio::time::sleep(Duration::from_secs(15)).await;
        hub.lose_bucket("fleetpull-leases");
        tokio::time::sleep(Duration::from_secs(30)).await;
        assert_eq!(registrar_of(&agents).await.len(), 1);
        assert_eq!(places(&agents), all_known(3));
    });
}

/// The registrar's clock, or another agent's, jumps by 5 min.
#[test]
fn jumping_clocks_leave_one_registrar_that_knows_all_nodes() {
    for jumper in [0, 1] {
        for jump in [|jumps: &Jumps| jumps.skip(MINUTES), |jumps: &Jumps| jumps.set_wall(300), |jumps: &Jumps| jumps.set_wall(-300)] {
            paused(async {
                let clock = Clock::simulated(Duration::from_secs(1_700_000_000));
                let hub = MemoryBus::new(clock.clone());
                let (jumping, jumps) = Clock::jumping(Duration::from_secs(1_700_000_000));
                // The agent that starts first is the registrar.
                let mut agents = Vec::new();
                for index in 0..4 {
                    let clock = if index == jumper { &jumping } else { &clock };
                    agents.push(start(Arc::new(hub.connect()), clock, &format!("n{index}"), index).await);
                    tokio::time::sleep(Duration::from_secs(5)).await;
                }
                tokio::time::sleep(Duration::from_secs(15)).await;
                assert_eq!(places(&agents), all_known(4), "before");
                jump(&jumps);
                tokio::time::sleep(Duration::from_secs(45)).await;
                assert_eq!(registrar_of(&agents).await.len(), 1);
                assert_eq!(places(&agents), all_known(4), "after, when n{jumper} jumped");
            });
        }
    }
}

#[test]
fn registrar_steps_down_for_a_foreign_holder_and_returns_after_it() {
    paused(async {
        let clock = Clock::simulated(Duration::from_secs(1_700_000_000));
        let hub = MemoryBus::new(clock.clone());
        let agents = fleet(&hub, &clock, 1).await;
        tokio::time::sleep(Duration::from_secs(15)).await;
        let leaders = hub.bucket(&actors::bucket_spec(SharedBucket::leaders(&Fleet::default()))).await.unwrap();
        leaders.put("registrar", "not even a lease".into(), Some(Duration::from_secs(20))).await.unwrap();
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(registrar_of(&agents).await, Vec::<usize>::new());
        tokio::time::sleep(Duration::from_secs(30)).await;
        assert_eq!(registrar_of(&agents).await, [0]);
    });
}

#[test]
fn real_server_has_one_registrar_and_then_its_successor() {
    if met(current_program()).is_none() {
        return;
    }
    let server = NatsServer::start(NatsConfig::default());
    real(async {
        let mut agents = fleet_on(&server, 3).await;
        let mut digests = agents[0].bus.subscribe(&Fleet::default().digests(), None).await.unwrap();
        let all = "all know their place";
        until(all, || async { places(&agents) == all_known(3) }).await;
        let first = registrar_of(&agents).await;
        assert_eq!(first.len(), 1);
        let digest = tokio::time::timeout(LIMIT, digests.next()).await.unwrap().unwrap();
        assert_eq!(digest.subject, Fleet::default().digest(&format!("n{}", first[0]).parse().unwrap()));
        assert!(agents.iter().all(|agent| agent.seen.borrow().digest.is_some()));
        agents.remove(first[0]).crash().await;
        until("another one is registrar", || async { registrar_of(&agents).await.len() == 1 }).await;
        until("the dead one does not count", || async {
            agents.iter().all(|agent| agent.place().alive == 2 && agent.place().rank.is_some())
        })
        .await;
    });
}

#[test]
fn real_server_that_restarts_empty_has_a_registrar_again() {
    if met(current_program()).is_none() {
        return;
    }
    let mut server = NatsServer::start(NatsConfig::default());
    real(async {
        let agents = fleet_on(&server, 2).await;
        let all_say = |other_than: String| {
            let created: Vec<String> = agents.iter().map(Agent::reports_created).collect();
            async move { created.iter().all(|created| !created.is_empty() && *created != other_than) }
        };
        until("all know which bucket of reports there is", || all_say(String::new())).await;
        let before = agents[0].reports_created();
        server.kill();
        server.wipe_store();
        until("there is no registrar without a bus", || async { registrar_of(&agents).await.is_empty() }).await;
        server.restart();
        until("one is registrar again", || async { registrar_of(&agents).await.len() == 1 }).await;
        until("all know that it is another bucket", || all_say(before.clone())).await;
        until("all know their place", || async { places(&agents) == all_known(2) }).await;
    });
}

fn real<F: Future>(test: F) -> F::Output {
    System::with_tokio_rt(|| Builder::new_current_thread().enable_all().build().unwrap()).block_on(test)
}

/// A fleet whose agents have a connection each.
async fn fleet_on(server: &NatsServer, count: u64) -> Vec<Agent> {
    let (clock, mut agents) = (Clock::host(), Vec::new());
    for index in 0..count {
        let options = NatsOptions { urls: Some(server.url()), ..NatsOptions::default() };
        let bus = NatsBus::connect(options).await.unwrap();
        bus.wait_connected(LIMIT).await.unwrap();
        agents.push(start(Arc::new(bus), &clock, &format!("n{index}"), index).await);
    }
    agents
}

/// Waits for a condition that takes seconds by the protocol.
async fn until<F: Future<Output = bool>>(what: &str, mut met: impl FnMut() -> F) {
    let waiting = async {
        while !met().await {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    assert!(tokio::time::timeout(LIMIT, waiting).await.is_ok(), "not reached: {what}");
}
