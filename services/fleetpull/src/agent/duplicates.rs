//! Finds duplicate agents. Two of them on one bus would both pull and both answer, so the younger one goes on without the bus until the
//! name is free. Meanwhile it only describes itself to those that ask all nodes.

use std::sync::Arc;
use std::time::Duration;

use actix::Recipient;
use actors::{Ask, Sender, Served, Wiring, serve_everywhere};
use bus::{BusHealth, BusRef};
use clock::{Now, Random};
use contract::messages::agent::{DescribeNode, NodeDescription};
use contract::{CallError, Envelope, Meta};
use futures::StreamExt as _;
use settings::Settings;
use tracing::{info, warn};

use super::condition::rfc_3339;
use super::identity::Identity;
use super::name_watch::{ANSWER_WITHIN, NameRequests};
use crate::node::open_second_connection;

/// How often an agent without the bus checks whether the name is free.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// After this many unanswered requests the name counts as free: a machine that loses power ends no connection, and the server keeps the
/// subscription of its agent for minutes.
const UNANSWERED: u32 = 3;
/// After this many checks the log repeats that this agent goes on without the bus.
const LOOKS_PER_WARNING: u32 = 60;

/// Looks for duplicate agents while this agent runs.
pub(super) struct Duplicates {
    identity: Identity,
    bus: BusRef,
    wiring: Wiring,
    name_requests: Arc<NameRequests>,
    settings: Settings,
    random: Random,
    /// The agent that holds the name. None if this agent does.
    holder: Option<NodeDescription>,
}

/// The result of a request to this node's name.
enum Answer {
    /// Another agent has it.
    Other(Box<NodeDescription>),
    /// Nobody has subscribed to it.
    Nobody,
    /// An agent with this name may be running.
    Unknown,
}

impl Duplicates {
    pub(super) fn new(identity: Identity, bus: BusRef, wiring: Wiring, name_requests: Arc<NameRequests>, settings: Settings) -> Self {
        Self { identity, bus, wiring, name_requests, settings, random: Random::from_system(), holder: None }
    }

    /// Gives the bus to an agent that already answers to this name, whichever of the two is older. Must run before this agent answers to
    /// the name.
    pub(super) async fn look_first(&mut self) {
        if let Answer::Other(holder) = self.ask(&self.wiring.clone()).await {
            self.go_on_without_bus(*holder);
        }
    }

    /// Goes on without the bus while an older agent has the name. Never returns. `agent` describes the node.
    pub(super) async fn keep(mut self, agent: Recipient<Ask<DescribeNode>>) {
        loop {
            if self.holder.is_none() {
                let older = self.next_older().await;
                self.go_on_without_bus(older);
            }
            self.until_free(&agent).await;
            info!("the name of this node is free: this agent takes it, and uses the bus");
            self.holder = None;
            self.bus.set_suspended(None);
        }
    }

    fn go_on_without_bus(&mut self, holder: NodeDescription) {
        let reason = held_by(&holder);
        warn!(reason, "this agent goes on without the bus");
        self.bus.set_suspended(Some(reason));
        self.holder = Some(holder);
    }

    /// Waits for an older agent with this name. Asks at each connect, and whenever another agent asks for this name, because that may be a
    /// duplicate that connected later.
    async fn next_older(&mut self) -> NodeDescription {
        let mut states = self.bus.health_changes();
        let mut is_connected = false;
        loop {
            let is_due = tokio::select! {
                biased;
                state = states.next() => {
                    let Some(health) = state else { return std::future::pending().await };
                    let was_connected = std::mem::replace(&mut is_connected, !matches!(health, BusHealth::Disconnected { .. }));
                    is_connected && !was_connected
                }
                () = self.name_requests.asked_by_others() => is_connected,
            };
            if !is_due {
                continue;
            }
            if let Answer::Other(other) = self.ask(&self.wiring.clone()).await {
                if self.identity.is_younger_than(other.started_ms, &other.instance) {
                    return *other;
                }
                warn!(
                    instance = other.instance,
                    host = other.host,
                    "a younger duplicate agent answers to this node's name; it goes on without the bus when it finds this one"
                );
            }
            // This pause keeps two agents that ask each other from looping at full speed.
            tokio::time::sleep(ANSWER_WITHIN).await;
        }
    }

