//! An agent at work: what it has started, and in which order.

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

use super::actor::{Agent, AgentParts};
use super::duplicates::Duplicates;
use super::fleet_size;
use super::http_endpoint::{self, HttpEndpoint};
use super::identity::Identity;
use super::introduction::{Reached, describe, introduce};
use super::name_watch::{Door, Doorkeeper};
use super::serving::Serving;
use super::setup::setup_of;
use super::state_dir::StateDir;
use super::telling::Telling;
use crate::cli::RegistryArgs;
use crate::configuration::Configuration;
use crate::node::fleet_key::{keep_key, read_key_file};
use crate::node::{
    Membership, Node, NodeOptions, NodeParts, Policies, Sharing, boot_id, keep_free, node_name, open_bus, open_shared_runtime, own_name,
};

/// How long the start waits for the bus. One that is there takes milliseconds; without it the agent starts alone.
const CONNECT_WITHIN: Duration = Duration::from_secs(1);

/// An agent at work. What it holds ends with it.
pub(super) struct Work {
    node: Node,
    panics: Panics,
    duplicates: JoinHandle<()>,
    serving: Serving,
    telling: Telling,
    socket: SocketServer,
    /// Where metrics and health are read over HTTP, if an address is set.
    _http: Option<http_endpoint::Serving>,
    /// Looks after the fleet's key, where that is kept by the fleet itself.
    _key_keeper: Option<JoinHandle<()>>,
    /// The lock goes last.
    _state: StateDir,
}

/// What an agent stands on before anything of it can be reached.
struct Ground {
    identity: Identity,
    clock: Clock,
    state: StateDir,
    runtime: RuntimeRef,
    /// What the runtime says of itself.
    seen: RuntimeDescription,
    /// Under which the runtime tells whose logins it uses.
    fleet_key: FleetKey,
    /// None: there is no fleet, or nothing is to be shared with it.
    sharing: Option<Sharing>,
    bus: BusRef,
    fleet: Fleet,
    door: Arc<Door>,
    duplicates: Duplicates,
    instruments: Instruments,
    /// None: no address is set.
    http: Option<HttpEndpoint>,
}

/// Starts everything. When this returns, the socket listens, and on a bus that is there every subscription is confirmed.
///
/// # Errors
/// Another agent has the state directory, or something that is set cannot be used.
pub(super) async fn start(configuration: &Configuration) -> Result<Work> {
    // Before anything is started that may panic.
    let panics = tasks::panics();
    let settings = configuration.settings();
    let Ground { identity, clock, state, runtime, seen, fleet_key, sharing, bus, fleet, door, duplicates, instruments, http } =
        prepare(configuration).await?;
    // Without a server it is the same bus, and else one of this process that works when the server does not.
    let local: MessagingRef = if settings.nats.is_wanted() { Arc::new(MemoryBus::new(clock.clone())) } else { bus.clone() };
    // Before any actor, so that nothing has to be undone where this fails.
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
    // It ends with the node's registrar.
    tasks::spawn_local("fleet-size", fleet_size::keep(state.fleet_size(), bus.clone(), node.fleet_seen()));
    let telling = Telling::new(&identity, node.actors.recorder.clone(), clock.clone());
    let agent = Agent::new(AgentParts {
        telling: telling.clone(),
        setup: setup_of(&configuration.loaded, &socket_path),
        identity: identity.clone(),
        services: node.actors.clone(),
        registrar: node.registrar.clone(),
        bus,
        runtime,
        seen: seen.clone(),
        clock: clock.clone(),
        instruments,
        panic_guard: PanicGuard::of("agent"),
    });
    let agent = agent.start();
    #[cfg(debug_assertions)]
    super::planted_panic::break_by_signal(agent.clone());
    let doorkeeper = Doorkeeper::new(door, agent.clone().recipient(), PanicGuard::of("doorkeeper")).start();
    let serving = Serving::begin(&node, &local, &agent, &doorkeeper, &identity, &clock).await;
    let serving = serving.context("the agent cannot be reached through the bus")?;
    let reached = Reached { socket: &socket_path, http: http.as_ref().map(HttpEndpoint::address) };
    introduce(settings, sharing.as_ref(), &identity.node, &seen, &reached);
    // Last, so that who is answered finds an agent that is ready.
    let http = http.map(|http| http.serve(agent, clock));
    Ok(Work {
        node,
        panics,
        duplicates: tasks::spawn_local("duplicate-agents", duplicates.keep()),
        serving,
        telling,
        socket,
        _http: http,
        _key_keeper: key_keeper,
        _state: state,
    })
}

/// Begins to look after the fleet's key, unless nothing is shared or a file holds the key.
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

/// Where this agent's events are stored. Without NATS there is no stream: the store is the history of this node.
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

/// Takes the name: on this machine by the lock, on the bus by asking. On a bus where another agent has it, this one is set aside.
async fn prepare(configuration: &Configuration) -> Result<Ground> {
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
    // Without NATS there is nobody to share with.
    let sharing = Sharing::of(settings, identity.instance.clone()).filter(|_| settings.nats.is_wanted());
    let sharing = sharing.map(|sharing| sharing.with_own_caps(&configuration.loaded));
    let bus = open_bus(settings, &node, fleet_size::read(&state.fleet_size()), &clock).await?;
    let (seen, is_connected) = futures::join!(describe(&runtime, settings), wait_connected(&bus));
    let wiring = Wiring { bus: bus.clone(), fleet: fleet.clone(), node, delivery: Policies::of(settings).delivery };
    let door = Arc::new(Door::default());
    let mut duplicates = Duplicates::new(identity.clone(), bus.clone(), wiring, Arc::clone(&door), settings.clone(), clock.clone());
    if is_connected {
        duplicates.look_first().await;
    }
    Ok(Ground { identity, clock, state, runtime, seen, fleet_key, sharing, bus, fleet, door, duplicates, instruments, http })
}

/// Waits for a moment until messages flow; whether they do.
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

    /// A service or a task panicked: the agent has to end.
    pub(super) async fn next_panic(&mut self) -> Panic {
        self.panics.next().await
    }

    /// Takes no more commands, and hands what is recorded to the bus.
    pub(super) async fn stop(self, why: &str) {
        let Self { node, serving, socket, telling, duplicates, .. } = self;
        duplicates.abort();
        telling.tell(EventReason::AgentStopped, why.to_owned(), None, Some(telling.age()));
        serving.end().await;
        drop(socket);
        node.stop().await;
    }
}
