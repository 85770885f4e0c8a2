//! Presence as actors: on the memory bus with time paused, and on a real nats-server.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use actix::{Actor as _, Addr, System};
use actors::{Delivery, Sender, Wiring};
use bus::memory::MemoryBus;
use bus::nats::{NatsBus, NatsOptions};
use bus::{Bus as _, BusRef};
use clock::{Clock, Jumps, Random};
use contract::know::SharedBucket;
use contract::messages::registrar::{FleetSeen, ListNodes, NodeList, Place};
use contract::subject::Fleet;
use contract::{CallError, NodeName};
use fleetpull::node::presence::{CountPresence, Leave, Presence, PresenceParts};
use fleetpull::node::root_envelope;
use support::nats::{NatsConfig, NatsServer, current_program};
use support::requirement::met;
use tokio::runtime::Builder;

/// Longer than anything real here takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// How far clocks jump.
const MINUTES: Duration = Duration::from_secs(300);

struct Agent {
    address: Addr<Presence>,
    bus: BusRef,
    seen: Rc<RefCell<Option<FleetSeen>>>,
}

fn wiring(bus: &BusRef, node: &str) -> Wiring {
    Wiring { bus: bus.clone(), fleet: Fleet::default(), node: node.parse().unwrap(), delivery: Delivery::Local }
}

async fn start(bus: BusRef, clock: &Clock, node: &str, seed: u64) -> Agent {
    let seen = Rc::new(RefCell::new(None));
    let gravestone = actors::Gravestone::of;
    let told = Rc::clone(&seen);
    let parts = PresenceParts {
        wiring: wiring(&bus, node),
        instance: format!("{seed:x}"),
        zone: "a".to_owned(),
        clock: clock.clone(),
        random: Random::seeded(seed),
        listeners: vec![Box::new(move |seen: &FleetSeen| *told.borrow_mut() = Some(seen.clone()))],
        gravestone: gravestone("presence"),
    };
    let address = Presence::new(parts).await.unwrap().start();
    Agent { address, bus, seen }
}

impl Agent {
    fn place(&self) -> Option<Place> {
        self.seen.borrow().as_ref().map(|seen| seen.place)
    }

    fn registrar_heard(&self) -> Option<String> {
        self.seen.borrow().as_ref().and_then(|seen| seen.digest.as_ref().map(|digest| digest.registrar.clone()))
    }

    /// When the bucket of reports was made, as the digest says it.
    fn reports_created(&self) -> String {
        self.seen.borrow().as_ref().and_then(|seen| seen.digest.clone()).map(|digest| digest.reports_created).unwrap_or_default()
    }

    async fn count(&self, name: &str) -> u64 {
        let counts = self.address.send(CountPresence).await.unwrap().0;
        counts.into_iter().find(|(of, _)| *of == name).unwrap().1
    }

    async fn is_registrar(&self) -> bool {
        self.count("presence_registrar").await == 1
    }

    /// Ends as a killed process does: without a word.
    async fn crash(self) {
        self.bus.drain().await;
    }
}

async fn nodes(bus: &BusRef) -> Result<NodeList, CallError> {
    Sender::<ListNodes>::to_leader(wiring(bus, "asker")).call(root_envelope(ListNodes {}), Duration::from_secs(2)).await
}

fn paused<F: Future>(test: F) -> F::Output {
    let runtime = || Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    System::with_tokio_rt(runtime).block_on(test)
}

/// A fleet of actors on a hub, whose time is tokio's.
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

fn places(agents: &[Agent]) -> Vec<Option<Place>> {
    agents.iter().map(Agent::place).collect()
}

fn all_known(count: u64) -> Vec<Option<Place>> {
    (0..count).map(|rank| Some(Place { alive: count, alive_in_zone: count, rank: Some(rank) })).collect()
}

