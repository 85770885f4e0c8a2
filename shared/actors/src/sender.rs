//! A typed sender: the same call whether the other service lives in this process or behind the bus.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use actix::prelude::SendError;
use actix::{MailboxError, Recipient};
use bus::{BusError, BusRef};
use contract::subject::Fleet;
use contract::{CallError, Command, Envelope, NodeName};
use futures::FutureExt as _;
use futures::future::Either;

use crate::ask::Ask;
use crate::wire;

/// How an addressee in the same process is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// Without leaving the process.
    Local,
    /// Over the bus all the same, so that services can be split over processes. When the bus does not carry the message, the
    /// addressee in this process is asked after all: a node goes on alone.
    Bus,
}

/// What a sender needs to reach the services of one node over the bus.
#[derive(Clone)]
pub struct Wiring {
    /// The bus.
    pub bus: BusRef,
    /// The fleet, for the subjects.
    pub fleet: Fleet,
    /// The node.
    pub node: NodeName,
    /// How an addressee in the same process is reached.
    pub delivery: Delivery,
}

/// Sends one kind of command to one node. Clones are cheap, as every call may need one.
pub struct Sender<C: Command>(Arc<Way<C>>);

/// How the addressee is reached.
struct Way<C: Command> {
    wiring: Wiring,
    local: Option<Recipient<Ask<C>>>,
    addressee: Addressee,
}

/// Whose service is asked over the bus.
#[derive(Clone, Copy, Debug)]
enum Addressee {
    /// The node of the wiring.
    Node,
    /// Whichever agent leads the service for the fleet.
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
    /// To a service that lives in this process.
    #[must_use]
    pub fn local(wiring: Wiring, recipient: Recipient<Ask<C>>) -> Self {
        Self(Arc::new(Way { wiring, local: Some(recipient), addressee: Addressee::Node }))
    }

    /// To a service behind the bus.
    #[must_use]
    pub fn remote(wiring: Wiring) -> Self {
        Self(Arc::new(Way { wiring, local: None, addressee: Addressee::Node }))
    }

    /// To the agent that leads the service for the whole fleet, whichever that is.
    #[must_use]
    pub fn to_leader(wiring: Wiring) -> Self {
        Self(Arc::new(Way { wiring, local: None, addressee: Addressee::Leader }))
    }

    /// Sends the command and waits for the reply. An addressee in this process has it in its mailbox when this returns, if there
    /// is room.
    ///
    /// # Errors
    /// [`CallError`] when there was no reply; whether the command was carried out is then not known. Send it again.
    pub fn call(&self, envelope: Envelope<C>, timeout: Duration) -> impl Future<Output = Result<C::Reply, CallError>> + use<C> {
        match (&self.0.local, self.0.wiring.delivery) {
            (Some(local), Delivery::Local) => Either::Left(ask(local, envelope)),
            // In a box, so that the usual call stays small: actors keep what they wait for on the heap.
            _ => Either::Right(Box::pin(self.clone().past_this_process(envelope, timeout))),
        }
    }

    /// Puts the command into the mailbox of an addressee in this process, which sees it before whatever is sent to it from now on;
    /// nobody waits for the reply. Gives the command back where that cannot be: the addressee is asked over the bus, has no room, or
    /// has ended. Then call.
    pub fn post(&self, envelope: Envelope<C>) -> Option<Envelope<C>> {
        match (&self.0.local, self.0.wiring.delivery) {
            (Some(local), Delivery::Local) => match local.try_send(Ask(envelope)) {
                Ok(()) => None,
                Err(SendError::Full(Ask(envelope)) | SendError::Closed(Ask(envelope))) => Some(envelope),
            },
            _ => Some(envelope),
        }
    }

    /// Sends the command over the bus to an addressee that is to be told, and waits for no answer: of a kind with [`Command::TOLD`].
    ///
    /// # Errors
    /// [`CallError`] when the bus did not take it. Whether anybody has heard it is not known.
    pub async fn tell(self, envelope: Envelope<C>) -> Result<(), CallError> {
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
        match self.0.addressee {
            Addressee::Node => match C::SENDER {
                Some(sender) => wiring.fleet.command_from(sender(body), &wiring.node, C::SERVICE, C::VERB),
                None => wiring.fleet.command(&wiring.node, C::SERVICE, C::VERB),
            },
            Addressee::Leader => wiring.fleet.command_to_leader(C::SERVICE, C::VERB),
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

/// Puts the command into the mailbox at once; what is left to await is the reply. No `async` block: each would hold what it
/// awaits twice, and calls are kept in blocks within blocks.
fn ask<C: Command>(recipient: &Recipient<Ask<C>>, envelope: Envelope<C>) -> impl Future<Output = Result<C::Reply, CallError>> + use<C> {
    recipient.send(Ask(envelope)).map(|answered| match answered {
        Ok(reply) => reply,
        Err(MailboxError::Closed | MailboxError::Timeout) => Err(CallError::Ended { service: C::SERVICE.name() }),
    })
}
