//! A typed sender: the call is the same whether the other service runs in this process or behind the bus.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use actix::prelude::SendError;
use actix::{MailboxError, Recipient};
use bus::{BusError, MessagingRef};
use contract::subject::Fleet;
use contract::{CallError, Command, Envelope, NodeName};
use futures::FutureExt as _;
use futures::future::Either;

use crate::ask::Ask;
use crate::wire;

/// How a receiver in the same process is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// Without leaving the process.
    Local,
    /// Over the bus too, so that services can be split over processes. If the bus does not carry the message, the receiver in this process
    /// gets it directly, so that a node works without a bus.
    Bus,
}

/// What a sender needs to reach the services of one node over the bus.
#[derive(Clone)]
pub struct Wiring {
    /// The bus, for messages alone.
    pub bus: MessagingRef,
    /// The fleet, for the subjects.
    pub fleet: Fleet,
    /// The node.
    pub node: NodeName,
    /// How a receiver in the same process is reached.
    pub delivery: Delivery,
}

/// Sends one kind of command to one node. Clones are cheap, because every call may need one.
pub struct Sender<C: Command>(Arc<Route<C>>);

/// How the receiver is reached.
struct Route<C: Command> {
    wiring: Wiring,
    local: Option<Recipient<Ask<C>>>,
    receiver: Receiver,
}

/// The receiver over the bus.
#[derive(Clone, Copy, Debug)]
enum Receiver {
    /// The node of the wiring.
    Node,
    /// The agent that leads the service for the fleet.
    Leader,
}

impl<C: Command> Clone for Sender<C> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<C: Command> fmt::Debug for Sender<C> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Sender({} of {})", C::SERVICE.name(), self.0.wiring.node)
    }
}

impl<C: Command> Sender<C> {
    /// A sender to a service in this process.
    #[must_use]
    pub fn local(wiring: Wiring, recipient: Recipient<Ask<C>>) -> Self {
        Self(Arc::new(Route { wiring, local: Some(recipient), receiver: Receiver::Node }))
    }

    /// A sender to a service behind the bus.
    #[must_use]
    pub fn remote(wiring: Wiring) -> Self {
        Self(Arc::new(Route { wiring, local: None, receiver: Receiver::Node }))
    }

    /// A sender to the agent that leads the service for the fleet.
    #[must_use]
    pub fn to_leader(wiring: Wiring) -> Self {
        Self(Arc::new(Route { wiring, local: None, receiver: Receiver::Leader }))
    }

    /// Sends the command and waits for the reply. When this returns, a receiver in this process has the command in its mailbox, if there is
    /// room.
    ///
    /// # Errors
    /// There was no reply; it is unknown whether the command was carried out. Send it again.
    pub fn call(&self, envelope: Envelope<C>, timeout: Duration) -> impl Future<Output = Result<C::Reply, CallError>> + use<C> {
        match (&self.0.local, self.0.wiring.delivery) {
            (Some(local), Delivery::Local) => Either::Left(ask(local, envelope)),
            // Boxed, so that the usual call's future stays small.
            _ => Either::Right(Box::pin(self.clone().past_this_process(envelope, timeout))),
        }
    }

    /// Puts the command into the mailbox of a receiver in this process, before any later message, without waiting for the reply. Returns
    /// the command if this is not possible, because the receiver is reached over the bus, is full or has ended; then use [`Self::call`].
    pub fn post(&self, envelope: Envelope<C>) -> Option<Envelope<C>> {
        match (&self.0.local, self.0.wiring.delivery) {
            (Some(local), Delivery::Local) => match local.try_send(Ask(envelope)) {
                Ok(()) => None,
                Err(SendError::Full(Ask(envelope)) | SendError::Closed(Ask(envelope))) => Some(envelope),
            },
            _ => Some(envelope),
        }
    }

    /// Sends the command over the bus without waiting for an answer. Only for commands with [`Command::ALLOWS_ONE_WAY`].
    ///
    /// # Errors
    /// The bus did not take it. Success does not mean that it was received.
    pub async fn send_one_way(self, envelope: Envelope<C>) -> Result<(), CallError> {
        let message = wire::encode_command(self.subject(&envelope.body), &envelope)?;
        self.0.wiring.bus.publish(message).await.map_err(|error| CallError::Bus { reason: error.to_string() })
    }

    async fn past_this_process(self, envelope: Envelope<C>, timeout: Duration) -> Result<C::Reply, CallError> {
        match (&self.0.local, self.over_the_bus(&envelope, timeout).await) {
            (Some(local), Err(CallError::Bus { reason })) => {
                tracing::debug!(service = C::SERVICE.name(), reason, "the bus did not carry a command; asking in this process");
                ask(local, envelope).await
            }
            (Some(local), Err(CallError::NoResponders { .. } | CallError::TimedOut { .. })) => ask(local, envelope).await,
            (_, answered) => answered,
        }
    }

    fn subject(&self, body: &C) -> String {
        let wiring = &self.0.wiring;
        match self.0.receiver {
            Receiver::Node => match C::SENDER {
                Some(sender) => wiring.fleet.command_from(sender(body), &wiring.node, C::SERVICE, C::VERB),
                None => wiring.fleet.command(&wiring.node, C::SERVICE, C::VERB),
            },
            Receiver::Leader => wiring.fleet.command_to_leader(C::SERVICE, C::VERB),
        }
    }

    async fn over_the_bus(&self, envelope: &Envelope<C>, timeout: Duration) -> Result<C::Reply, CallError> {
        let message = wire::encode_command(self.subject(&envelope.body), envelope)?;
        match self.0.wiring.bus.request(message, timeout).await {
            Ok(reply) => wire::decode_reply(&reply),
            Err(BusError::NoResponders { subject }) => Err(CallError::NoResponders { subject }),
            Err(BusError::TimedOut { timeout, .. }) => Err(CallError::TimedOut { timeout }),
            Err(error @ (BusError::TooLarge { .. } | BusError::BadSubject { .. })) => Err(CallError::Refused { reason: error.to_string() }),
            Err(error) => Err(CallError::Bus { reason: error.to_string() }),
        }
    }
}

/// Puts the command into the mailbox at once; the future waits for the reply. It is no `async` block, because nested ones would take the
/// call's memory twice each.
fn ask<C: Command>(recipient: &Recipient<Ask<C>>, envelope: Envelope<C>) -> impl Future<Output = Result<C::Reply, CallError>> + use<C> {
    recipient.send(Ask(envelope)).map(|answered| match answered {
        Ok(reply) => reply,
        Err(MailboxError::Closed | MailboxError::Timeout) => Err(CallError::Ended { service: C::SERVICE.name() }),
    })
}
