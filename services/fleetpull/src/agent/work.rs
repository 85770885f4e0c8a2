//! The running agent: its parts, and the order in which they start.

use std::sync::Arc;
use std::time::Duration;

use actix::Actor as _;
use actors::{PanicGuard, Wiring};
use anyhow::{Context as _, Result};
use bus::memory::MemoryBus;
use bus::socket::{SocketServer, serve_socket};
use bus::{BusHealth, BusRef, MessagingRef};
use clock::{Clock, Random};
use contract::subject::Fleet;
use contract::{EventReason, NodeName};
use event_recorder::store::sqlite::{OUTBOX_FILE, Origin, SqliteStore};
use event_recorder::{Durability, StreamLimits};
use futures::StreamExt as _;
use metrics::Instruments;
use pull_coordinator::StandingPullFile;
use runtimes::keyring::FleetKey;
use runtimes::{RuntimeDescription, RuntimeRef};
use settings::Settings;
use tasks::{Panic, Panics};
use tokio::task::JoinHandle;
use tracing::info;

use super::actor::{Agent, AgentParts};
use super::agent_events::AgentEvents;
use super::duplicates::Duplicates;
use super::fleet_size;
use super::http_endpoint::{self, HttpEndpoint};
use super::identity::Identity;
use super::introduction::{Reached, describe, introduce};
use super::name_watch::{NameRequests, NameResponder};
use super::serving::Serving;
use super::setup::setup_of;
use super::state_dir::StateDir;
use crate::cli::RegistryArgs;
use crate::configuration::Configuration;
use crate::node::fleet_key::{keep_key, read_key_file};
use crate::node::{
    Membership, Node, NodeOptions, NodeParts, Policies, Sharing, boot_id, keep_free, node_name, open_bus, open_shared_runtime, own_name,
};

/// How long the start waits for the bus. A reachable server takes milliseconds; without it the agent starts alone.
const CONNECT_WITHIN: Duration = Duration::from_secs(1);

/// A running agent. Its parts end with it.
pub(super) struct Work {
    node: Node,
    panics: Panics,
    duplicates: JoinHandle<()>,
    serving: Serving,
    agent_events: AgentEvents,
    socket: SocketServer,
    /// Serves metrics and health over HTTP. None if no address is configured.
    _http: Option<http_endpoint::Serving>,
    /// Keeps the fleet's key, if the fleet itself stores it.
    _key_keeper: Option<JoinHandle<()>>,
    /// Dropped last, because it holds the lock.
    _state: StateDir,
}

/// The parts that must exist before the agent can be reached.
struct Prepared {
    identity: Identity,
    clock: Clock,
    state: StateDir,
    runtime: RuntimeRef,
    /// The runtime's description.
    seen: RuntimeDescription,
    /// The key with which the runtime identifies the logins that it uses.
    fleet_key: FleetKey,
    /// None if there is no fleet, or if nothing is shared with it.
    sharing: Option<Sharing>,
    bus: BusRef,
    fleet: Fleet,
    name_requests: Arc<NameRequests>,
    duplicates: Duplicates,
    instruments: Instruments,
    /// None if no address is configured.
    http: Option<HttpEndpoint>,
}

