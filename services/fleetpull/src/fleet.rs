//! A client of the fleet.

mod connecting;
mod members;

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use actors::{Delivery, PERSON, Sender, Wiring};
use anyhow::{Context as _, Result, anyhow, bail};
use bus::{BusRef, MessagingRef};
use clock::Clock;
use contract::messages::agent::{DescribeNode, NodeDescription};
use contract::subject::Fleet;
use contract::{CallError, Command, Envelope, NodeName};
use futures::{StreamExt as _, stream};
use members::AskedContacts;

pub use connecting::{ask_fleet, ask_nats, connect, connect_here};
pub use members::Members;

use crate::cli::{Format, NodesQuestionArgs, Selector};
use crate::exit::UsageError;
use crate::node::{LocalAgent, root_envelope};
use crate::output::silent::milliseconds;
use crate::output::{one_line, units};

/// How long one agent may take to answer. A running agent takes milliseconds.
pub const ANSWER_WITHIN: Duration = Duration::from_secs(3);
/// Agents that are asked at the same time, because each request is held open.
pub const ASKED_AT_ONCE: usize = 100;
/// The version of this program, as its agent describes it.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The answer of a node, or a message with the reason why there is none.
pub type Answer<R> = (NodeName, Result<R, String>);

/// The agents behind a bus.
#[derive(Clone)]
pub struct FleetClient {
    reached: Reached,
    fleet: Fleet,
    clock: Clock,
    /// The last question when nodes were last seen.
    contacts: Rc<RefCell<Option<AskedContacts>>>,
}

/// The connection to the agents.
#[derive(Clone)]
enum Reached {
    /// All agents of a fleet, through its bus.
    Fleet(BusRef),
    /// One agent, through its socket.
    Agent(LocalAgent),
}

impl FleetClient {
    /// A client for the agents of `fleet` on `bus`.
    #[must_use]
    pub fn new(bus: BusRef, fleet: Fleet, clock: Clock) -> Self {
        Self { reached: Reached::Fleet(bus), fleet, clock, contacts: Rc::default() }
    }

    /// A client for one agent of `fleet`.
    fn of_agent(agent: LocalAgent, fleet: Fleet) -> Self {
        Self { reached: Reached::Agent(agent), fleet, clock: Clock::host(), contacts: Rc::default() }
    }

    /// The fleet.
    #[must_use]
    pub fn fleet(&self) -> &Fleet {
        &self.fleet
    }

    /// The bus or socket that carries the requests.
    #[must_use]
    pub fn messaging(&self) -> MessagingRef {
        match &self.reached {
            Reached::Fleet(bus) => bus.clone(),
            Reached::Agent(agent) => agent.bus.clone(),
        }
    }

    /// The fleet's bus, with its state and events. None if one agent is asked through its socket.
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

    /// The wiring for requests to a node.
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
    /// The agent did not answer, or refused.
    pub async fn ask<C: Command>(&self, node: &NodeName, command: C, timeout: Duration) -> Result<C::Reply, CallError> {
        self.ask_as(node, root_envelope(command), timeout).await
    }

    /// Like [`Self::ask`], in the trace of the envelope.
    ///
    /// # Errors
    /// The agent did not answer, or refused.
    pub async fn ask_as<C: Command>(&self, node: &NodeName, envelope: Envelope<C>, timeout: Duration) -> Result<C::Reply, CallError> {
        Sender::<C>::remote(self.wiring(node)).call(envelope, timeout).await
    }

    /// Asks one agent for something that it may not serve, because it is of an older version or does not share: then the reply is empty.
    ///
    /// # Errors
    /// The agent did not answer, or refused, so its reply is unknown.
    pub async fn ask_if_served<C: Command>(&self, node: &NodeName, command: C) -> Result<C::Reply, String>
    where
        C::Reply: Default,
    {
        match self.ask(node, command, ANSWER_WITHIN).await {
            Ok(reply) => Ok(reply),
            Err(CallError::NoResponders { .. }) => Ok(C::Reply::default()),
            Err(error) => Err(self.explain_silence(node, &error).await),
        }
    }

    /// Asks each of `nodes`, 100 at a time, and returns the answers in the same order.
    pub async fn ask_each<C: Command>(&self, nodes: &[NodeName], command: &C) -> Vec<Answer<C::Reply>> {
        let mut answers = Vec::with_capacity(nodes.len());
        self.for_each_answer(nodes, command, |node, answer| answers.push((node, answer))).await;
        answers
    }

    /// Like [`Self::ask_each`], but returns only the replies, and does not find out why others are missing.
    pub async fn replies_of<C: Command>(&self, nodes: &[NodeName], command: &C) -> Vec<(NodeName, C::Reply)> {
        let mut replies = Vec::new();
        self.for_each_reply(nodes, command, |node, reply| replies.push((node, reply))).await;
        replies
    }

    /// Like [`Self::replies_of`], for long replies: passes each reply to `on_reply` and keeps none.
    pub async fn for_each_reply<C: Command>(&self, nodes: &[NodeName], command: &C, mut on_reply: impl FnMut(NodeName, C::Reply)) {
        let ask = |node: NodeName| async move {
            let reply = self.ask(&node, command.clone(), ANSWER_WITHIN).await;
            (node, reply)
        };
        let mut replies = stream::iter(nodes.to_vec()).map(ask).buffered(ASKED_AT_ONCE);
        while let Some((node, reply)) = replies.next().await {
            if let Ok(reply) = reply {
                on_reply(node, reply);
            }
        }
    }

