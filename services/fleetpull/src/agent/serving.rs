//! The buses on which an agent takes commands: the fleet's bus, and the bus behind the socket.

use std::sync::Arc;

use actix::{Addr, Recipient};
use actors::{Ask, Served, Wiring};
use bus::services::Announced;
use bus::{BusError, MessagingRef};
use clock::Clock;
use contract::messages::agent::{CountAll, DescribeNode, ReadMetrics, ReadSetup};
use futures::future::join_all;

use super::actor::Agent;
use super::announcement::announce_services;
use super::identity::Identity;
use super::name_watch::NameResponder;
use crate::node::Node;

/// Serves the agent's own commands on the fleet's bus, and all commands behind the socket. Dropping it stops serving.
#[derive(Debug)]
pub(super) struct Serving {
    _announced: Announced,
    served: Vec<Served>,
}

impl Serving {
    /// Starts to take commands. On a connected bus, the server has confirmed the subscriptions when this returns.
    ///
    /// # Errors
    /// The bus is closed.
    pub(super) async fn begin(
        node: &Node,
        local: &MessagingRef,
        agent: &Addr<Agent>,
        name_responder: &Addr<NameResponder>,
        identity: &Identity,
        clock: &Clock,
    ) -> Result<Self, BusError> {
        let on_the_bus = serve_agent(&node.wiring, name_responder.clone().recipient(), agent).await?;
        // The announcement lists only the services on the fleet's bus, not those behind the socket.
        let announced = announce_services(&node.wiring, identity, node.served().iter().chain(&on_the_bus), clock).await?;
        let is_the_same = Arc::ptr_eq(local, &node.wiring.bus);
        let mut served = on_the_bus;
        if !is_the_same {
            served.extend(serve_all(node, local, agent).await?);
        }
        Ok(Self { _announced: announced, served })
    }

    /// Stops taking commands, and tells waiting callers that no answer comes.
    pub(super) async fn end(self) {
        join_all(self.served.into_iter().map(Served::end)).await;
    }
}

/// Serves the commands of every service on another bus than the node's.
async fn serve_all(node: &Node, bus: &MessagingRef, agent: &Addr<Agent>) -> Result<Vec<Served>, BusError> {
    let wiring = Wiring { bus: Arc::clone(bus), ..node.wiring.clone() };
    let mut served = node.actors.serve(&wiring).await?;
    // Duplicate agents do not ask through the socket, so these requests go directly to the agent.
    served.extend(serve_agent(&wiring, agent.clone().recipient(), agent).await?);
    Ok(served)
}

async fn serve_agent(wiring: &Wiring, by_name: Recipient<Ask<DescribeNode>>, agent: &Addr<Agent>) -> Result<Vec<Served>, BusError> {
    // Concurrently, because each call waits for the server's confirmation.
    let (one, two, three, four, five, six) = futures::try_join!(
        actors::serve::<DescribeNode>(wiring, by_name),
        actors::serve::<CountAll>(wiring, agent.clone().recipient()),
        actors::serve_everywhere::<DescribeNode>(wiring, agent.clone().recipient()),
        actors::serve_everywhere::<CountAll>(wiring, agent.clone().recipient()),
        actors::serve::<ReadMetrics>(wiring, agent.clone().recipient()),
        actors::serve::<ReadSetup>(wiring, agent.clone().recipient()),
    )?;
    Ok(vec![one, two, three, four, five, six])
}
