//! The `agent` service: describes the node, its health and its counters, read from the node's actors on each request.

use std::collections::BTreeMap;
use std::time::Duration;

use actix::{Actor, ActorFutureExt as _, Addr, AsyncContext as _, Context, Handler, ResponseActFuture, StreamHandler, WrapFuture as _};
use actors::{Ask, MAILBOX_CAPACITY, PanicGuard};
use backoff_tracker::CountEntries;
use bus::{BusHealth, BusRef};
use clock::{Clock, Now};
use contract::messages::agent::{CountAll, DescribeNode, NodeCounters, NodeDescription, NodeSetup};
use contract::messages::backoff_tracker::CountBackoffs;
use contract::messages::event_recorder::CountEvents;
use contract::messages::throttler::{CountPermits, ListBudgets};
use contract::{CallError, EventReason, Service, VERSION as MESSAGE_VERSION};
use event_recorder::ReadStoreProblem;
use metrics::Instruments;
use pull_coordinator::ListAllPulls;
use registrar::{CountRegistrar, Registrar, RegistrarCounts};
use runtimes::{RuntimeDescription, RuntimeRef};
use tracing::{info, warn};

use super::agent_events::AgentEvents;
use super::condition::Condition;
use super::counters::{Counts, PullCounts};
use super::exposition::Kept;
use super::identity::{Identity, VERSION};
use super::introduction::described;
use super::readings::{OfFleet, labelled};
use crate::node::{Actors, root_envelope};

/// How often the agent checks the runtime and its stored events without a request, so that a loss is logged with its time. One check costs
/// one call.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// How long a runtime description is reused, because many callers may ask at the same time.
const FRESH_FOR: Duration = Duration::from_secs(1);
/// How long a request waits for the runtime before it answers with the last description. A command that lists a fleet waits 400 ms for the
/// next answer.
const RUNTIME_WITHIN: Duration = Duration::from_millis(250);

/// The actor that answers for the node.
pub(super) struct Agent {
    pub(super) identity: Identity,
    services: Actors,
    registrar: Option<Addr<Registrar>>,
    bus: BusRef,
    runtime: RuntimeRef,
    pub(super) clock: Clock,
    pub(super) condition: Condition,
    pub(super) instruments: Instruments,
    agent_events: AgentEvents,
    pub(super) setup: NodeSetup,
    /// The metrics text rendered last.
    pub(super) kept: Kept,
    seen: RuntimeDescription,
    seen_at: Now,
    _panic_guard: PanicGuard,
}

/// The parts that an agent is built from.
pub(super) struct AgentParts {
    pub(super) identity: Identity,
    pub(super) services: Actors,
    /// None if the node does not share.
    pub(super) registrar: Option<Addr<Registrar>>,
    pub(super) bus: BusRef,
    /// Whether NATS is configured. If not, the bus ends in this process.
    pub(super) has_nats: bool,
    pub(super) runtime: RuntimeRef,
    /// The runtime description at the start.
    pub(super) seen: RuntimeDescription,
    pub(super) clock: Clock,
    /// The instruments of the services, for the metrics.
    pub(super) instruments: Instruments,
    pub(super) agent_events: AgentEvents,
    pub(super) setup: NodeSetup,
    pub(super) panic_guard: PanicGuard,
}

/// The values that the metrics are rendered from, read at one time.
#[derive(Clone, Debug, Default)]
pub(super) struct Gathered {
    pub(super) counts: Counts,
    pub(super) fleet: OfFleet,
}

impl Agent {
    pub(super) fn new(parts: AgentParts) -> Self {
        let AgentParts {
            identity,
            services,
            registrar,
            bus,
            has_nats,
            runtime,
            seen,
            clock,
            instruments,
            agent_events,
            setup,
            panic_guard,
        } = parts;
        let mut condition = if has_nats { Condition::new(identity.started) } else { Condition::without_bus(identity.started) };
        condition.see_bus(identity.started, &bus.health());
        condition.see_runtime(identity.started, problem_of(&seen));
        if !condition.is_well() {
            warn!(state = condition.state(), "this node is degraded");
        }
        let seen_at = clock.now();
        let kept = Kept::default();
        Self {
            identity,
            services,
            registrar,
            bus,
            runtime,
            clock,
            condition,
            instruments,
            agent_events,
            setup,
            kept,
            seen,
            seen_at,
            _panic_guard: panic_guard,
        }
    }

    fn see_runtime(&mut self, seen: RuntimeDescription) {
        match (&self.seen.problem, &seen.problem) {
            (None, Some(problem)) => warn!(runtime = seen.name, problem, "the runtime cannot be used"),
            (Some(_), None) => info!(runtime = seen.name, version = seen.version, "the runtime can be used again"),
            _ => {}
        }
        let now = self.clock.now();
        self.change(|condition| condition.see_runtime(now, problem_of(&seen)));
        (self.seen, self.seen_at) = (seen, now);
    }

