//! Connects a process to its bus.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use bus::memory::MemoryBus;
use bus::nats::{LoggedHealth, NatsBus, NatsOptions};
use bus::socket::SocketBus;
use bus::{BusError, BusHealth, BusRef, Messaging as _, MessagingRef};
use clock::Clock;
use contract::NodeName;
use futures::StreamExt as _;
use nats_accounts::inbox_prefix;
use settings::{Nats, Settings};

use crate::exit::UsageError;

/// How long a command waits for the server, which answers within milliseconds if it is there.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// The text of an error in the settings of the bus.
const UNUSABLE: &str = "NATS cannot be used as it is set";

/// The name of a client's connection in the server's list.
const CLIENT_NAME: &str = "fleetpull";

/// The bus of an agent: NATS if it is configured, even if no server is reachable now, else a bus in this process. In a fleet of
/// `fleet_size` nodes, which may have restarted together, the first connection is delayed to spread the load. Must be called within a tokio
/// runtime.
///
/// # Errors
/// The settings cannot be used: a file is missing, or a URL is invalid.
pub async fn open_bus(settings: &Settings, node: &NodeName, fleet_size: u64, clock: &Clock) -> Result<BusRef> {
    if !settings.nats.is_wanted() {
        return Ok(Arc::new(MemoryBus::new(clock.clone())));
    }
    let options = NatsOptions { fleet_size, ..options_of_agent(settings, node) };
    Ok(Arc::new(NatsBus::connect(options).await.context(UNUSABLE)?))
}

/// A second connection of an agent whose bus is suspended. Its health is not logged, because it would read as that of the bus. Must be
/// called within a tokio runtime.
///
/// # Errors
/// No server is configured, or the settings cannot be used.
pub async fn open_second_connection(settings: &Settings, node: &NodeName) -> Result<BusRef> {
    let options = NatsOptions { logged: LoggedHealth::Nothing, ..options_of_agent(settings, node) };
    Ok(Arc::new(NatsBus::connect(options).await.context(UNUSABLE)?))
}

fn options_of_agent(settings: &Settings, node: &NodeName) -> NatsOptions {
    let mut options = nats_options(&settings.nats, &format!("{CLIENT_NAME} {node}"));
    // An identity of `fleetpull nats-auth` may subscribe only to its own inboxes. A context has its own prefix.
    if options.inbox_prefix.is_none() && options.context.is_none() && options.token_file.is_some() {
        options.inbox_prefix = Some(inbox_prefix(node));
    }
    options
}

/// Checks the settings and files of the bus as [`open_bus`] does.
///
/// # Errors
/// The settings cannot be used: a file is missing, or a URL is invalid.
pub fn check_bus(settings: &Settings) -> Result<()> {
    if !settings.nats.is_wanted() {
        return Ok(());
    }
    nats_options(&settings.nats, CLIENT_NAME).check().context(UNUSABLE)
}

/// The connected bus of a command. Must be called within a tokio runtime.
///
/// # Errors
/// No fleet is configured, its settings cannot be used, every server refuses, or none is reached within 5 s.
pub async fn connect_client(settings: &Settings) -> Result<BusRef> {
    if !settings.nats.is_wanted() {
        let advice = "no fleet to ask: give --nats URL (or nats.url, FLEETPULL_NATS_URL, NATS_URL), or --agent unix://PATH for the agent on this machine";
        return Err(UsageError(advice.to_owned()).into());
    }
    Ok(Arc::new(connect_nats(settings).await?))
}

/// A connected NATS bus as configured. Must be called within a tokio runtime.
///
/// # Errors
/// No server is configured, its settings cannot be used, every server refuses, or none is reached within 5 s.
pub async fn connect_nats(settings: &Settings) -> Result<NatsBus> {
    if !settings.nats.is_wanted() {
        let advice = "no NATS server is named: give --nats URL (or nats.url, FLEETPULL_NATS_URL, NATS_URL) or --nats-context NAME";
        return Err(UsageError(advice.to_owned()).into());
    }
    let options = NatsOptions { logged: LoggedHealth::ChangesOnceConnected, ..nats_options(&settings.nats, CLIENT_NAME) };
    let bus = NatsBus::connect(options).await.context(UNUSABLE)?;
    reach(&bus).await.context("the fleet cannot be asked")?;
    Ok(bus)
}

/// Waits until the bus is connected, or until every server has refused. A server that hangs may still answer.
async fn reach(bus: &NatsBus) -> Result<(), BusError> {
    let mut states = bus.health_changes();
    let refused = async {
        while let Some(health) = states.next().await {
            if let BusHealth::Disconnected { reason } = health
                && bus.is_refused_by_all()
            {
                return reason;
            }
        }
        std::future::pending().await
    };
    tokio::select! {
        biased;
        reached = bus.wait_connected(CONNECT_WITHIN) => reached,
        reason = refused => Err(BusError::Disconnected { reason }),
    }
}

/// The connection of a command to one agent, through the socket of the URL.
///
/// # Errors
/// The URL does not name a socket, or no agent answers there.
pub async fn connect_agent(url: &str) -> Result<MessagingRef> {
    let path = url.strip_prefix("unix://").unwrap_or(url);
    if !path.starts_with('/') {
        return Err(UsageError(format!("--agent {url:?} is no socket: write unix:///path/to/agent.sock")).into());
    }
    let connected = SocketBus::connect(Path::new(path)).await.map_err(|error| match error {
        // The error is not about a bus, and its reason already names the socket.
        BusError::Disconnected { reason } => anyhow::Error::msg(reason),
        error => error.into(),
    });
    Ok(Arc::new(connected.context("this machine's agent cannot be asked")?))
}

/// The bus as text: the servers without their logins, a context, or `none`.
#[must_use]
pub fn shown_bus(settings: &Settings) -> String {
    if settings.nats.is_wanted() { nats_options(&settings.nats, CLIENT_NAME).redacted() } else { "none".to_owned() }
}

fn nats_options(nats: &Nats, connection_name: &str) -> NatsOptions {
    let urls: Vec<&str> = nats.url.iter().map(settings::ServerUrl::expose).collect();
    // The settings have already read the variables of the nats CLI; only the path of its contexts is read here.
    let places = NatsOptions::from_env_of_nats_cli(|name| match name {
        "HOME" | "XDG_CONFIG_HOME" => std::env::var(name).ok(),
        _ => None,
    });
    let set = NatsOptions {
        urls: (!urls.is_empty()).then(|| urls.join(",")),
        creds: nats.creds.clone(),
        nkey: nats.nkey.clone(),
        token_file: nats.token_file.clone(),
        inbox_prefix: nats.inbox_prefix.clone(),
        ca: nats.ca.clone(),
        cert: nats.cert.clone(),
        key: nats.key.clone(),
        context: nats.context.clone(),
        name: Some(connection_name.to_owned()),
        ..NatsOptions::default()
    };
    set.or(places)
}
