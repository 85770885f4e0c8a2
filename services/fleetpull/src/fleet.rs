//! The fleet as a client sees it.

use std::time::Duration;

use actors::{Delivery, PERSON, Sender, Wiring};
use anyhow::{Context as _, Result, anyhow, bail};
use bus::BusRef;
use clock::Clock;
use contract::messages::agent::{DescribeNode, NodeDescription};
use contract::subject::Fleet;
use contract::{CallError, Command, NodeName};

use crate::cli::{FleetArgs, Selector};
use crate::configuration::Configuration;
use crate::exit::Exit;
use crate::node::{connect_client, root_envelope};
use crate::output;

/// How long one agent may take to answer a question: one that is alive takes milliseconds.
pub const ANSWER_WITHIN: Duration = Duration::from_secs(3);

/// Connects to the fleet, or to this machine's agent through its socket.
///
/// # Errors
/// Nothing says which fleet, or it is not reached.
pub async fn connect(args: &FleetArgs, configuration: &Configuration) -> Result<FleetClient> {
    let bus = connect_client(configuration.settings(), args.agent.as_deref()).await.map_err(|error| advise(args, error))?;
    let fleet = Fleet::named(&configuration.settings().fleet.name).context("fleet.name is not valid")?;
    Ok(FleetClient::new(bus, fleet, Clock::host()))
}

/// The bus tries again by itself; a command does not, and there is another way to this machine's agent.
fn advise(args: &FleetArgs, error: anyhow::Error) -> anyhow::Error {
    if args.agent.is_some() || Exit::of_error(&error) == Exit::Usage {
        return error;
    }
    let told = output::told(&error);
    let Some(told) = told.strip_suffix("; trying again") else { return error };
    anyhow!("{told}. An agent on this machine answers without the bus: --agent unix://STATE_DIR/agent.sock")
}

/// The agents behind a bus.
#[derive(Clone)]
pub struct FleetClient {
    bus: BusRef,
    fleet: Fleet,
    clock: Clock,
}

impl FleetClient {
    /// The agents of `fleet` behind `bus`.
    #[must_use]
    pub fn new(bus: BusRef, fleet: Fleet, clock: Clock) -> Self {
        Self { bus, fleet, clock }
    }

    /// The fleet.
    #[must_use]
    pub fn fleet(&self) -> &Fleet {
        &self.fleet
    }

    /// The bus.
    #[must_use]
    pub fn bus(&self) -> &BusRef {
        &self.bus
    }

    /// Asks one agent.
    ///
    /// # Errors
    /// It did not answer, or refused.
    pub async fn ask<C: Command>(&self, node: &NodeName, command: C, timeout: Duration) -> Result<C::Reply, CallError> {
        let wiring = Wiring { bus: self.bus.clone(), fleet: self.fleet.clone(), node: node.clone(), delivery: Delivery::Bus };
        Sender::<C>::remote(wiring).call(root_envelope(command), timeout).await
    }

    /// Asks every agent who it is, and sorts the answers by name.
    ///
    /// # Errors
    /// The bus did not take the question.
    pub async fn nodes(&self) -> Result<Vec<NodeDescription>> {
        let mut nodes = actors::gather(&self.bus, &self.fleet, root_envelope(DescribeNode {}), PERSON, &self.clock)
            .await
            .context("the fleet cannot be asked")?;
        nodes.sort_by(|one, other| one.node.cmp(&other.node));
        nodes.dedup_by(|one, other| one.node == other.node && one.instance == other.instance);
        Ok(nodes)
    }

    /// The agents that answer and that `selector` means, by name; there is at least one.
    ///
    /// # Errors
    /// Nobody answers, none of them is meant, or the bus did not take the question.
    pub async fn answering(&self, selector: Option<&Selector>) -> Result<Vec<NodeDescription>> {
        let mut nodes = self.nodes().await?;
        if nodes.is_empty() {
            bail!("no agent answers in the fleet {:?}: is `fleetpull run` at work, with the same --nats and --fleet?", self.fleet.name());
        }
        if let Some(selector) = selector {
            let answered = nodes.len();
            nodes.retain(|node| selector.matches(&node.labels));
            if nodes.is_empty() {
                bail!("no node has the labels {}: {answered} answered, `fleetpull nodes -o json` shows theirs", selector.as_str());
            }
        }
        Ok(nodes)
    }

    /// What to tell somebody whose question to `node` was not answered.
    #[must_use]
    pub fn explain_silence(&self, node: &NodeName, error: &CallError) -> String {
        match error {
            CallError::NoResponders { .. } => {
                format!("no agent of that name in the fleet {:?}: `fleetpull nodes` lists those that answer", self.fleet.name())
            }
            CallError::TimedOut { timeout } => {
                format!("the agent of {node} is silent for {timeout:?}: is it running, and is its bus connected?")
            }
            other => other.to_string(),
        }
    }
}
