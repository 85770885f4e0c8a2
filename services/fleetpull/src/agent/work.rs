//! An agent at work: what it has started, and in which order.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use actix::{Actor as _, Addr, Recipient};
use actors::{Ask, Deaths, Served, Wiring};
use anyhow::{Context as _, Result, bail};
use bus::memory::MemoryBus;
use bus::services::Announced;
use bus::socket::{SocketServer, serve_socket};
use bus::{BusError, BusRef};
use clock::Clock;
use contract::messages::agent::{CountAll, DescribeNode};
use contract::subject::Fleet;
use futures::future::LocalBoxFuture;
use runtimes::{RuntimeDescription, RuntimeRef};
use settings::{RuntimeKind, Settings};
use tracing::info;

use super::actor::{Agent, AgentParts, name_and_version};
use super::announcement::announce_services;
use super::door::{Door, Doorkeeper};
use super::identity::{Identity, VERSION};
use super::rivals::{Rival, Rivals};
use super::state_dir::StateDir;
use crate::cli::RegistryArgs;
use crate::configuration::Configuration;
use crate::node::{Node, NodeParts, Policies, node_name, open_bus, open_runtime, shown_bus};

/// How long the start waits for the bus. One that is there takes milliseconds; without it the agent starts alone.
const CONNECT_WITHIN: Duration = Duration::from_secs(1);
/// How many commands of the agent itself are taken from the fleet's bus; they come first among what is served.
const AGENT_ENDPOINTS: usize = 4;
/// How long the start waits for the runtime to say what it is.
const DESCRIBE_WITHIN: Duration = Duration::from_secs(1);

/// An agent at work. What it holds ends with it.
pub(super) struct Work {
    node: Node,
    agent_deaths: Deaths,
    rivals: LocalBoxFuture<'static, Rival>,
    agent_served: Vec<Served>,
    announced: Announced,
    socket: SocketServer,
    /// The lock goes last.
    _state: StateDir,
}