/// Starts everything. When this returns, the socket listens, and on a connected bus the server has confirmed every subscription. None if
/// `signal` came before the services were started: until then the agent waits for the bus and the runtime, and nothing has to be stopped.
///
/// # Errors
/// Another agent has locked the state directory, or a setting cannot be used.
pub(super) async fn start(configuration: &Configuration, signal: impl Future<Output = &'static str>) -> Result<Option<Work>> {
    // Must be first: the following calls start tasks that may panic.
    let panics = tasks::panics();
    let settings = configuration.settings();
    let prepared = tokio::select! {
        biased;
        signal = signal => {
            info!(signal, "stopping: the agent had not started yet");
            return Ok(None);
        }
        prepared = prepare(configuration) => prepared?,
    };
    let Prepared { identity, clock, state, runtime, seen, fleet_key, sharing, bus, fleet, name_requests, duplicates, instruments, http } =
        prepared;
    // Without NATS this is the same bus. With NATS it is a separate bus in this process, which works without the server.
    let local: MessagingRef = if settings.nats.is_wanted() { Arc::new(MemoryBus::new(clock.clone())) } else { bus.clone() };
    // Before any actor starts, so that nothing has to be undone if the socket cannot be made.
    let socket_path = state.socket();
    let socket = serve_socket(&socket_path, local.clone());
    let socket = socket.with_context(|| format!("the socket {} cannot be made", socket_path.display()))?;
    let durability = durability(settings, &state, &identity.node, &clock)?;
    let (name, policies) = (identity.node.clone(), Policies::of(settings));
    let key_keeper = keep_key_if_shared(settings, sharing.as_ref(), fleet_key, &bus, &fleet);
    let parts = NodeParts { name, fleet, bus: bus.clone(), runtime: runtime.clone(), clock: clock.clone(), policies };
    let membership =
        Membership { instance: identity.instance.clone(), labels: identity.labels.clone(), gone_after: settings.fleet.gone_after };
    let options = NodeOptions {
        sharing: sharing.clone(),
        membership: Some(membership).filter(|_| settings.nats.is_wanted()),
        standing_pulls: Some(Arc::new(StandingPullFile::new(state.standing_pulls()))),
        keep_free: keep_free(settings),
        events: Some(durability),
        instruments: instruments.clone(),
    };
    let node = Node::start_with(parts, options).await.context("the services cannot be reached through the bus")?;
    // The task ends with the node's registrar.
    tasks::spawn_local("fleet-size", fleet_size::keep(state.path().to_owned(), bus.clone(), node.fleet_seen()));
    let agent_events = AgentEvents::new(&identity, node.actors.recorder.clone(), clock.clone());
    let agent = Agent::new(AgentParts {
        agent_events: agent_events.clone(),
        setup: setup_of(&configuration.loaded, &socket_path),
        identity: identity.clone(),
        services: node.actors.clone(),
        registrar: node.registrar.clone(),
        bus,
        has_nats: settings.nats.is_wanted(),
        runtime,
        seen: seen.clone(),
        clock: clock.clone(),
        instruments,
        panic_guard: PanicGuard::of("agent"),
    });
    let agent = agent.start();
    #[cfg(debug_assertions)]
    super::planted_panic::panic_on_signal(agent.clone());
    let name_responder = NameResponder::new(name_requests, agent.clone().recipient(), PanicGuard::of("name-responder")).start();
    let serving = Serving::begin(&node, &local, &agent, &name_responder, &identity, &clock).await;
    let serving = serving.context("the agent cannot be reached through the bus")?;
    let reached = Reached { socket: &socket_path, http: http.as_ref().map(HttpEndpoint::address) };
    introduce(settings, sharing.as_ref(), &identity.node, &seen, &reached);
    let duplicates = tasks::spawn_local("duplicate-agents", duplicates.keep(agent.clone().recipient()));
    // Last, so that the HTTP endpoint answers only when the agent is ready.
    let http = http.map(|http| http.serve(agent, clock));
    Ok(Some(Work { node, panics, duplicates, serving, agent_events, socket, _http: http, _key_keeper: key_keeper, _state: state }))
}

/// Starts to keep the fleet's key, unless nothing is shared or a file holds the key.
fn keep_key_if_shared(
    settings: &Settings,
    sharing: Option<&Sharing>,
    fleet_key: FleetKey,
    bus: &BusRef,
    fleet: &Fleet,
) -> Option<JoinHandle<()>> {
    let is_kept = sharing.is_some() && settings.fleet.key_file.is_none();
    is_kept.then(|| tasks::spawn_local("fleet-key", keep_key(fleet_key, bus.clone(), fleet.clone(), Random::from_system())))
}