    /// Waits until no other agent has the name. Asks through a separate connection, because this agent's bus is set aside. On the same
    /// connection this agent describes itself, so that lists of the fleet show it and why it is without the bus.
    async fn until_free(&mut self, agent: &Recipient<Ask<DescribeNode>>) {
        let (mut second_connection, mut served, mut unanswered) = (None, None::<Served>, 0);
        for look in 1_u32.. {
            tokio::time::sleep(LOOK_EVERY).await;
            if second_connection.is_none() {
                second_connection = open_second_connection(&self.settings, &self.identity.node)
                    .await
                    .inspect_err(|error| warn!(error = format!("{error:#}"), "it is not known whether the duplicate agent still runs"))
                    .ok();
            }
            let Some(bus) = second_connection.clone() else { continue };
            let is_connected = !matches!(bus.health(), BusHealth::Disconnected { .. });
            let wiring = Wiring { bus, ..self.wiring.clone() };
            if served.is_none() {
                served = serve_everywhere(&wiring, agent.clone())
                    .await
                    .inspect_err(|error| warn!(%error, "lists of the fleet do not show this agent"))
                    .ok();
            }
            match self.ask(&wiring).await {
                Answer::Other(other) => {
                    unanswered = 0;
                    self.see_holder(*other, look);
                }
                Answer::Nobody => return,
                Answer::Unknown if is_connected => unanswered += 1,
                Answer::Unknown => {}
            }
            if unanswered >= UNANSWERED {
                return;
            }
        }
    }

    /// Records the name's current holder, which may differ from the previous one.
    fn see_holder(&mut self, other: NodeDescription, look: u32) {
        if self.holder.as_ref().is_none_or(|holder| holder.instance != other.instance) {
            self.go_on_without_bus(other);
        } else if look.is_multiple_of(LOOKS_PER_WARNING) {
            warn!(reason = held_by(&other), "this agent still goes on without the bus");
        }
    }

    async fn ask(&mut self, wiring: &Wiring) -> Answer {
        let meta = Meta::root(&mut self.random);
        self.name_requests.expect_own(meta.message_id);
        let ask = Sender::<DescribeNode>::remote(wiring.clone());
        match ask.call(Envelope { meta, body: DescribeNode {} }, ANSWER_WITHIN).await {
            Ok(other) if other.instance == self.identity.instance => Answer::Unknown,
            Ok(other) => Answer::Other(Box::new(other)),
            Err(CallError::Refused { reason }) => {
                warn!(reason, "an agent answers to this node's name without its instance id");
                Answer::Unknown
            }
            Err(CallError::NoResponders { .. }) => Answer::Nobody,
            Err(_) => Answer::Unknown,
        }
    }
}

/// Describes the agent that holds the name, and what to change.
fn held_by(holder: &NodeDescription) -> String {
    let started = rfc_3339(Now { wall: Duration::from_millis(holder.started_ms), ..Now::default() });
    let host = if holder.host.is_empty() { String::new() } else { format!("on the host {}, ", holder.host) };
    format!(
        "a duplicate agent holds the name {} ({host}instance {}, version {}, started {started}): give this one another name with --node or node.name, or stop that one",
        holder.node, holder.instance, holder.version
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duplicate_agent_is_described_with_and_without_its_host() {
        let holder = NodeDescription {
            node: "n1".parse().expect("a name"),
            instance: "abc".to_owned(),
            host: "rack-7".to_owned(),
            started_ms: 1_700_000_000_000,
            version: "0.1.0".to_owned(),
            state: "ok".to_owned(),
            since_ms: 0,
            runtime: String::new(),
            labels: std::collections::BTreeMap::new(),
            zone: String::new(),
            pulling: 0,
            waiting: 0,
            standing: 0,
            backoff: 0,
            oldest_unsent_ms: 0,
            share: String::new(),
            reads_versions: Vec::new(),
            policy_revision: 0,
            bus_loss: None,
            bus_unset: false,
        };
        let advice = "started 2023-11-14T22:13:20Z): give this one another name with --node or node.name, or stop that one";
        let text = held_by(&holder);
        assert_eq!(text, format!("a duplicate agent holds the name n1 (on the host rack-7, instance abc, version 0.1.0, {advice}"));
        let text = held_by(&NodeDescription { host: String::new(), ..holder });
        assert_eq!(text, format!("a duplicate agent holds the name n1 (instance abc, version 0.1.0, {advice}"));
    }
}