/// What an agent has to end for.
pub(super) enum Trouble {
    /// A service of it panicked.
    Death(&'static str),
    /// An older agent of the same name.
    Rival(Rival),
}

/// Starts everything. When this returns, the socket listens, and on a bus that is there every subscription is confirmed.
///
/// # Errors
/// Another agent has the name or the state directory, or something that is set cannot be used.
pub(super) async fn start(configuration: &Configuration) -> Result<Work> {
    let settings = configuration.settings();
    let clock = Clock::host();
    let name = node_name(settings)?;
    let fleet = Fleet::named(&settings.fleet.name).context("fleet.name is not valid")?;
    let store = settings.store.dir_on(&configuration.host)?;
    let state = StateDir::lock(&settings.state.dir_on(&store, name.as_str()))?;
    let identity = Identity::new(name.clone(), settings.node.labels.clone(), &clock);
    let runtime = open_runtime(configuration, RegistryArgs { plain_http: false, tls_verify: true }, &clock)?;
    let bus = open_bus(settings, &format!("fleetpull {name}"), &clock).await?;
    let (seen, connected) = futures::join!(describe(&runtime, settings), super::wait_connected(&bus, CONNECT_WITHIN));
    let policies = Policies::of(settings);
    let wiring = Wiring { bus: bus.clone(), fleet: fleet.clone(), node: name.clone(), delivery: policies.delivery };
    let door = Arc::new(Door::default());
    let mut rivals = Rivals::new(identity.clone(), wiring, Arc::clone(&door));
    if connected && let Some(rival) = rivals.any().await {
        bail!("{rival}");
    }
    let socket_path = state.socket();
    let local = bus_of_the_socket(configuration, &bus, &clock);
    // Before any actor, so that nothing has to be undone where this fails.
    let socket =
        serve_socket(&socket_path, local.clone()).with_context(|| format!("the socket {} cannot be made", socket_path.display()))?;
    let parts = NodeParts { name, fleet, bus: bus.clone(), runtime: runtime.clone(), clock: clock.clone(), policies };
    let node = Node::start(parts).await.context("the services cannot be reached through the bus")?;
    let (gravestone, agent_deaths) = actors::deaths();
    let services = node.actors.clone();
    let parts = AgentParts {
        identity: identity.clone(),
        services,
        bus,
        runtime,
        seen: seen.clone(),
        clock: clock.clone(),
        gravestone: gravestone("agent"),
    };
    let agent = Agent::new(parts).start();
    let doorkeeper = Doorkeeper::new(door, agent.clone().recipient(), gravestone("doorkeeper")).start();
    let agent_served = serve(&node, &local, &agent, &doorkeeper).await.context("the agent cannot be reached through the bus")?;
    // What is taken from the bus behind the socket stands beside it and is nobody's to find on the fleet's.
    let on_the_bus = node.served().iter().chain(agent_served.iter().take(AGENT_ENDPOINTS));
    let announced = announce_services(&node.wiring, &identity, on_the_bus, &clock).await.context("the services cannot be announced")?;
    say_who(configuration, &node, &seen, &socket_path);
    Ok(Work { node, agent_deaths, rivals: Box::pin(rivals.next_older()), agent_served, announced, socket, _state: state })
}

/// The bus behind the socket: the node's own when there is no server, and else one of this process that works without any.
fn bus_of_the_socket(configuration: &Configuration, bus: &BusRef, clock: &Clock) -> BusRef {
    if configuration.settings().nats.is_wanted() { Arc::new(MemoryBus::new(clock.clone())) } else { Arc::clone(bus) }
}

/// Takes commands to the agent from the bus, and commands to every service from the bus behind the socket.
async fn serve(node: &Node, local: &BusRef, agent: &Addr<Agent>, doorkeeper: &Addr<Doorkeeper>) -> Result<Vec<Served>, BusError> {
    let mut served = serve_agent(&node.wiring, doorkeeper.clone().recipient(), agent).await?;
    if Arc::ptr_eq(local, &node.wiring.bus) {
        return Ok(served);
    }
    let wiring = Wiring { bus: Arc::clone(local), ..node.wiring.clone() };
    served.extend(pull_coordinator::serve(&wiring, &node.actors.coordinator).await?);
    served.extend(backoff_tracker::serve(&wiring, &node.actors.backoff).await?);
    served.extend(throttler::serve(&wiring, &node.actors.throttler).await?);
    served.extend(event_recorder::serve(&wiring, &node.actors.recorder).await?);
    // Rivals do not ask through the socket.
    served.extend(serve_agent(&wiring, agent.clone().recipient(), agent).await?);
    Ok(served)
}

async fn serve_agent(wiring: &Wiring, by_name: Recipient<Ask<DescribeNode>>, agent: &Addr<Agent>) -> Result<Vec<Served>, BusError> {
    // At once, because each waits for the server to confirm it.
    let (one, two, three, four) = futures::try_join!(
        actors::serve::<DescribeNode>(wiring, by_name),
        actors::serve::<CountAll>(wiring, agent.clone().recipient()),
        actors::serve_everywhere::<DescribeNode>(wiring, agent.clone().recipient()),
        actors::serve_everywhere::<CountAll>(wiring, agent.clone().recipient()),
    )?;
    Ok(vec![one, two, three, four])
}

/// What the runtime says of itself, or what is known without it where it takes too long.
async fn describe(runtime: &RuntimeRef, settings: &Settings) -> RuntimeDescription {
    match tokio::time::timeout(DESCRIBE_WITHIN, runtime.describe()).await {
        Ok(description) => description,
        Err(_) => RuntimeDescription {
            name: match settings.runtime.kind {
                RuntimeKind::OciLayout => "oci-layout".to_owned(),
                RuntimeKind::Cri => "cri".to_owned(),
            },
            place: settings.runtime.endpoint_on(Path::exists).unwrap_or_default(),
            problem: Some(format!("no answer within {DESCRIBE_WITHIN:?}: see whether it hangs")),
            credential_sources: vec!["not known yet".to_owned()],
            ..RuntimeDescription::default()
        },
    }
}

/// The one line that says what has started.
fn say_who(configuration: &Configuration, node: &Node, seen: &RuntimeDescription, socket: &Path) {
    let settings = configuration.settings();
    let runtime = name_and_version(seen);
    let bus = shown_bus(settings);
    let credentials = if seen.credential_sources.is_empty() { "anonymous".to_owned() } else { seen.credential_sources.join(", ") };
    let (node, socket) = (&node.wiring.node, socket.display());
    let place = &seen.place;
    match settings.runtime.kind {
        RuntimeKind::OciLayout => {
            info!(version = VERSION, %node, runtime, store = place, bus, credentials, %socket, "the agent has started")
        }
        RuntimeKind::Cri => {
            info!(version = VERSION, %node, runtime, runtime_endpoint = place, bus, credentials, %socket, "the agent has started")
        }
    }
    if let Some(problem) = &seen.problem {
        tracing::warn!(problem, "the runtime cannot be used yet");
    }
}

impl Work {
    pub(super) fn bus(&self) -> &BusRef {
        &self.node.wiring.bus
    }

    /// What the agent has to end for.
    pub(super) async fn next_trouble(&mut self) -> Trouble {
        tokio::select! {
            biased;
            service = self.node.deaths.next() => Trouble::Death(service),
            service = self.agent_deaths.next() => Trouble::Death(service),
            rival = &mut self.rivals => Trouble::Rival(rival),
        }
    }

    /// Takes no more commands, and hands what is recorded to the bus.
    pub(super) async fn stop(self) {
        let Self { node, agent_served, announced, socket, .. } = self;
        drop(announced);
        drop(agent_served);
        drop(socket);
        node.stop().await;
    }
}
