//! `reconnect`: a registry is down, the one nats-server of a large fleet is killed, and is back a minute later, while the registry still is
//! down: what the nodes publish then, what the server has to do for it, and how soon all nodes derive the same entries. Then the registry is
//! healed.
//!
//! Real are the server, one connection for each node, and each node's tracker with its core. Simulated is the registry, which answers in
//! this process, and time is compressed: the bus is gone for 60 s instead of 10 minutes. That is the harder case, since the failures of all
//! nodes are still of use to others when it is back. Throttlers, presence and pulls are left out.
#![allow(clippy::disallowed_methods, reason = "tasks of a measurement")]

mod published;
mod server_load;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use actix::{Actor as _, Addr, Arbiter};
use actors::{Ask, Gravestone};
use anyhow::{Context as _, Result, anyhow, ensure};
use backoff_tracker::core::BackoffPolicy;
use backoff_tracker::{BackoffTracker, Share, SharedBus, TrackerParts};
use bus::BusRef;
use bus::nats::{NatsBus, NatsOptions};
use clock::{Clock, Random};
use contract::messages::backoff_tracker::{
    AttemptFailure, AwaitLeave, BackoffKey, BackoffList, BeginAttempt, Leave, ListBackoffs, ReportAttempt, ResolveAttempt, SeeFleet,
    WithdrawWish,
};
use contract::messages::registrar::{FleetSeen, Place};
use contract::subject::Fleet;
use contract::{AttemptId, Command, Envelope, FailureClass, Meta, NodeName, Stage, Target, View, WishId};
use futures::future::join_all;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use support::nats::{NatsConfig, NatsServer, current_program};
use tokio::sync::mpsc;

use self::published::Published;
use self::server_load::ServerLoad;
use crate::figure::{Bar, Figure, Unit};
use crate::process;
use crate::report::remark;

/// Threads that serve the nodes.
const THREADS: usize = 2;
/// How long the bus is gone. Within this time each of 5,000 nodes has tried by itself once.
const GONE_FOR: Duration = Duration::from_secs(60);
/// Connecting takes a fleet 50 s at most; a machine under load takes longer.
const LIMIT: Duration = Duration::from_secs(240);
/// How often it is looked whether all derive the same entries.
const LOOKED_EVERY: Duration = Duration::from_secs(1);
/// How long the simulated registry takes to refuse or to answer.
const ANSWER_TAKES: Duration = Duration::from_millis(20);
const PATIENCE_MS: u64 = 10_000;
/// Files that are open beside one connection of each node.
const OTHER_FILES: u64 = 200;
const IMAGE: &str = "registry.example/team/app:v1";
/// The bars.
const MESSAGES_PER_SECOND_MOST: f64 = 50_000.0;
const CONVERGED_WITHIN_S: f64 = 60.0;
const NODES_ON_A_KEY_MOST: f64 = 3.0;

/// The registry, and which attempts it has seen.
#[derive(Default)]
struct Registry {
    heals: AtomicBool,
    bus_is_back: AtomicBool,
    failed_while_away: AtomicUsize,
    failed_since: AtomicUsize,
    /// Attempts that began after the bus was back.
    begun_since: Mutex<BTreeSet<AttemptId>>,
    served: AtomicUsize,
}

impl Registry {
    /// Whether it serves an attempt that begins now.
    async fn ask(&self, attempt: AttemptId) -> bool {
        let is_back = self.bus_is_back.load(Ordering::Relaxed);
        if is_back {
            self.begun_since.lock().unwrap_or_else(PoisonError::into_inner).insert(attempt);
        }
        tokio::time::sleep(ANSWER_TAKES).await;
        let serves = self.heals.load(Ordering::Relaxed);
        let count = match (serves, is_back) {
            (true, _) => &self.served,
            (false, true) => &self.failed_since,
            (false, false) => &self.failed_while_away,
        };
        count.fetch_add(1, Ordering::Relaxed);
        serves
    }
}

/// A node: its tracker on a connection of its own.
#[derive(Clone)]
struct Node {
    bus: BusRef,
    tracker: Addr<BackoffTracker>,
}

