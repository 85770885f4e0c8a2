//! Connects a command to its fleet, or to one agent through its socket.

use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow};
use bus::{BusError, BusRef};
use clock::Clock;
use contract::subject::Fleet;

use super::FleetClient;
use crate::cli::{FleetArgs, Format, QuestionArgs};
use crate::configuration::Configuration;
use crate::exit::{Exit, UsageError};
use crate::node::{LocalAgent, connect_agent, connect_client, connect_nats, local_agent};
use crate::output;

/// Connects to the fleet of `question` and runs `work` with it, in an actix system. Log messages below `quietest` are left out unless a
/// level was requested, because most commands end at a bus error and report it then.
///
/// # Errors
/// The settings are invalid, the fleet is not reached, or `work` fails.
pub fn ask_fleet<F: Format>(
    question: &QuestionArgs<F>,
    quietest: &str,
    work: impl AsyncFnOnce(FleetClient) -> Result<Exit>,
) -> Result<Exit> {
    let configuration = Configuration::load(&question.settings, question.flags())?;
    configuration.start_log(quietest);
    actix::System::new().block_on(async {
        let client = match connect_here(&question.fleet, &configuration, question.output.quiet).await? {
            Some(client) => client,
            None => connect(&question.fleet, &configuration).await?,
        };
        work(client).await
    })
}

/// Like [`ask_fleet`], for a command that needs the bus itself: it asks no agent through its socket, and its errors do not advise to ask
/// one. `refusal` is the error if the question names an agent.
///
/// # Errors
/// The question names an agent, the settings are invalid, the fleet is not reached, or `work` fails.
pub fn ask_nats(question: &QuestionArgs, refusal: &str, work: impl AsyncFnOnce(FleetClient, BusRef) -> Result<Exit>) -> Result<Exit> {
    let configuration = Configuration::load(&question.settings, question.flags())?;
    configuration.start_log("error");
    if question.fleet.agent.is_some() {
        return Err(UsageError(refusal.to_owned()).into());
    }
    actix::System::new().block_on(async {
        let fleet = fleet_of(&configuration)?;
        let bus: BusRef = Arc::new(connect_nats(configuration.settings()).await?);
        work(FleetClient::new(bus.clone(), fleet, Clock::host()), bus).await
    })
}

/// Connects to the fleet, or to the agent with the given socket.
///
/// # Errors
/// No fleet is configured, or it is not reached.
pub async fn connect(args: &FleetArgs, configuration: &Configuration) -> Result<FleetClient> {
    let fleet = fleet_of(configuration)?;
    if let Some(url) = &args.agent {
        return Ok(FleetClient::of_agent(LocalAgent { url: url.clone(), bus: connect_agent(url).await? }, fleet));
    }
    match connect_client(configuration.settings()).await {
        Ok(bus) => Ok(FleetClient::new(bus, fleet, Clock::host())),
        Err(error) => Err(advise(configuration, error).await),
    }
}

/// Connects to the agent that answers on this host if no fleet or agent is configured, and prints a remark about it unless `quiet`.
/// None if a fleet or agent is configured, or if no agent answers.
///
/// # Errors
/// Several agents answer on this host.
pub async fn connect_here(args: &FleetArgs, configuration: &Configuration, quiet: bool) -> Result<Option<FleetClient>> {
    if args.agent.is_some() || configuration.settings().nats.is_wanted() {
        return Ok(None);
    }
    let Some(agent) = local_agent(configuration).await? else { return Ok(None) };
    if !quiet {
        output::remark(&format!("asking the agent on this host alone, {}: give --nats URL to ask its whole fleet", agent.url));
    }
    Ok(Some(FleetClient::of_agent(agent, fleet_of(configuration)?)))
}

fn fleet_of(configuration: &Configuration) -> Result<Fleet> {
    Fleet::named(&configuration.settings().fleet.name).context("fleet.name is not valid")
}

/// Adds advice to an error, because a command does not retry but may reach this machine's agent through its socket.
async fn advise(configuration: &Configuration, error: anyhow::Error) -> anyhow::Error {
    if Exit::of_error(&error) == Exit::Usage {
        return error;
    }
    if !error.chain().any(|cause| matches!(cause.downcast_ref(), Some(BusError::Disconnected { .. }))) {
        return error;
    }
    let text = output::error_text(&error);
    let found = local_agent(configuration).await.ok().flatten();
    let url = found.map_or_else(|| "unix://STATE_DIR/agent.sock".to_owned(), |agent| agent.url);
    anyhow!("{text}. An agent on this machine answers without the bus: --agent {url}")
}
