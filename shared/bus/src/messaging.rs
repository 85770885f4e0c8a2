//! The port for messages: publish and subscribe, request and reply.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::stream::BoxStream;

use crate::caller_state::CallerState;
use crate::error::BusError;
use crate::health::{BusHealth, HealthChanges};
use crate::message::Message;

/// A shared bus of any kind, for messages alone.
pub type MessagingRef = Arc<dyn Messaging>;

/// Publish and subscribe, request and reply.
#[async_trait]
pub trait Messaging: Send + Sync + 'static {
    /// Sends a message to all subscribers, at most once. Success means that it was handed over, not that it was received.
    ///
    /// # Errors
    /// [`BusError::TooLarge`], [`BusError::BadSubject`], [`BusError::Disconnected`], [`BusError::Closed`].
    async fn publish(&self, message: Message) -> Result<(), BusError>;

    /// Subscribes to a subject, which may hold the wildcards `*` and `>`. With a queue name, one member of the group gets each message.
    /// When this returns on a connected bus, the server has confirmed the subscription by a round trip.
    ///
    /// # Errors
    /// [`BusError::BadSubject`], [`BusError::Closed`].
    async fn subscribe(&self, subject: &str, queue: Option<&str>) -> Result<Subscription, BusError>;

    /// Sends a message and waits for one answer.
    ///
    /// # Errors
    /// [`BusError::NoResponders`] at once if nobody subscribes, [`BusError::Forbidden`] if this login may not publish there,
    /// [`BusError::TimedOut`] after `timeout`, and those of `publish`.
    async fn request(&self, message: Message, timeout: Duration) -> Result<Message, BusError>;

    /// Whether the sender of a received request still waits for its reply. Takes at most 1 s.
    async fn caller_state(&self, _request: &Message) -> CallerState {
        CallerState::Unknown
    }

    /// A new subject for answers to a published question, below the prefix that this connection may subscribe to.
    fn new_inbox(&self) -> String {
        format!("_INBOX.{:032x}", rand::random::<u128>())
    }

    /// The current health, without a round trip.
    fn health(&self) -> BusHealth;

    /// The current health, then every change. A slow reader gets only the latest of several changes.
    fn health_changes(&self) -> HealthChanges;

    /// How many messages were dropped because a subscription was not read fast enough; on NATS this is a lower bound.
    fn dropped(&self) -> u64;

    /// Ends all subscriptions after the received messages are read, and sends the queued messages.
    async fn drain(&self);
}

/// The messages of a subscription. It ends when the bus is drained; dropping it unsubscribes.
pub type Subscription = BoxStream<'static, Message>;

/// The most messages that wait in one subscription; beyond it the newest is dropped and counted. This is a few seconds of a large fleet's
/// messages, or some MiB at a few hundred bytes each.
pub const SUBSCRIPTION_CAPACITY: usize = 8 * 1024;

/// Header of every request: how many milliseconds its caller was ready to wait when it was sent. A handler need not begin work that takes
/// longer.
pub const DEADLINE_HEADER: &str = "fleetpull-deadline-ms";