pub(crate) async fn measure(nodes: usize) -> Result<Vec<Figure>> {
    let may_have = getrlimit(Resource::Nofile).maximum;
    let needed = 2 * nodes as u64 + OTHER_FILES;
    ensure!(may_have.is_none_or(|most| most >= needed), "{needed} files must be open at once: raise the hard limit (`ulimit -Hn`)");
    setrlimit(Resource::Nofile, Rlimit { current: may_have, maximum: may_have }).context("the number of open files cannot be raised")?;
    let program = current_program().map_err(|why| anyhow!(why))?;
    let mut server = NatsServer::start(NatsConfig::default().with_program(program).with("http: \"127.0.0.1:-1\""));
    let (clock, registry) = (Clock::host(), Arc::new(Registry::default()));
    let published = Published::watch(&server.url(), &clock).await?;
    let fleet = connect(nodes, &server.url(), &clock, &registry).await?;
    until("all nodes know that the registry is down", || async { Ok(is_same(&fleet).await?.then_some(())) }).await?;

    remark(&format!("the server is killed; it is back in {} s", GONE_FOR.as_secs()));
    registry.failed_while_away.store(0, Ordering::Relaxed);
    server.kill();
    tokio::time::sleep(GONE_FOR).await;
    remark(&format!("{} attempts have failed meanwhile", registry.failed_while_away.load(Ordering::Relaxed)));
    registry.bus_is_back.store(true, Ordering::Relaxed);
    let back = clock.now().monotonic;
    server.restart();
    let load = ServerLoad::watch(server.monitor().context("the server tells nobody how it is")?, clock.clone());
    until("all nodes derive the same entries", || async { Ok(is_same(&fleet).await?.then_some(())) }).await?;
    let converged = clock.now().monotonic - back;
    remark(&format!("all derive the same after {:.1} s; the registry is healed", converged.as_secs_f64()));

    let healed = clock.now().monotonic;
    registry.heals.store(true, Ordering::Relaxed);
    until("all nodes are served", || async { Ok((registry.served.load(Ordering::Relaxed) >= nodes).then_some(())) }).await?;
    let served = clock.now().monotonic - healed;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let (seen, load) = (published.take(), load.end());
    let begun_since = std::mem::take(&mut *registry.begun_since.lock().unwrap_or_else(PoisonError::into_inner));
    let from_away = published::nodes_on_a_key(
        seen.iter().filter(|report| report.at >= back && report.at < healed && !begun_since.contains(&report.attempt)),
    );
    let on_a_key = published::reports_on_a_key(seen.iter().filter(|report| report.at >= back && report.at < healed));
    let after_healing = published::reports_on_a_key(seen.iter().filter(|report| report.at >= healed));
    let dropped: u64 = fleet.iter().map(|node| node.bus.dropped()).sum();
    remark(&format!("{load}; {} failing attempts since the bus was back", registry.failed_since.load(Ordering::Relaxed)));
    let count = |what: String, value: f64| Figure::new(what, Unit::Count, value);
    Ok(vec![
        Figure::new(format!("{nodes} nodes, bus back: messages in and out, worst second"), Unit::PerSecond, load.messages_per_second)
            .with_bar(Bar::Value(MESSAGES_PER_SECOND_MOST)),
        count("slow consumers and messages dropped".to_owned(), (load.slow_consumers + dropped) as f64).with_bar(Bar::Value(0.0)),
        Figure::new("all derive the same entries after", Unit::Seconds, converged.as_secs_f64()).with_bar(Bar::Value(CONVERGED_WITHIN_S)),
        count("nodes that publish on a key what they found out without the bus, most".to_owned(), from_away as f64)
            .with_bar(Bar::Value(NODES_ON_A_KEY_MOST)),
        count("reports on a key until the registry is healed, most".to_owned(), on_a_key as f64),
        count("reports on a key after that, most".to_owned(), after_healing as f64),
        Figure::new("all are served after healing", Unit::Seconds, served.as_secs_f64()),
        Figure::new("memory of all nodes", Unit::Mebibytes, process::resident_bytes(std::process::id())? as f64 / f64::from(1 << 20)),
    ])
}

/// All nodes, connected one after the other as agents are, each of which wants the image from the start.
async fn connect(nodes: usize, url: &str, clock: &Clock, registry: &Arc<Registry>) -> Result<Vec<Node>> {
    remark(&format!("connecting {nodes} nodes"));
    let (ready, mut started) = mpsc::channel(nodes);
    let arbiters: Vec<Arbiter> = (0..THREADS).map(|_| Arbiter::new()).collect();
    for number in 0..nodes {
        let (url, clock, registry, ready) = (url.to_owned(), clock.clone(), Arc::clone(registry), ready.clone());
        arbiters[number % THREADS].spawn(async move {
            let node = Node::start(number, nodes, &url, &clock).await;
            let wants = node.as_ref().ok().cloned();
            let _ = ready.send(node).await;
            if let Some(Err(error)) = match wants {
                Some(node) => Some(node.want(&registry).await),
                None => None,
            } {
                remark(&format!("node {number} has ended: {error:#}"));
            }
        });
    }
    let mut fleet = Vec::with_capacity(nodes);
    while fleet.len() < nodes {
        let node = tokio::time::timeout(LIMIT, started.recv()).await.ok().flatten();
        fleet.push(node.context("nodes do not connect")??);
    }
    Ok(fleet)
}