    /// Records that the agent has started, and that it is degraded if it is.
    fn record_started(&self) {
        let (runtime, state) = (name_and_version(&self.seen), self.condition.state());
        self.agent_events.record(EventReason::AgentStarted, format!("the agent {VERSION} serves this node: runtime {runtime}"), None, None);
        if let Some(cause) = self.condition.cause() {
            self.agent_events.record(EventReason::AgentDegraded, state, Some(cause), None);
        }
    }

    /// Logs and records when the node becomes degraded, and when it recovers.
    fn change(&mut self, change: impl FnOnce(&mut Condition)) {
        let (before, lasted) = (self.condition.cause(), self.condition.lasts(self.clock.now()));
        change(&mut self.condition);
        match (before, self.condition.cause()) {
            (None, Some(cause)) => {
                warn!(state = self.condition.state(), "this node is degraded");
                self.agent_events.record(EventReason::AgentDegraded, self.condition.state(), Some(cause), None);
            }
            (Some(cause), None) => {
                info!("this node is well again");
                self.agent_events.record(EventReason::AgentRecovered, "nothing is wrong any more".to_owned(), Some(cause), Some(lasted));
            }
            _ => {}
        }
    }

    fn look_at_the_runtime(&mut self, context: &mut Context<Self>) {
        let (runtime, last) = (self.runtime.clone(), self.seen.clone());
        // A store on a file system that hangs gives no answer.
        let look = async move { described(runtime.describe(), LOOK_EVERY, last).await }.into_actor(self);
        context.spawn(look.map(|seen, agent, _| agent.see_runtime(seen)));
    }

    fn look_at_the_events(&mut self, context: &mut Context<Self>) {
        let look = self.services.recorder.send(ReadStoreProblem).into_actor(self);
        context.spawn(look.map(|problem, agent, _| {
            // Without an answer the recorder has ended, and the agent ends too.
            if let Ok(problem) = problem {
                agent.see_events(problem);
            }
        }));
    }

    fn see_events(&mut self, problem: Option<String>) {
        let now = self.clock.now();
        self.change(|condition| condition.see_events(now, problem));
    }

    /// The services' counts, why events cannot be stored, and the runtime description if the last one is old and a new one arrives in time.
    fn gather(&self) -> impl Future<Output = Result<(Counts, Option<String>, Option<RuntimeDescription>), CallError>> + use<> {
        let (services, registrar) = (self.services.clone(), self.registrar.clone());
        let is_old = self.clock.now().monotonic.saturating_sub(self.seen_at.monotonic) > FRESH_FOR;
        let runtime = is_old.then(|| self.runtime.clone());
        async move {
            let look = async {
                match runtime {
                    Some(runtime) => tokio::time::timeout(RUNTIME_WITHIN, runtime.describe()).await.ok(),
                    None => None,
                }
            };
            let (counts, problem, seen) = futures::join!(count(&services, registrar), services.recorder.send(ReadStoreProblem), look);
            let problem = problem.map_err(|_| CallError::Ended { service: Service::EventRecorder.name() })?;
            Ok((counts?, problem, seen))
        }
    }

    /// Gathers the values that the metrics are rendered from.
    pub(super) fn gather_all(&self) -> impl Future<Output = Result<Gathered, CallError>> + use<> {
        let (services, registrar) = (self.services.clone(), self.registrar.clone());
        async move {
            let counts = count(&services, registrar).await?;
            let fleet = count_fleet(&services, &counts).await?;
            Ok(Gathered { counts, fleet })
        }
    }

    fn describe(&self, counts: &Counts) -> NodeDescription {
        let now = self.clock.now();
        NodeDescription {
            node: self.identity.node.clone(),
            instance: self.identity.instance.clone(),
            host: self.identity.host.clone(),
            started_ms: self.identity.started.wall_ms(),
            version: VERSION.to_owned(),
            state: self.condition.state(),
            since_ms: milliseconds(self.condition.lasts(now)),
            runtime: name_and_version(&self.seen),
            labels: self.identity.labels.clone(),
            zone: self.identity.zone.clone(),
            pulling: counts.pulls.pulling,
            waiting: counts.pulls.waiting + counts.pulls.resting,
            standing: counts.pulls.standing,
            backoff: counts.backoff.held + counts.backoff.shared.binding,
            oldest_unsent_ms: counts.events.oldest_age_ms,
            share: counts.share().to_owned(),
            reads_versions: vec![MESSAGE_VERSION],
            policy_revision: counts.permits.policy_revision,
            bus_loss: self.condition.bus_loss(now),
            bus_unset: self.condition.is_bus_unset(),
        }
    }

