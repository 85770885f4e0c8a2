//! Runs a plan: nodes, bus, registry and callers on one paused runtime.
#![allow(clippy::disallowed_methods, reason = "tasks of a test")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use actix::System;
use actors::bucket_spec;
use backoff_tracker::ReadsReports;
use bus::SharedState as _;
use bus::memory::MemoryBus;
use clock::{Clock, Jumps, Random};
use contract::know::{LEASES, SharedBucket, encode};
use contract::messages::backoff_tracker::BackoffEntry;
use contract::policy::{Caps, FleetPolicy, POLICY_KEY, StoredPolicy};
use contract::subject::Fleet;
use contract::{NodeName, View};
use throttler::core::budget::BudgetPolicy;
use tokio::runtime::Builder;

use crate::faulty_network::{FaultyNetwork, Kind};
use crate::hostile::{HOSTILE, Hostile};
use crate::liar;
use crate::node::{Node, Parts, Planted, shared};
use crate::plan::{Act, LARGE, LARGE_WANTED_AT, Plan};
use crate::quota::{self, HUB};
use crate::reader;
use crate::refusals::AllRefusals;
use crate::registry::{Behaviour, Registry};
use crate::republished::PublishedReports;
use crate::story::{Hash, Story};

/// The initial time of the server's wall clock, since 1970.
const WALL: Duration = Duration::from_secs(1_700_000_000);

/// Runs a plan on its own thread, so that no state remains for the next run.
pub fn run(plan: Plan, planted: Planted) -> Story {
    let thread = std::thread::Builder::new().stack_size(8 << 20).spawn(move || {
        Random::repeat_on_this_thread(plan.seed);
        let runtime = || Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime can be made");
        System::with_tokio_rt(runtime).block_on(live(plan, planted))
    });
    thread.expect("a thread can be made").join().expect("a run does not panic")
}