#[test]
fn a_fleet_in_one_process_finds_its_registrar_and_survives_its_death() {
    paused(async {
        let clock = Clock::simulated(Duration::from_secs(1_700_000_000));
        let hub = MemoryBus::new(clock.clone());
        let mut agents = fleet(&hub, &clock, 4).await;
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert_eq!(places(&agents), all_known(4));
        let first = registrar_of(&agents).await;
        assert_eq!(first.len(), 1);
        let members_created = |agent: &Agent| agent.seen.borrow().clone().unwrap().digest.unwrap().members_created;
        assert!(agents.iter().all(|agent| !members_created(agent).is_empty()), "all know which bucket of members there is");
        let asker: BusRef = Arc::new(hub.connect());
        let known: Vec<NodeName> = nodes(&asker).await.unwrap().heard_ms_ago.into_keys().collect();
        assert_eq!(known, ["n0", "n1", "n2", "n3"].map(|name| name.parse().unwrap()));

        agents.remove(first[0]).crash().await;
        // The lease ends after 10 s, and the new registrar hears everybody but the dead one within a round.
        tokio::time::sleep(Duration::from_secs(35)).await;
        assert_eq!(registrar_of(&agents).await.len(), 1);
        let ranks: Vec<Option<u64>> = agents.iter().map(|agent| agent.place().unwrap().rank).collect();
        assert_eq!(ranks, [Some(0), Some(1), Some(2)]);
        assert!(agents.iter().all(|agent| agent.place().unwrap().alive == 3));
    });
}

#[test]
fn a_registrar_that_stops_in_good_order_is_followed_at_once() {
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
fn a_node_that_leaves_in_good_order_is_not_known_any_more() {
    paused(async {
        let clock = Clock::simulated(Duration::from_secs(1_700_000_000));
        let hub = MemoryBus::new(clock.clone());
        let mut agents = fleet(&hub, &clock, 3).await;
        tokio::time::sleep(Duration::from_secs(15)).await;
        let registrar = registrar_of(&agents).await[0];
        let gone = usize::from(registrar == 0);
        agents.remove(gone).address.send(Leave).await.unwrap();
        let asker: BusRef = Arc::new(hub.connect());
        assert!(!nodes(&asker).await.unwrap().heard_ms_ago.contains_key(&format!("n{gone}").parse().unwrap()));
    });
}

#[test]
fn a_bucket_that_is_wiped_leaves_one_registrar() {
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

/// The registrar's clock, and another agent's, jump by five minutes.
#[test]
fn clocks_that_jump_leave_one_registrar_that_knows_everybody() {
    for jumper in [0, 1] {
        for jump in [|jumps: &Jumps| jumps.skip(MINUTES), |jumps: &Jumps| jumps.set_wall(300), |jumps: &Jumps| jumps.set_wall(-300)] {
            paused(async {
                let clock = Clock::simulated(Duration::from_secs(1_700_000_000));
                let hub = MemoryBus::new(clock.clone());
                let (jumping, jumps) = Clock::jumping(Duration::from_secs(1_700_000_000));
                // Who begins first leads.
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
fn somebody_else_who_holds_the_lease_ends_it_here_and_his_end_begins_it_again() {
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
fn on_a_real_server_one_is_registrar_and_another_follows_it() {
    if met(current_program()).is_none() {
        return;
    }
    let server = NatsServer::start(NatsConfig::default());
    real(async {
        let mut agents = fleet_on(&server, 3).await;
        let all = "all know their place";
        until(all, || async { places(&agents) == all_known(3) }).await;
        let first = registrar_of(&agents).await;
        assert_eq!(first.len(), 1);
        assert!(agents.iter().all(|agent| agent.registrar_heard() == Some(format!("n{}", first[0]))));
        agents.remove(first[0]).crash().await;
        until("another one is registrar", || async { registrar_of(&agents).await.len() == 1 }).await;
        until("the dead one does not count", || async {
            agents.iter().all(|agent| agent.place().is_some_and(|place| place.alive == 2 && place.rank.is_some()))
        })
        .await;
    });
}

#[test]
fn a_real_server_that_comes_back_with_nothing_has_a_registrar_again() {
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
        until("nobody is registrar without a bus", || async { registrar_of(&agents).await.is_empty() }).await;
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

/// Waits for a condition; what it waits for takes seconds by the protocol.
async fn until<F: Future<Output = bool>>(what: &str, mut met: impl FnMut() -> F) {
    let waiting = async {
        while !met().await {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    assert!(tokio::time::timeout(LIMIT, waiting).await.is_ok(), "it did not come to pass that {what}");
}
