//! The port for messages: publish and subscribe, request and reply.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::stream::BoxStream;

use crate::asker::Asker;
use crate::error::BusError;
use crate::health::{BusHealth, HealthChanges};
use crate::message::Message;

/// What carries messages, of any kind.
pub type MessagingRef = Arc<dyn Messaging>;

/// Publish and subscribe, request and reply.
#[async_trait]
pub trait Messaging: Send + Sync + 'static {
    /// Sends a message to all subscribers, at most once. Succeeds when it was handed over, not when it was received.
    ///
    /// # Errors
    /// [`BusError::TooLarge`], [`BusError::BadSubject`], [`BusError::Disconnected`], [`BusError::Closed`].
    async fn publish(&self, message: Message) -> Result<(), BusError>;

    /// Subscribes to a subject, which may hold the wildcards `*` and `>`. With a queue name, one of the group gets each message.
    /// When this returns on a connected bus, the server knows of the subscription (confirmed by a round trip).
    ///
    /// # Errors
    /// [`BusError::BadSubject`], [`BusError::Closed`].
    async fn subscribe(&self, subject: &str, queue: Option<&str>) -> Result<Subscription, BusError>;

    /// Sends a message and waits for one answer.
    ///
    /// # Errors
    /// [`BusError::NoResponders`] at once when nobody subscribes, [`BusError::Forbidden`] when this login may not publish there,
    /// [`BusError::TimedOut`] after `timeout`, and those of `publish`.
    async fn request(&self, message: Message, timeout: Duration) -> Result<Message, BusError>;

    /// Whether the sender of a request that arrived here still waits for its reply. Takes a second at most.
    async fn asker(&self, _request: &Message) -> Asker {
        Asker::Unknown
    }

    /// A subject of one's own for answers to a published question, below the prefix that this connection may subscribe to.
    fn new_inbox(&self) -> String {
        format!("_INBOX.{:032x}", rand::random::<u128>())
    }

    /// How the bus is now. Cheap: no round trip.
    fn health(&self) -> BusHealth;

    /// How the bus is now, then every change. Changes that come faster than they are read are seen as the last one alone.
    fn health_changes(&self) -> HealthChanges;

    /// How many messages were dropped because a subscription was not read fast enough. On NATS a lower bound.
    fn dropped(&self) -> u64;

    /// Ends all subscriptions after what has arrived is read, and sends what is waiting to be sent.
    async fn drain(&self);
}

/// What arrives on a subscription. It ends when the bus is drained; dropping it unsubscribes.
pub type Subscription = BoxStream<'static, Message>;

/// The most messages that wait in one subscription; beyond it the newest is dropped and counted. A few seconds of what a
/// large fleet says, and at a few hundred bytes each a bound of some MiB.
pub const SUBSCRIPTION_CAPACITY: usize = 8 * 1024;

/// Header of every request: how many milliseconds its caller was ready to wait when it was sent. A handler need not begin
/// what takes longer.
pub const DEADLINE_HEADER: &str = "fleetpull-deadline-ms";