struct World {
    plan: Plan,
    planted: Planted,
    budget: BudgetPolicy,
    quota: Option<u64>,
    hub: MemoryBus,
    read_report: ReadsReports,
    network: FaultyNetwork,
    registry: Registry,
    hostile: Hostile,
    refusals: AllRefusals,
    reports: PublishedReports,
    listed: Vec<Vec<BackoffEntry>>,
    nodes: BTreeMap<usize, Node>,
    /// The handles that set the nodes' wall clocks.
    clocks: BTreeMap<usize, Jumps>,
    starts: u64,
    restarts: Vec<(usize, Duration)>,
    wanted: BTreeMap<(usize, &'static str), Duration>,
    counts: BTreeMap<&'static str, u64>,
}

async fn live(plan: Plan, planted: Planted) -> Story {
    let clock = Clock::simulated(WALL);
    // In every third fleet only a few nodes may pull at once: about as many as begin during one pull.
    let at_once = if plan.seed.is_multiple_of(3) { (plan.nodes / 12).max(2) } else { 0 };
    let budget = BudgetPolicy { per_second: plan.per_second, at_once, ..BudgetPolicy::default() };
    // In every fourth fleet all nodes also want an image of a registry with a quota, which allows a quarter of them in each minute.
    let quota = (plan.seed % 4 == 1).then_some(plan.nodes.div_ceil(4) as u64);
    let hub = MemoryBus::new(clock.clone());
    let others = (0..plan.nodes).filter(|node| *node != HOSTILE).map(name).collect();
    let hostile = Hostile::new(hub.connect(), name(HOSTILE), others, Random::seeded(!plan.seed));
    let reports = PublishedReports::on(&hub, clock.clone()).await;
    let mut world = World {
        planted,
        budget,
        quota,
        hub,
        read_report: reader::remembering(),
        network: FaultyNetwork::new(plan.one_way, Random::seeded(plan.seed), clock.clone()),
        registry: Registry::new(clock.clone(), Random::seeded(plan.seed ^ 0xa5e7)),
        hostile,
        refusals: AllRefusals::new(clock.clone()),
        reports,
        listed: Vec::new(),
        nodes: BTreeMap::new(),
        clocks: BTreeMap::new(),
        starts: 0,
        restarts: Vec::new(),
        wanted: BTreeMap::new(),
        counts: BTreeMap::new(),
        plan,
    };
    if world.is_by_policy() {
        world.set_policy().await;
    }
    // If only a few may pull at once, in every second fleet their pulls take longer than a permit is valid without a renewal.
    let mut acts = world.plan.acts.clone();
    if at_once > 0 && world.plan.seed.is_multiple_of(2) {
        world.registry.set_large(LARGE);
        acts.extend((0..world.plan.nodes).map(|node| (LARGE_WANTED_AT, Act::Want(node, LARGE))));
    }
    if let Some(quota) = quota {
        world.registry.set_quota(quota);
        acts.extend(quota::wants(world.plan.fails_at, world.plan.nodes).map(|(at, node)| (at, Act::Want(node, HUB))));
    }
    acts.sort_by_key(|(at, _)| *at);
    for (at, act) in acts {
        tokio::time::sleep(at.saturating_sub(clock.now().monotonic)).await;
        world.act(clock.now().monotonic, act).await;
    }
    tokio::time::sleep(world.plan.ends.saturating_sub(clock.now().monotonic)).await;
    world.end()
}

impl World {
    async fn act(&mut self, now: Duration, act: Act) {
        match act {
            Act::Start(node) => self.start(now, node).await,
            Act::Crash(node) => {
                self.registry.stop(node);
                if let Some(node) = self.nodes.remove(&node) {
                    self.count("crash", 1);
                    node.crash().await;
                }
            }
            Act::Want(node, image) => {
                self.wanted.insert((node, image), now);
                self.standing_pull(node, image);
            }
            Act::Registry(image, behaviour) => self.registry.set_behaviour(image, behaviour),
            Act::Odds(odds) => self.network.set_odds(odds),
            Act::Line(node, line) => self.network.set_line(node, line),
            Act::Slow(node, slowness) => {
                self.network.set_slowness(node, slowness);
                self.registry.set_slowness(node, slowness);
            }
            Act::Suspend(node) => {
                if let Some(suspended) = self.nodes.get(&node) {
                    suspended.suspend();
                    self.registry.suspend(node);
                    self.count("suspended", 1);
                }
            }
            Act::Resume(node) => self.nodes.get(&node).into_iter().for_each(Node::resume),
            Act::SetClock(node, by) => {
                if let Some(clock) = self.clocks.get(&node) {
                    clock.set_wall(by);
                    self.count("clock set", 1);
                }
            }
            Act::Wipe(bucket) => {
                self.hub.lose_bucket(&Fleet::default().bucket(bucket));
                if bucket == LEASES {
                    self.network.leases(|leases, now| leases.wiped(now));
                }
                self.count("bucket wiped under a node", self.plan.nodes as u64);
            }
            Act::Answer(latency) => self.registry.set_answer(latency),
            Act::LimitAddress(nodes) => self.registry.set_limited(nodes),
            Act::Sick(nodes) => self.registry.set_sick(nodes),
            Act::Rotate(nodes) => self.registry.set_rotated(nodes),
            Act::Lie(node, number) => {
                self.count("lie", 1);
                liar::lie(&self.hub, node, number).await;
            }
            Act::ClaimSuccesses(node) => liar::claim_successes(&self.hub, node).await,
            Act::KeepLeases => self.hostile.keep_leases().await,
            Act::List => {
                for node in self.nodes.values() {
                    self.listed.push(node.entries().await);
                }
            }
            Act::Forge => {
                let forged = self.hostile.forge().await;
                self.count("budget request in its own name", forged.as_itself);
                self.count("budget request in another's name", forged.as_others);
                self.count("budget request refused", forged.refused);
            }
        }
    }

    /// In every fifth fleet the fleet policy sets the budget.
    fn is_by_policy(&self) -> bool {
        self.plan.seed % 5 == 2
    }

    async fn set_policy(&self) {
        let bucket = self.hub.bucket(&bucket_spec(SharedBucket::policy(&Fleet::default()))).await.expect("a bucket");
        let at_once = (self.budget.at_once > 0).then_some(self.budget.at_once as u64);
        let budget = Caps { pulls_per_second: Some(self.budget.per_second), pulls_at_once: at_once };
        let stored = StoredPolicy { policy: FleetPolicy { budget, ..FleetPolicy::default() }, by: "ann@desk".to_owned() };
        bucket.put(POLICY_KEY, encode(&stored).expect("it fits").into(), None).await.expect("it is stored");
    }

    /// The budget in a node's settings. If the policy sets the budget, the settings have four times as much. This does not apply to a node
    /// that crashes during the run: it may restart without a line, when it cannot read the policy.
    fn settings_of(&self, node: usize) -> BudgetPolicy {
        let crashes = self.plan.acts.iter().any(|(_, act)| matches!(act, Act::Crash(crashed) if *crashed == node));
        let times: u8 = if self.is_by_policy() && !crashes { 4 } else { 1 };
        let per_second = self.budget.per_second * f64::from(times);
        BudgetPolicy { per_second, at_once: self.budget.at_once * usize::from(times), ..self.budget }
    }

