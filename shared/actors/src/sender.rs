//! A typed sender: the same call whether the other service lives in this process or behind the bus.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use actix::{MailboxError, Recipient};
use bus::{BusError, BusRef};
use contract::subject::Fleet;
use contract::{CallError, Command, Envelope, NodeName};

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
        Self(Arc::new(Way { wiring, local: Some(recipient) }))
    }

    /// To a service behind the bus.
    #[must_use]
    pub fn remote(wiring: Wiring) -> Self {
        Self(Arc::new(Way { wiring, local: None }))
    }

    /// Sends the command and waits for the reply.
    ///
    /// # Errors
    /// [`CallError`] when there was no reply; whether the command was carried out is then not known. Send it again.
    pub async fn call(&self, mut envelope: Envelope<C>, timeout: Duration) -> Result<C::Reply, CallError> {
        let Way { wiring, local } = &*self.0;
        match (local, wiring.delivery) {
            (Some(local), Delivery::Local) => ask(local, envelope).await,
            (None, _) => self.over_the_bus(&mut envelope, timeout).await,
            (Some(local), Delivery::Bus) => match self.over_the_bus(&mut envelope, timeout).await {
                Err(CallError::Bus { reason }) => {
                    tracing::debug!(service = C::SERVICE.name(), reason, "the bus did not carry a command; asking in this process");
                    ask(local, envelope).await
                }
                Err(CallError::NoResponders { .. } | CallError::TimedOut { .. }) => ask(local, envelope).await,
                answered => answered,
            },
        }
    }

    async fn over_the_bus(&self, envelope: &mut Envelope<C>, timeout: Duration) -> Result<C::Reply, CallError> {
        let wiring = &self.0.wiring;
        let subject = wiring.fleet.command(&wiring.node, C::SERVICE, C::VERB);
        envelope.meta.deadline = Some(timeout);
        let message = wire::encode_command(subject, envelope)?;
        match wiring.bus.request(message, timeout).await {
            Ok(reply) => wire::decode_reply(&reply),
            Err(BusError::NoResponders { subject }) => Err(CallError::NoResponders { subject }),
            Err(BusError::TimedOut { timeout, .. }) => Err(CallError::TimedOut { timeout }),
            Err(error @ (BusError::TooLarge { .. } | BusError::BadSubject { .. })) => Err(CallError::Refused { reason: error.to_string() }),
            Err(error) => Err(CallError::Bus { reason: error.to_string() }),
        }
    }
}

async fn ask<C: Command>(recipient: &Recipient<Ask<C>>, envelope: Envelope<C>) -> Result<C::Reply, CallError> {
    match recipient.send(Ask(envelope)).await {
        Ok(reply) => reply,
        Err(MailboxError::Closed | MailboxError::Timeout) => Err(CallError::Ended { service: C::SERVICE.name() }),
    }
}
