//! The bus in one process, with the semantics of a server.
//!
//! A [`MemoryBus`] is a connection to a hub. Clones are the same connection; [`MemoryBus::connect`] gives another one to the same hub, so
//! that one node of a simulated fleet can be drained without the rest. Results are in the order of subscribing, of keys or of revisions, so
//! a run on one thread is repeatable. Time is tokio's, and may be paused.

mod bucket;
mod hub;
mod key_value;
mod routes;
mod streams;
mod transform;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use clock::Clock;
use futures::stream::{self, Stream, StreamExt};
use tokio::sync::mpsc;

use self::hub::{ConnectionId, Hub};
use self::key_value::MemoryKeyValue;
use crate::caller_state::CallerState;
use crate::error::BusError;
use crate::event_log::{Appended, EventLog, StreamPage, StreamQuery, StreamSpec, StreamStatus};
use crate::health::{BusHealth, HealthChanges};
use crate::message::{MAX_PAYLOAD_BYTES, Message};
use crate::messaging::{Messaging, Subscription};
use crate::port::Bus;
use crate::rules;
use crate::shared_state::{BucketSpec, KeyValue, SharedState};

/// A connection to a bus in this process.
#[derive(Clone)]
pub struct MemoryBus {
    hub: Arc<Hub>,
    connection: ConnectionId,
}

impl MemoryBus {
    /// Makes a new bus and the first connection to it. The clock stamps what is republished and measures times to live.
    #[must_use]
    pub fn new(clock: Clock) -> Self {
        let hub = Arc::new(Hub::new(clock));
        let connection = hub.connect();
        Self { hub, connection }
    }

    /// Another connection to the same bus, which is drained separately.
    #[must_use]
    pub fn connect(&self) -> Self {
        Self { hub: Arc::clone(&self.hub), connection: self.hub.connect() }
    }

    /// Loses a bucket and its contents, like a server whose store is wiped. The next use makes it again.
    pub fn lose_bucket(&self, name: &str) {
        self.hub.lose_bucket(name);
    }

    /// Loses a stream, as if an operator had deleted it.
    pub fn lose_stream(&self, name: &str) {
        self.hub.lose_stream(name);
    }

    /// Sets whether buckets refuse all values, like a server whose disk is full.
    pub fn set_full(&self, full: bool) {
        self.hub.set_full(full);
    }

    /// Sets how long buckets take to answer, like a server that is far away. What is written is there at once; the answer comes late.
    pub fn set_delay(&self, delay: Duration) {
        self.hub.set_delay(delay);
    }

    fn check(&self, message: &Message) -> Result<(), BusError> {
        self.hub.check_open(self.connection)?;
        rules::check_message(message, MAX_PAYLOAD_BYTES)
    }
}

#[async_trait]
impl Messaging for MemoryBus {
    async fn publish(&self, message: Message) -> Result<(), BusError> {
        self.check(&message)?;
        self.hub.publish(message);
        Ok(())
    }

    async fn subscribe(&self, subject: &str, queue: Option<&str>) -> Result<Subscription, BusError> {
        self.hub.check_open(self.connection)?;
        rules::check_pattern(subject)?;
        queue.map_or(Ok(()), rules::check_queue)?;
        let (id, messages) = self.hub.subscribe(self.connection, subject, queue);
        Ok(MemorySubscription { id, messages, hub: Arc::clone(&self.hub) }.boxed())
    }

    async fn request(&self, message: Message, timeout: Duration) -> Result<Message, BusError> {
        let message = rules::with_deadline(message, timeout);
        self.check(&message)?;
        let subject = message.subject.clone();
        let Some((id, reply)) = self.hub.ask(message) else {
            return Err(BusError::NoResponders { subject });
        };
        let _awaited = Awaited { id, hub: &self.hub };
        match tokio::time::timeout(timeout, reply).await {
            Ok(Ok(reply)) => Ok(reply),
            Ok(Err(_)) => Err(BusError::Closed),
            Err(_) => Err(BusError::TimedOut { subject, timeout }),
        }
    }

    async fn caller_state(&self, request: &Message) -> CallerState {
        request.reply_to.as_deref().map_or(CallerState::Unknown, |reply_to| self.hub.caller_state(reply_to))
    }

    fn new_inbox(&self) -> String {
        self.hub.new_inbox()
    }

    fn health(&self) -> BusHealth {
        BusHealth::Connected
    }

    fn health_changes(&self) -> HealthChanges {
        stream::iter([BusHealth::Connected]).chain(stream::pending()).boxed()
    }

    fn dropped(&self) -> u64 {
        self.hub.dropped()
    }

    async fn drain(&self) {
        self.hub.close(self.connection);
    }
}

#[async_trait]
impl SharedState for MemoryBus {
    async fn bucket(&self, spec: &BucketSpec) -> Result<Arc<dyn KeyValue>, BusError> {
        self.hub.check_open(self.connection)?;
        rules::check_bucket(spec)?;
        self.hub.open_bucket(spec);
        Ok(Arc::new(MemoryKeyValue::new(Arc::clone(&self.hub), self.connection, spec.clone())))
    }
}

#[async_trait]
impl EventLog for MemoryBus {
    async fn stream(&self, spec: &StreamSpec) -> Result<StreamStatus, BusError> {
        self.hub.check_open(self.connection)?;
        rules::check_name(&spec.name)?;
        spec.subjects.iter().try_for_each(|subject| rules::check_pattern(subject))?;
        Ok(self.hub.open_stream(spec))
    }

    async fn read(&self, query: &StreamQuery) -> Result<StreamPage, BusError> {
        self.hub.check_open(self.connection)?;
        rules::check_name(&query.stream)?;
        query.subjects.iter().try_for_each(|subject| rules::check_pattern(subject))?;
        self.hub.read_stream(query).ok_or_else(|| BusError::NoResponders { subject: format!("the stream {}", query.stream) })
    }

    async fn append(&self, message: Message, message_id: &str) -> Result<Appended, BusError> {
        self.check(&message)?;
        let subject = message.subject.clone();
        self.hub.append(message, message_id).ok_or(BusError::NoResponders { subject })
    }
}

impl Bus for MemoryBus {}

/// The receiving end of a subscription; dropping it unsubscribes.
struct MemorySubscription {
    id: u64,
    messages: mpsc::Receiver<Arc<Message>>,
    hub: Arc<Hub>,
}

impl Stream for MemorySubscription {
    type Item = Message;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Message>> {
        self.messages.poll_recv(context).map(|message| message.map(Arc::unwrap_or_clone))
    }
}

impl Drop for MemorySubscription {
    fn drop(&mut self) {
        self.hub.unsubscribe(self.id);
    }
}

/// An awaited request. When its caller gives up, a late reply is dropped.
struct Awaited<'a> {
    id: u64,
    hub: &'a Hub,
}

impl Drop for Awaited<'_> {
    fn drop(&mut self) {
        self.hub.forget_reply(self.id);
    }
}