    /// Like [`Self::ask_each`], for long answers: passes each answer to `on_answer` and keeps none.
    pub async fn for_each_answer<C: Command>(
        &self,
        nodes: &[NodeName],
        command: &C,
        mut on_answer: impl FnMut(NodeName, Result<C::Reply, String>),
    ) {
        let ask = |node: NodeName| async move {
            let answer = match self.ask(&node, command.clone(), ANSWER_WITHIN).await {
                Ok(reply) => Ok(reply),
                Err(error) => Err(self.explain_silence(&node, &error).await),
            };
            (node, answer)
        };
        let mut answers = stream::iter(nodes.to_vec()).map(ask).buffered(ASKED_AT_ONCE);
        while let Some((node, answer)) = answers.next().await {
            on_answer(node, answer);
        }
    }

    /// Asks every agent to describe itself, and sorts the answers by name. If several agents have one name, the agent with
    /// the bus is the first: a duplicate agent, which works without the bus, answers only this question.
    ///
    /// # Errors
    /// The bus did not accept the request.
    pub async fn nodes(&self) -> Result<Vec<NodeDescription>> {
        let messaging = self.messaging();
        let asked = actors::gather(&messaging, &self.fleet, root_envelope(DescribeNode {}), PERSON, &self.clock);
        // A socket accepts a request even if its agent is stopped, so nothing would ever answer it.
        let Ok(answered) = tokio::time::timeout(ANSWER_WITHIN, asked).await else {
            let silent_side = self.socket().map_or_else(|| "the bus".to_owned(), |socket| format!("the agent behind {socket}"));
            bail!("{silent_side} is silent for {ANSWER_WITHIN:?}: is it stopped, or very busy? If it stays so, start it again");
        };
        let mut nodes = answered.context("the fleet cannot be asked")?;
        nodes.sort_by(|one, other| {
            let by_bus = || one.bus_loss.is_some().cmp(&other.bus_loss.is_some());
            one.node.cmp(&other.node).then_with(by_bus).then_with(|| one.instance.cmp(&other.instance))
        });
        nodes.dedup_by(|one, other| one.node == other.node && one.instance == other.instance);
        Ok(nodes)
    }

    /// The agents that answer and that `selector` selects, one for each name, by name; at least one.
    ///
    /// # Errors
    /// No agent answers, none is selected, or the bus did not accept the request.
    pub async fn answering(&self, selector: Option<&Selector>) -> Result<Vec<NodeDescription>> {
        let (mut nodes, _) = members::without_duplicates(self.nodes().await?);
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

    /// Checks that an agent behind a socket belongs to the configured fleet: it does not answer for another fleet.
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

    /// The nodes for a request: the given ones, else those that answer and are selected.
    ///
    /// # Errors
    /// Those of [`Self::answering`], and that the agent behind a socket is not the given node.
    pub async fn selected_nodes<F: Format>(&self, args: &NodesQuestionArgs<F>) -> Result<Vec<NodeName>> {
        self.named_or_answering(&args.nodes, args.question.fleet.selector.as_ref()).await
    }

    /// The nodes in `named`, else those that answer and that `selector` selects.
    ///
    /// # Errors
    /// Those of [`Self::selected_nodes`].
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

    /// Checks the given nodes: an agent behind a socket answers only for its own node.
    ///
    /// # Errors
    /// Another node is in `named`.
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

    /// The message for a node that the fleet does not know.
    #[must_use]
    pub fn unknown_node(&self) -> String {
        format!("no agent of that name in the fleet {:?}: `fleetpull nodes` lists those that are known", self.fleet.name())
    }

    /// The message for a request to `node` that was not answered.
    pub async fn explain_silence(&self, node: &NodeName, error: &CallError) -> String {
        match error {
            CallError::NoResponders { .. } => {
                if let Some(version) = self.other_version(node).await {
                    return format!(
                        "its agent has version {version} and does not know this command of version {VERSION}: upgrade the older of the two"
                    );
                }
                match self.last_contact(node).await {
                    Some(ago) => format!(
                        "known to the fleet, but its agent does not answer; last seen {} ago: is it running, and is its bus connected?",
                        units::age(milliseconds(ago))
                    ),
                    None => self.unknown_node(),
                }
            }
            CallError::TimedOut { timeout } => silent_agent(node, &format!("{timeout:?}")),
            // Another node wrote the reason of a refusal.
            other => one_line(&other.to_string()),
        }
    }

    /// The version of the agent of `node`, if it answers now and has another version than this program.
    async fn other_version(&self, node: &NodeName) -> Option<String> {
        let described = self.ask(node, DescribeNode {}, members::EXPLAINED_WITHIN).await.ok()?;
        Some(described.version).filter(|version| version != VERSION)
    }
}

/// The message for a node whose agent has not answered for this time.
#[must_use]
pub fn silent_agent(node: &NodeName, time: &str) -> String {
    format!("the agent of {node} is silent for {time}: is it running, and is its bus connected?")
}
