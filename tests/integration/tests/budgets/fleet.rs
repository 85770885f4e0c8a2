//! Throttlers of several nodes, and a registry that counts.
#![allow(clippy::disallowed_methods, reason = "tasks of a test")]

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, Addr, Handler};
use actors::{Ask, Delivery, Served, Wiring};
use bus::BusRef;
use clock::{Clock, Random};
use contract::messages::registrar::{FleetSeen, Place};
use contract::messages::throttler::{AcquirePermit, BudgetState, ListBudgets, PermitAnswer, RegistryLimit, ReleasePermit, SeeFleet};
use contract::{Command, NodeName, PermitId, subject};
use fleetpull::node::root_envelope;
use integration::UNLIMITED;
use throttler::core::budget::BudgetPolicy;
use throttler::{FleetParts, Throttler};
use tokio::task::JoinHandle;

/// The owner of the budget.
pub(crate) const OWNER: &str = "default registry.example/anonymous@egress";

/// The budget's registry.
pub(crate) const REGISTRY: &str = "registry.example";

/// A fleet of throttlers.
pub(crate) struct Fleet {
    nodes: Vec<Option<Node>>,
}

struct Node {
    bus: BusRef,
    throttler: Addr<Throttler>,
    _served: Vec<Served>,
}

impl Fleet {
    pub(crate) async fn start(count: usize, budget: BudgetPolicy, clock: &Clock, connect: impl Fn(usize) -> BusRef) -> Self {
        Self::start_by(count, budget, |_| clock.clone(), connect).await
    }

    /// Starts a fleet in which each node has a clock of its own.
    pub(crate) async fn start_by(
        count: usize,
        budget: BudgetPolicy,
        clock: impl Fn(usize) -> Clock,
        connect: impl Fn(usize) -> BusRef,
    ) -> Self {
        let mut nodes = Vec::new();
        for number in 0..count {
            nodes.push(Some(Node::start(number, count, budget, &clock(number), connect(number)).await));
        }
        Self { nodes }
    }

    /// Ends a node as a crash does: it sends nothing more.
    pub(crate) async fn kill(&mut self, node: usize) {
        if let Some(node) = self.nodes[node].take() {
            node.bus.drain().await;
        }
    }

    fn throttler(&self, node: usize) -> Addr<Throttler> {
        self.nodes[node].as_ref().expect("the node lives").throttler.clone()
    }

    /// Asks for a permit until it is granted or refused.
    pub(crate) async fn acquire(&self, node: usize, permit: u64) -> PermitAnswer {
        acquire(&self.throttler(node), id(permit), Some(OWNER.to_owned())).await
    }

    pub(crate) async fn acquire_on(&self, node: usize, permit: u64, budget: Option<String>) -> PermitAnswer {
        acquire(&self.throttler(node), id(permit), budget).await
    }

    /// Sends any command to a node's throttler.
    pub(crate) async fn request<C: Command>(&self, node: usize, body: C) -> C::Reply
    where
        Throttler: Handler<Ask<C>>,
    {
        self.throttler(node).send(Ask(root_envelope(body))).await.expect("it lives").expect("it answers")
    }

    /// Asks for a permit once.
    pub(crate) async fn acquire_once(&self, node: usize, permit: u64) -> PermitAnswer {
        ask(&self.throttler(node), id(permit), Some(OWNER.to_owned())).await
    }

    pub(crate) async fn release(&self, node: usize, permit: u64, limits: Vec<RegistryLimit>) {
        release(&self.throttler(node), id(permit), limits).await;
    }

    /// The budget's state on each living node; none if the node does not know the budget.
    pub(crate) async fn states(&self) -> Vec<Option<BudgetState>> {
        let mut states = Vec::new();
        for node in &self.nodes {
            let Some(node) = node else {
                states.push(None);
                continue;
            };
            let list = node.throttler.send(Ask(root_envelope(ListBudgets {}))).await.expect("it lives").expect("it answers");
            states.push(list.budgets.into_iter().find(|state| state.owner == OWNER));
        }
        states
    }

    /// Begins one pull on each node.
    pub(crate) fn begin_everywhere(&self, registry: &Registry, clock: &Clock) -> Vec<JoinHandle<Duration>> {
        let nodes = self.nodes.iter().flatten().enumerate();
        nodes.map(|(number, node)| begin(node.throttler.clone(), id(1_000 + number as u64), registry.clone(), clock.clone())).collect()
    }

    /// Makes this many pulls on each node; returns when each began.
    pub(crate) async fn pull_everywhere(&self, each: u64, registry: &Registry, clock: &Clock) -> Vec<Duration> {
        let mut pulls = Vec::new();
        for (number, node) in self.nodes.iter().flatten().enumerate() {
            for one in 0..each {
                let permit = id(10_000 + number as u64 * 1_000 + one);
                pulls.push(begin(node.throttler.clone(), permit, registry.clone(), clock.clone()));
            }
        }
        let mut begun = Vec::new();
        for pull in pulls {
            begun.push(pull.await.expect("it ends"));
        }
        begun
    }
}

