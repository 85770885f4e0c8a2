//! The fleet as a client sees it.

mod members;

use std::time::Duration;

use actors::{Delivery, PERSON, Sender, Wiring};
use anyhow::{Context as _, Result, anyhow, bail};
use bus::{BusRef, MessagingRef};
use clock::Clock;
use contract::messages::agent::{DescribeNode, NodeDescription};
use contract::subject::Fleet;
use contract::{CallError, Command, Envelope, NodeName};
use futures::{StreamExt as _, stream};
pub use members::Members;

use crate::cli::{FleetArgs, Format, NodesQuestionArgs, QuestionArgs, Selector};
use crate::configuration::Configuration;
use crate::exit::{Exit, UsageError};
use crate::node::{LocalAgent, connect_agent, connect_client, local_agent, root_envelope};
use crate::output;

/// How long one agent may take to answer a question: one that is alive takes milliseconds.
pub const ANSWER_WITHIN: Duration = Duration::from_secs(3);
/// How many agents are asked at a time: each question holds a request open.
const ASKED_AT_ONCE: usize = 100;

/// What one node answered, or why it did not, in words.
pub type Answer<R> = (NodeName, Result<R, String>);

/// Connects as `question` says and does `work` with the fleet, in an actix system. Below `quietest` nothing is logged unless
/// somebody asked for it: what goes wrong with the bus ends most commands, and is told then.
///
/// # Errors
/// The settings are wrong, the fleet is not reached, or what `work` says.
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

/// Connects to the fleet, or to the agent whose socket is named.
///
/// # Errors
/// Nothing says which fleet, or it is not reached.
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

/// If nothing names a fleet or an agent: connects to the agent that answers on this host, and says so unless it is to be quiet. None if
/// there is none.
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

/// The bus tries again by itself; a command does not, and there is another way to this machine's agent.
async fn advise(configuration: &Configuration, error: anyhow::Error) -> anyhow::Error {
    if Exit::of_error(&error) == Exit::Usage {
        return error;
    }
    let told = output::told(&error);
    let Some(told) = told.strip_suffix("; trying again") else { return error };
    let found = local_agent(configuration).await.ok().flatten();
    let url = found.map_or_else(|| "unix://STATE_DIR/agent.sock".to_owned(), |agent| agent.url);
    anyhow!("{told}. An agent on this machine answers without the bus: --agent {url}")
}

/// The agents behind a bus.
#[derive(Clone)]
pub struct FleetClient {
    reached: Reached,
    fleet: Fleet,
    clock: Clock,
}

/// Through what agents are reached.
#[derive(Clone)]
enum Reached {
    /// All of a fleet, through its bus.
    Fleet(BusRef),
    /// One agent, through its socket.
    Agent(LocalAgent),
}

impl FleetClient {
    /// The agents of `fleet` behind `bus`.
    #[must_use]
    pub fn new(bus: BusRef, fleet: Fleet, clock: Clock) -> Self {
        Self { reached: Reached::Fleet(bus), fleet, clock }
    }

    /// One agent of `fleet`.
    fn of_agent(agent: LocalAgent, fleet: Fleet) -> Self {
        Self { reached: Reached::Agent(agent), fleet, clock: Clock::host() }
    }

    /// The fleet.
    #[must_use]
    pub fn fleet(&self) -> &Fleet {
        &self.fleet
    }

    /// What carries the questions.
    #[must_use]
    pub fn messaging(&self) -> MessagingRef {
        match &self.reached {
            Reached::Fleet(bus) => bus.clone(),
            Reached::Agent(agent) => agent.bus.clone(),
        }
    }

    /// The fleet's bus, with its state and events; none if one agent is asked, through its socket.
    #[must_use]
    pub fn bus(&self) -> Option<&BusRef> {
        match &self.reached {
            Reached::Fleet(bus) => Some(bus),
            Reached::Agent(_) => None,
        }
    }

    /// The URL of the socket, if one agent is asked.
    fn socket(&self) -> Option<&str> {
        match &self.reached {
            Reached::Fleet(_) => None,
            Reached::Agent(agent) => Some(&agent.url),
        }
    }

    /// How a node is asked.
    #[must_use]
    pub fn wiring(&self, node: &NodeName) -> Wiring {
        Wiring { bus: self.messaging(), fleet: self.fleet.clone(), node: node.clone(), delivery: Delivery::Bus }
    }

    /// This host's clock.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Asks one agent.
    ///
    /// # Errors
    /// It did not answer, or refused.
    pub async fn ask<C: Command>(&self, node: &NodeName, command: C, timeout: Duration) -> Result<C::Reply, CallError> {
        self.ask_as(node, root_envelope(command), timeout).await
    }