/// Where this agent's events are stored. Without NATS there is no stream, and the store is the node's only history.
fn durability(settings: &Settings, state: &StateDir, node: &NodeName, clock: &Clock) -> Result<Durability> {
    let origin = Origin { boot: boot_id(), new_incarnation: format!("{:016x}", Random::from_system().word()) };
    let opened = SqliteStore::open(state.path(), &origin);
    let opened = opened.with_context(|| format!("the outbox {} cannot be used", state.path().join(OUTBOX_FILE).display()))?;
    let limits = StreamLimits { max_age: settings.events.stream_max_age, max_bytes: settings.events.stream_max_bytes };
    Ok(Durability {
        opened,
        node: node.clone(),
        clock: clock.clone(),
        max_bytes: settings.events.outbox_max,
        sync_every: settings.events.fsync_interval,
        stream: settings.nats.is_wanted().then_some(limits),
    })
}

/// Takes the name: on this machine with the lock, on the bus by asking for it. If another agent on the bus has the name, the bus is set
/// aside.
async fn prepare(configuration: &Configuration) -> Result<Prepared> {
    let settings = configuration.settings();
    let clock = Clock::host();
    let node = node_name(settings)?;
    let fleet = Fleet::named(&settings.fleet.name).context("fleet.name is not valid")?;
    let store = settings.store.dir_on(&configuration.host)?;
    let state = StateDir::lock(&settings.state.dir_on(&store, own_name(settings)?.as_str()))?;
    let http = HttpEndpoint::bind(settings).await?;
    let identity = Identity::new(node.clone(), &settings.node, &clock);
    let fleet_key = FleetKey::new();
    if let Some(file) = &settings.fleet.key_file {
        fleet_key.fill(&read_key_file(file)?);
    }
    let instruments = Instruments::default();
    let runtime = open_shared_runtime(configuration, RegistryArgs::default(), &clock, fleet_key.clone(), &instruments)?;
    // Without NATS there is no other node to share with.
    let sharing = Sharing::of(settings, identity.instance.clone()).filter(|_| settings.nats.is_wanted());
    let sharing = sharing.map(|sharing| sharing.with_own_caps(&configuration.loaded));
    let bus = open_bus(settings, &node, fleet_size::read(state.path()), &clock).await?;
    let (seen, is_connected) = futures::join!(describe(&runtime, settings), wait_connected(&bus));
    let wiring = Wiring { bus: bus.clone(), fleet: fleet.clone(), node, delivery: Policies::of(settings).delivery };
    let name_requests = Arc::new(NameRequests::default());
    let mut duplicates = Duplicates::new(identity.clone(), bus.clone(), wiring, Arc::clone(&name_requests), settings.clone());
    if is_connected {
        duplicates.look_first().await;
    }
    Ok(Prepared { identity, clock, state, runtime, seen, fleet_key, sharing, bus, fleet, name_requests, duplicates, instruments, http })
}

/// Waits up to [`CONNECT_WITHIN`] for a connected bus. Returns true if it is connected.
async fn wait_connected(bus: &BusRef) -> bool {
    let mut states = bus.health_changes();
    let connected = async {
        while let Some(health) = states.next().await {
            if !matches!(health, BusHealth::Disconnected { .. }) {
                return;
            }
        }
        std::future::pending().await
    };
    tokio::time::timeout(CONNECT_WITHIN, connected).await.is_ok()
}

impl Work {
    pub(super) fn bus(&self) -> &MessagingRef {
        &self.node.wiring.bus
    }

    /// Waits until a service or a task panics; the agent must end then.
    pub(super) async fn next_panic(&mut self) -> Panic {
        self.panics.next().await
    }

    /// Stops taking commands, and passes the recorded events to the bus.
    pub(super) async fn stop(self, why: &str) {
        let Self { node, serving, socket, agent_events, duplicates, .. } = self;
        duplicates.abort();
        agent_events.record(EventReason::AgentStopped, why.to_owned(), None, Some(agent_events.age()));
        serving.end().await;
        drop(socket);
        node.stop().await;
    }
}