    /// The numbers without labels, by name.
    pub(super) fn counters(&self, counts: &Counts) -> BTreeMap<String, u64> {
        let mut counters = counts.by_name();
        let up_for = self.clock.now().monotonic.saturating_sub(self.identity.started.monotonic).as_secs();
        let own = [
            ("agent_up_seconds", up_for),
            ("bus_connected", u64::from(self.condition.is_connected())),
            ("bus_lost_total", self.condition.bus_losses()),
            ("bus_messages_dropped_total", self.bus.dropped()),
            ("events_storable", u64::from(self.condition.stores_events())),
            ("runtime_usable", u64::from(self.seen.problem.is_none())),
        ];
        counters.extend(own.into_iter().map(|(name, value)| (name.to_owned(), value)));
        counters
    }

    /// All counters of the node: those without labels under their short names, and those with labels.
    fn count(&self, gathered: &Gathered) -> NodeCounters {
        let mut counters = self.counters(&gathered.counts);
        counters.extend(labelled(&self.text(gathered)));
        NodeCounters { counters }
    }
}

impl Actor for Agent {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Self::Context) {
        context.set_mailbox_capacity(MAILBOX_CAPACITY);
        context.add_stream(self.bus.health_changes());
        context.run_interval(LOOK_EVERY, Self::look_at_the_runtime);
        context.run_interval(LOOK_EVERY, Self::look_at_the_events);
        self.record_started();
    }
}

impl StreamHandler<BusHealth> for Agent {
    fn handle(&mut self, health: BusHealth, _: &mut Self::Context) {
        let now = self.clock.now();
        self.change(|condition| condition.see_bus(now, &health));
    }

    /// The agent goes on when the health stream ends: a closed bus reports no more changes.
    fn finished(&mut self, _: &mut Self::Context) {}
}

impl Handler<Ask<DescribeNode>> for Agent {
    type Result = ResponseActFuture<Self, Result<NodeDescription, CallError>>;

    fn handle(&mut self, _: Ask<DescribeNode>, _: &mut Self::Context) -> Self::Result {
        Box::pin(self.gather().into_actor(self).map(|gathered, agent, _| {
            let (counts, problem, seen) = gathered?;
            agent.see_events(problem);
            if let Some(seen) = seen {
                agent.see_runtime(seen);
            }
            Ok(agent.describe(&counts))
        }))
    }
}

impl Handler<Ask<CountAll>> for Agent {
    type Result = ResponseActFuture<Self, Result<NodeCounters, CallError>>;

    fn handle(&mut self, _: Ask<CountAll>, _: &mut Self::Context) -> Self::Result {
        Box::pin(self.gather_all().into_actor(self).map(|gathered, agent, _| Ok(agent.count(&gathered?))))
    }
}

/// The counts about the fleet, as far as this node leads the registrar or a budget.
async fn count_fleet(services: &Actors, counts: &Counts) -> Result<OfFleet, CallError> {
    let ended = |service: Service| move |_| CallError::Ended { service: service.name() };
    let entries = match counts.registrar.of("presence_registrar") {
        0 => None,
        _ => Some(services.backoff.send(CountEntries).await.map_err(ended(Service::BackoffTracker))?),
    };
    let budgets = match counts.permits.budgets_led {
        0 => Vec::new(),
        _ => services.throttler.send(Ask(root_envelope(ListBudgets {}))).await.map_err(ended(Service::Throttler))??.budgets,
    };
    Ok(OfFleet { entries, budgets })
}

async fn count(services: &Actors, registrar: Option<Addr<Registrar>>) -> Result<Counts, CallError> {
    let registrar = async move {
        match registrar {
            Some(registrar) => registrar.send(CountRegistrar).await,
            None => Ok(RegistrarCounts::default()),
        }
    };
    let (registrar, pulls, backoff, permits, events) = futures::join!(
        registrar,
        services.coordinator.send(ListAllPulls),
        services.backoff.send(Ask(root_envelope(CountBackoffs {}))),
        services.throttler.send(Ask(root_envelope(CountPermits {}))),
        services.recorder.send(Ask(root_envelope(CountEvents {}))),
    );
    let ended = |service: Service| move |_| CallError::Ended { service: service.name() };
    Ok(Counts {
        pulls: PullCounts::of(&pulls.map_err(ended(Service::PullCoordinator))?),
        backoff: backoff.map_err(ended(Service::BackoffTracker))??,
        permits: permits.map_err(ended(Service::Throttler))??,
        events: events.map_err(ended(Service::EventRecorder))??,
        registrar: registrar.map_err(ended(Service::Registrar))?,
    })
}

/// `containerd 1.7.2`, or the name alone if the runtime does not report its version.
pub(super) fn name_and_version(runtime: &RuntimeDescription) -> String {
    format!("{} {}", runtime.name, runtime.version).trim_end().to_owned()
}

fn problem_of(runtime: &RuntimeDescription) -> Option<String> {
    runtime.problem.as_ref().map(|problem| format!("{}: {problem}", runtime.name))
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