    /// The same, in the trace that the envelope says.
    ///
    /// # Errors
    /// It did not answer, or refused.
    pub async fn ask_as<C: Command>(&self, node: &NodeName, envelope: Envelope<C>, timeout: Duration) -> Result<C::Reply, CallError> {
        Sender::<C>::remote(self.wiring(node)).call(envelope, timeout).await
    }

    /// Asks each of `nodes`, a hundred at a time, and gives the answers in their order.
    pub async fn ask_each<C: Command>(&self, nodes: &[NodeName], command: &C) -> Vec<Answer<C::Reply>> {
        let mut answers = Vec::with_capacity(nodes.len());
        self.hear_each(nodes, command, |node, answer| answers.push((node, answer))).await;
        answers
    }

    /// The same, for answers that are long: each is heard in its turn and none is kept.
    pub async fn hear_each<C: Command>(&self, nodes: &[NodeName], command: &C, mut hear: impl FnMut(NodeName, Result<C::Reply, String>)) {
        let ask = |node: NodeName| async move {
            let answer = self.ask(&node, command.clone(), ANSWER_WITHIN).await.map_err(|error| self.explain_silence(&node, &error));
            (node, answer)
        };
        let mut answers = stream::iter(nodes.to_vec()).map(ask).buffered(ASKED_AT_ONCE);
        while let Some((node, answer)) = answers.next().await {
            hear(node, answer);
        }
    }

    /// Asks every agent who it is, and sorts the answers by name.
    ///
    /// # Errors
    /// The bus did not take the question.
    pub async fn nodes(&self) -> Result<Vec<NodeDescription>> {
        let messaging = self.messaging();
        let asked = actors::gather(&messaging, &self.fleet, root_envelope(DescribeNode {}), PERSON, &self.clock);
        // A socket takes a question for an agent that is stopped, and nobody ever confirms it.
        let Ok(answered) = tokio::time::timeout(ANSWER_WITHIN, asked).await else {
            let whom = self.socket().map_or_else(|| "the bus".to_owned(), |socket| format!("the agent behind {socket}"));
            bail!("{whom} is silent for {ANSWER_WITHIN:?}: is it stopped, or very busy? If it stays so, start it again");
        };
        let mut nodes = answered.context("the fleet cannot be asked")?;
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
        self.check_socket(&nodes)?;
        if nodes.is_empty() {
            return Err(self.nobody_answers());
        }
        if let Some(selector) = selector {
            let answered = nodes.len();
            nodes.retain(|node| selector.matches(&node.labels));
            if nodes.is_empty() {
                return Err(members::no_node_has(selector, answered, 0));
            }
        }
        Ok(nodes)
    }

    /// An agent behind a socket answers if it is asked for its own fleet.
    fn check_socket(&self, answering: &[NodeDescription]) -> Result<()> {
        match self.socket().filter(|_| answering.is_empty()) {
            None => Ok(()),
            Some(socket) => bail!(
                "the agent behind {socket} does not answer for the fleet {:?}: ask with the --fleet that it was started with",
                self.fleet.name()
            ),
        }
    }

    fn nobody_answers(&self) -> anyhow::Error {
        anyhow!("no agent answers in the fleet {:?}: is `fleetpull run` at work, with the same --nats and --fleet?", self.fleet.name())
    }

    /// The nodes that a question is for: those named, else those that answer and that the selector means.
    ///
    /// # Errors
    /// As [`Self::answering`], and that the agent behind a socket is not the node named.
    pub async fn meant<F: Format>(&self, args: &NodesQuestionArgs<F>) -> Result<Vec<NodeName>> {
        self.named_or_answering(&args.nodes, args.question.fleet.selector.as_ref()).await
    }

    /// The nodes `named`, else those that answer and that `selector` means.
    ///
    /// # Errors
    /// As [`Self::meant`].
    pub async fn named_or_answering(&self, named: &[NodeName], selector: Option<&Selector>) -> Result<Vec<NodeName>> {
        if named.is_empty() {
            return Ok(self.answering(selector).await?.into_iter().map(|node| node.node).collect());
        }
        self.check_named(named).await?;
        let mut nodes = Vec::new();
        for node in named {
            if !nodes.contains(node) {
                nodes.push(node.clone());
            }
        }
        Ok(nodes)
    }

    /// An agent behind a socket speaks for its own node alone.
    ///
    /// # Errors
    /// Another node is among `named`.
    pub async fn check_named(&self, named: &[NodeName]) -> Result<()> {
        let Some(socket) = self.socket() else { return Ok(()) };
        let here = self.answering(None).await?;
        match named.iter().find(|node| !here.iter().any(|described| described.node == **node)) {
            None => Ok(()),
            Some(other) => {
                let names: Vec<&str> = here.iter().map(|described| described.node.as_str()).collect();
                let names = names.join(", ");
                Err(UsageError(format!(
                    "the agent behind {socket} is {names} and answers for that node alone: to ask {other}, give --nats URL, or --agent with the socket on that node's machine"
                ))
                .into())
            }
        }
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