impl Node {
    async fn start(number: usize, nodes: usize, url: &str, clock: &Clock) -> Result<Self> {
        let options = NatsOptions { urls: Some(url.to_owned()), fleet_size: nodes as u64, ..NatsOptions::default() };
        let bus = NatsBus::connect(options).await?;
        bus.wait_connected(LIMIT).await?;
        let bus: BusRef = Arc::new(bus);
        let node: NodeName = format!("n{number}").parse()?;
        let tracker = BackoffTracker::sharing(TrackerParts {
            node,
            policy: BackoffPolicy::default(),
            clock: clock.clone(),
            random: Random::seeded(number as u64),
            gravestone: Gravestone::of("backoff-tracker"),
            share: Share::Enforce,
            shared: SharedBus { bus: bus.clone(), fleet: Fleet::default() },
            fault: None,
        });
        let node = Self { bus, tracker: tracker.start() };
        let alive = nodes as u64;
        let place = Place { alive, alive_in_zone: alive, rank: Some(number as u64) };
        node.put(SeeFleet(FleetSeen { place, digest: None })).await?;
        Ok(node)
    }

    async fn put<C: Command>(&self, body: C) -> Result<C::Reply>
    where
        BackoffTracker: actix::Handler<Ask<C>>,
    {
        let meta = Meta::root(&mut Random::from_system());
        Ok(self.tracker.send(Ask(Envelope { meta, body })).await??)
    }

    /// A standing pull, as the pull coordinator sees to one.
    async fn want(&self, registry: &Registry) -> Result<()> {
        let wish = WishId::random(&mut Random::from_system());
        loop {
            let attempt = AttemptId::random(&mut Random::from_system());
            loop {
                match self.put(leave(wish, attempt)).await? {
                    Leave::Granted { .. } => break,
                    Leave::Held(held) => tokio::time::sleep(Duration::from_millis(held.next_try_ms)).await,
                    _ => {}
                }
            }
            self.put(BeginAttempt { wish, attempt }).await?;
            let failure = (!registry.ask(attempt).await).then(|| AttemptFailure {
                class: FailureClass::RegistryUnavailable,
                cause: "ErrImagePull: registry.example: connection refused".to_owned(),
                ..AttemptFailure::default()
            });
            let served = failure.is_none();
            self.put(ResolveAttempt { wish, attempt, failure: failure.clone(), stage: Stage::Manifest }).await?;
            self.put(ReportAttempt { key: key(), attempt, failure }).await?;
            if served {
                self.put(WithdrawWish { wish }).await?;
                return Ok(());
            }
        }
    }
}

/// Whether all nodes are on the bus and derive the same entries, by which one at least holds them all.
async fn is_same(fleet: &[Node]) -> Result<bool> {
    let lists = join_all(fleet.iter().map(|node| node.put(ListBackoffs::default()))).await;
    let lists: Vec<BackoffList> = lists.into_iter().collect::<Result<_>>()?;
    let shared = |list: &BackoffList| -> BTreeSet<(String, String, u64, u32)> {
        let shared = list.entries.iter().filter(|entry| entry.view.is_some());
        shared.map(|entry| (entry.key.clone(), entry.binds.clone(), entry.reporter_count, entry.step)).collect()
    };
    let first = lists.first().map(shared).unwrap_or_default();
    let alone = lists.iter().filter(|list| list.alone).count();
    let differ = lists.iter().filter(|list| shared(list) != first).count();
    if alone + differ > 0 {
        remark(&format!("{alone} are without the bus, {differ} derive something else than the first"));
    }
    Ok(alone + differ == 0 && first.iter().any(|(_, binds, ..)| binds == "everybody"))
}

/// Looks until it is so.
async fn until<T, F: Future<Output = Result<Option<T>>>>(what: &str, look: impl Fn() -> F) -> Result<T> {
    let looking = async {
        loop {
            if let Some(found) = look().await? {
                return Ok(found);
            }
            tokio::time::sleep(LOOKED_EVERY).await;
        }
    };
    tokio::time::timeout(LIMIT, looking).await.with_context(|| format!("not within {} s: {what}", LIMIT.as_secs()))?
}

fn key() -> BackoffKey {
    BackoffKey { pod: None, image: IMAGE.to_owned() }
}

fn leave(wish: WishId, attempt: AttemptId) -> AwaitLeave {
    let view =
        View { scope: "default".to_owned(), registry: "registry.example".to_owned(), route: "direct".to_owned(), boot: String::new() };
    let target = Target {
        view,
        endpoint: "registry.example:443".to_owned(),
        zone: "default".to_owned(),
        repository: "registry.example/team/app".to_owned(),
        reference: IMAGE.to_owned(),
        platform: "linux/amd64".to_owned(),
        scope: "anonymous".to_owned(),
        budget_owner: "anonymous".to_owned(),
        ..Target::default()
    };
    AwaitLeave { wish, attempt, attempt_span: None, key: key(), other_keys: Vec::new(), target, standing: true, patience_ms: PATIENCE_MS }
}
