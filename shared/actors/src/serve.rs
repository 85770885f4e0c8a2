//! From the bus to an actor.

use std::sync::Arc;

use actix::Recipient;
use bus::{BusError, BusRef, Message, Subscription};
use clock::Random;
use contract::{CallError, Command};
use futures::StreamExt as _;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use crate::ask::Ask;
use crate::sender::Wiring;
use crate::wire;

/// How many requests of one kind may stand at a time on one node; the next is refused at once. A wish may stand for hours, and
/// each costs a few KiB.
pub const MAX_STANDING_REQUESTS: usize = 4096;

/// One command being taken from the bus. Dropping it ends that.
#[derive(Debug)]
pub struct Served(JoinHandle<()>);

impl Drop for Served {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Takes the commands `C` for one node from the bus to an actor. When this returns on a connected bus, the server knows.
///
/// # Errors
/// The bus is closed.
pub async fn serve<C: Command>(wiring: &Wiring, recipient: Recipient<Ask<C>>) -> Result<Served, BusError> {
    let subject = wiring.fleet.command(&wiring.node, C::SERVICE, C::VERB);
    let commands = wiring.bus.subscribe(&subject, None).await?;
    Ok(Served(actix::spawn(take(commands, Arc::clone(&wiring.bus), recipient))))
}

/// Takes the commands `C` that are sent to every node.
///
/// # Errors
/// The bus is closed.
pub async fn serve_everywhere<C: Command>(wiring: &Wiring, recipient: Recipient<Ask<C>>) -> Result<Served, BusError> {
    let commands = wiring.bus.subscribe(&wiring.fleet.command_to_all(C::SERVICE, C::VERB), None).await?;
    Ok(Served(actix::spawn(take(commands, Arc::clone(&wiring.bus), recipient))))
}

async fn take<C: Command>(mut commands: Subscription, bus: BusRef, recipient: Recipient<Ask<C>>) {
    let standing = Arc::new(Semaphore::new(MAX_STANDING_REQUESTS));
    let mut random = Random::from_system();
    while let Some(message) = commands.next().await {
        let Some(reply_to) = message.reply_to.clone() else {
            tracing::debug!(subject = message.subject, "a command without a place to answer is ignored");
            continue;
        };
        let command = match wire::decode_command::<C>(&message, &mut random) {
            Ok(command) => command,
            Err(error) => {
                tracing::warn!(subject = message.subject, %error, bytes = message.payload.len(), "a command was refused");
                answer(&bus, wire::encode_reply::<C::Reply>(reply_to, None, Err(error))).await;
                continue;
            }
        };
        let Ok(place) = Arc::clone(&standing).try_acquire_owned() else {
            let busy =
                CallError::Refused { reason: format!("{MAX_STANDING_REQUESTS} requests stand already on this node: try again later") };
            answer(&bus, wire::encode_reply::<C::Reply>(reply_to, Some(&command.meta), Err(busy))).await;
            continue;
        };
        let (bus, recipient) = (Arc::clone(&bus), recipient.clone());
        actix::spawn(async move {
            let meta = command.meta;
            let reply = match recipient.send(Ask(command)).await {
                Ok(reply) => reply,
                Err(_) => Err(CallError::Ended { service: C::SERVICE.name() }),
            };
            answer(&bus, wire::encode_reply(reply_to, Some(&meta), reply)).await;
            drop(place);
        });
    }
}

async fn answer(bus: &BusRef, mut message: Message) {
    let subject = message.subject.clone();
    if message.payload.len() > bus::MAX_PAYLOAD_BYTES {
        let error = CallError::Refused { reason: format!("the answer of {} bytes is over the bus's limit", message.payload.len()) };
        message = wire::encode_reply::<()>(subject.clone(), None, Err(error));
    }
    if let Err(error) = bus.publish(message).await {
        tracing::debug!(subject, %error, "an answer was not sent");
    }
}