    async fn start(&mut self, now: Duration, node: usize) {
        self.starts += 1;
        if self.starts > self.plan.nodes as u64 {
            self.count("restart", 1);
            self.restarts.push((node, now));
        }
        let skew = self.plan.skews[node];
        if skew != 0 {
            self.count("clock skewed by minutes", u64::from(skew.abs() >= 60));
        }
        let drift = self.plan.drifts[node];
        if drift != 0 {
            self.count("clock drifting", u64::from(drift.abs() >= 50));
        }
        let (clock, jumps) = Clock::jumping(now + Duration::from_secs(WALL.as_secs().saturating_add_signed(skew)));
        jumps.drift(drift);
        self.clocks.insert(node, jumps);
        let parts = Parts {
            name: name(node),
            instance: format!("{node}-{}", self.starts),
            bus: shared(self.network.over(self.hub.connect(), node)),
            read_report: Arc::clone(&self.read_report),
            runtime: Arc::new(self.registry.start(node)),
            clock,
            budget: self.settings_of(node),
            planted: self.planted,
            watch: self.registry.watch(node),
            refusals: self.refusals.of(node),
        };
        self.nodes.insert(node, Node::start(parts).await);
        let of_node = self.wanted.range((node, "")..(node + 1, "")).map(|(wanted, _)| *wanted);
        let wanted: Vec<_> = of_node.filter(|(_, image)| !self.registry.is_present(node, image)).collect();
        for (node, image) in wanted {
            self.standing_pull(node, image);
        }
    }

    fn standing_pull(&self, node: usize, image: &'static str) {
        if let Some(node) = self.nodes.get(&node) {
            let standing_pull = node.standing_pull(image);
            actix::spawn(async move {
                let _ = standing_pull.await;
            });
        }
    }

    fn count(&mut self, kind: &'static str, by: u64) {
        *self.counts.entry(kind).or_default() += by;
    }

    fn end(mut self) -> Story {
        for (kind, count) in self.network.counts() {
            let kind = match kind {
                Kind::Loss => "message lost",
                Kind::Duplication => "message doubled",
                Kind::Delay => "message delayed",
                Kind::Partition => "message into a cut",
                Kind::OneWay => "message into a half cut",
                Kind::Slow => "message of a slow node",
            };
            self.count(kind, count);
        }
        let kept = self.hostile.kept.load(Ordering::Relaxed);
        if kept > 0 {
            self.count("lease kept by a hostile node", kept);
        }
        let asked = self.registry.asked();
        for one in &asked {
            let kind = match one.got {
                Behaviour::Serves | Behaviour::FailsByChance | Behaviour::Overloaded(_) | Behaviour::OverloadedProxy(_) => continue,
                Behaviour::NotFound => "404",
                Behaviour::Limited => "429",
                Behaviour::SlowDown => "429 because of overload",
                Behaviour::AddressLimited => "429 to an address",
                Behaviour::Unavailable => "503",
                Behaviour::ProxyUnavailable => "proxy 503",
                Behaviour::Refused => "refused",
                Behaviour::Hang => "hang",
                Behaviour::Denied => "401",
                Behaviour::TokenUnavailable => "token server 503",
                Behaviour::BlobUnavailable => "blob 503",
                Behaviour::BlobHang => "blob hang",
                Behaviour::WrongBytes => "wrong bytes",
            };
            self.count(kind, 1);
        }
        let present_since = self.registry.present_since();
        let mut hash = Hash::default();
        for one in &asked {
            hash.add(&format!("{one:?}"));
        }
        let refusals = self.refusals.take();
        self.count("refusal", refusals.len() as u64);
        hash.add(&format!("{present_since:?}{refusals:?}{:?}", self.counts));
        let (leases, disturbed) = (self.network.leases(|leases, _| std::mem::take(leases)), self.network.disturbed());
        let reports = self.reports.take();
        let Self { plan, budget, quota, wanted, restarts, listed, counts, .. } = self;
        Story {
            plan,
            budget,
            quota,
            asked,
            present_since,
            wanted,
            restarts,
            leases,
            refusals,
            disturbed,
            reports,
            listed,
            counts,
            hash: hash.0,
        }
    }
}

/// The view of the registry, which is the same for all nodes.
pub fn view() -> View {
    View { scope: "default".to_owned(), registry: "r.example".to_owned(), route: "direct".to_owned(), boot: String::new() }
}

pub fn name(node: usize) -> NodeName {
    format!("n{node:04}").parse().expect("a name")
}