impl Node {
    async fn start(number: usize, count: usize, budget: BudgetPolicy, clock: &Clock, bus: BusRef) -> Self {
        let node: NodeName = format!("n{number}").parse().expect("a name");
        let fleet = subject::Fleet::default();
        let panic_guard = actors::PanicGuard::of;
        let (instance, random) = (format!("start-of-{node}"), Random::seeded(number as u64));
        let parts = FleetParts {
            bus: Arc::clone(&bus),
            fleet: fleet.clone(),
            node: node.clone(),
            instance,
            budget,
            registry_of: |_| REGISTRY.to_owned(),
            random,
            planted_bug: None,
        };
        let throttler = Throttler::sharing(UNLIMITED, clock.clone(), panic_guard("throttler"), parts).start();
        let wiring = Wiring { bus: bus.clone(), fleet, node, delivery: Delivery::Local };
        let served = throttler::serve(&wiring, &throttler).await.expect("the bus is open");
        let seen = FleetSeen { place: Place { alive: count as u64, ..Place::default() }, ..FleetSeen::default() };
        throttler.send(Ask(root_envelope(SeeFleet(seen)))).await.expect("it lives").expect("it answers");
        Self { bus, throttler, _served: served }
    }
}

pub(crate) fn id(number: u64) -> PermitId {
    PermitId::random(&mut Random::seeded(number))
}

async fn ask(throttler: &Addr<Throttler>, permit: PermitId, budget: Option<String>) -> PermitAnswer {
    let acquire = AcquirePermit { permit, image: format!("image-{permit}"), patience_ms: 10_000, budget };
    throttler.send(Ask(root_envelope(acquire))).await.expect("it lives").expect("it answers")
}

async fn acquire(throttler: &Addr<Throttler>, permit: PermitId, budget: Option<String>) -> PermitAnswer {
    loop {
        match ask(throttler, permit, budget.clone()).await {
            PermitAnswer::Queued { .. } => {}
            answer => return answer,
        }
    }
}

async fn release(throttler: &Addr<Throttler>, permit: PermitId, limits: Vec<RegistryLimit>) {
    let release = ReleasePermit { permit, limits, served: Some(true) };
    throttler.send(Ask(root_envelope(release))).await.expect("it lives").expect("it answers");
}

/// Pulls once it has a permit; returns when the pull began.
fn begin(throttler: Addr<Throttler>, permit: PermitId, registry: Registry, clock: Clock) -> JoinHandle<Duration> {
    actix::spawn(async move {
        let answer = acquire(&throttler, permit, Some(OWNER.to_owned())).await;
        assert!(matches!(answer, PermitAnswer::Granted { .. }), "{answer:?}");
        let at = clock.now().monotonic;
        let limits = registry.pull().await;
        release(&throttler, permit, limits).await;
        at
    })
}

/// A registry that counts pulls.
#[derive(Clone)]
pub(crate) struct Registry(Rc<Counts>);

struct Counts {
    quota: Option<(u64, Duration, Clock)>,
    window: RefCell<Option<(Duration, u64)>>,
    begun: Cell<usize>,
    served: Cell<usize>,
    refused: Cell<usize>,
    at_once: Cell<usize>,
    most_at_once: Cell<usize>,
}

impl Registry {
    pub(crate) fn unlimited() -> Self {
        Self::new(None)
    }

    pub(crate) fn with_quota(limit: u64, window: Duration, clock: &Clock) -> Self {
        Self::new(Some((limit, window, clock.clone())))
    }

    fn new(quota: Option<(u64, Duration, Clock)>) -> Self {
        let zero = || Cell::new(0);
        Self(Rc::new(Counts {
            quota,
            window: RefCell::new(None),
            begun: zero(),
            served: zero(),
            refused: zero(),
            at_once: zero(),
            most_at_once: zero(),
        }))
    }

    pub(crate) fn begun(&self) -> usize {
        self.0.begun.get()
    }

    pub(crate) fn served(&self) -> usize {
        self.0.served.get()
    }

    pub(crate) fn refused(&self) -> usize {
        self.0.refused.get()
    }

    pub(crate) fn most_at_once(&self) -> usize {
        self.0.most_at_once.get()
    }

    async fn pull(&self) -> Vec<RegistryLimit> {
        let counts = &self.0;
        counts.at_once.set(counts.at_once.get() + 1);
        counts.most_at_once.set(counts.most_at_once.get().max(counts.at_once.get()));
        counts.begun.set(counts.begun.get() + 1);
        let limits = self.answer();
        tokio::time::sleep(Duration::from_millis(50)).await;
        counts.at_once.set(counts.at_once.get() - 1);
        let served = limits.iter().all(|limit| limit.limit > 0);
        let counter = if served { &counts.served } else { &counts.refused };
        counter.set(counter.get() + 1);
        limits
    }

    /// Counts a pull and returns the limits.
    pub(crate) fn answer(&self) -> Vec<RegistryLimit> {
        let Some((limit, length, clock)) = &self.0.quota else { return Vec::new() };
        let now = clock.now().monotonic;
        let mut window = self.0.window.borrow_mut();
        let (began, used) = window.filter(|(began, _)| now < *began + *length).unwrap_or((now, 0));
        *window = Some((began, used + 1));
        if used >= *limit {
            let reset_ms = Some((began + *length - now).as_millis() as u64);
            return vec![RegistryLimit { reset_ms, ..RegistryLimit::default() }];
        }
        let window_ms = length.as_millis() as u64;
        vec![RegistryLimit { limit: *limit, remaining: limit - used - 1, window_ms, ..RegistryLimit::default() }]
    }
}
