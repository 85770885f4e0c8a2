//! From the bus to an actor.

use std::sync::Arc;

use actix::Recipient;
use bus::services::{Endpoint, EndpointCounters};
use bus::{BusError, BusRef, Message, Subscription};
use clock::{Clock, Random};
use contract::{CallError, Command, Service};
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
pub struct Served {
    task: JoinHandle<()>,
    service: Service,
    endpoint: Endpoint,
}

impl Served {
    /// Which service takes it.
    #[must_use]
    pub fn service(&self) -> Service {
        self.service
    }

    /// Where it is taken and how often it was, for the NATS services API.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Takes the commands `C` for one node from the bus to an actor. When this returns on a connected bus, the server knows.
///
/// # Errors
/// The bus is closed.
pub async fn serve<C: Command>(wiring: &Wiring, recipient: Recipient<Ask<C>>) -> Result<Served, BusError> {
    serve_on(wiring, wiring.fleet.command(&wiring.node, C::SERVICE, C::VERB), recipient).await
}

/// Takes the commands `C` that are sent to every node.
///
/// # Errors
/// The bus is closed.
pub async fn serve_everywhere<C: Command>(wiring: &Wiring, recipient: Recipient<Ask<C>>) -> Result<Served, BusError> {
    serve_on(wiring, wiring.fleet.command_to_all(C::SERVICE, C::VERB), recipient).await
}

async fn serve_on<C: Command>(wiring: &Wiring, subject: String, recipient: Recipient<Ask<C>>) -> Result<Served, BusError> {
    let commands = wiring.bus.subscribe(&subject, None).await?;
    let counters = Arc::new(EndpointCounters::default());
    let task = actix::spawn(take(commands, Arc::clone(&wiring.bus), recipient, Arc::clone(&counters)));
    let endpoint = Endpoint { name: C::VERB.to_owned(), subject, queue_group: None, counters };
    Ok(Served { task, service: C::SERVICE, endpoint })
}

async fn take<C: Command>(mut commands: Subscription, bus: BusRef, recipient: Recipient<Ask<C>>, counters: Arc<EndpointCounters>) {
    let clock = Clock::host();
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
        let (bus, recipient, clock, counters) = (Arc::clone(&bus), recipient.clone(), clock.clone(), Arc::clone(&counters));
        actix::spawn(async move {
            let meta = command.meta;
            let began = clock.now().monotonic;
            let reply = match recipient.send(Ask(command)).await {
                Ok(reply) => reply,
                Err(_) => Err(CallError::Ended { service: C::SERVICE.name() }),
            };
            let error = reply.as_ref().err().map(ToString::to_string);
            counters.record(clock.now().monotonic.saturating_sub(began), error.as_deref());
            answer(&bus, wire::encode_reply(reply_to, Some(&meta), reply)).await;
            drop(place);
        });
    }
}

async fn answer(bus: &BusRef, mut message: Message) {
    let subject = message.subject.clone();
    if message.wire_bytes() > bus::MAX_PAYLOAD_BYTES {
        let error = CallError::Refused { reason: format!("the answer of {} bytes is over the bus's limit", message.wire_bytes()) };
        message = wire::encode_reply::<()>(subject.clone(), None, Err(error));
    }
    if let Err(error) = bus.publish(message).await {
        tracing::debug!(subject, %error, "an answer was not sent");
    }
}
