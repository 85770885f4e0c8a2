//! The port for durable events: streams that store what is published.

use std::time::Duration;

use async_trait::async_trait;

use crate::error::BusError;
use crate::message::Message;

/// Durable append, and reading what was stored.
#[async_trait]
pub trait EventLog: Send + Sync + 'static {
    /// Makes sure that a stream exists which stores what is published on its subjects, and returns its status. An existing stream keeps its
    /// limits.
    ///
    /// # Errors
    /// As [`SharedState::bucket`](crate::SharedState::bucket).
    async fn stream(&self, spec: &StreamSpec) -> Result<StreamStatus, BusError>;

    /// Reads one page of a stream, oldest message first, without a consumer on the server.
    ///
    /// # Errors
    /// [`BusError::NoResponders`] if there is no such stream, and those of `request`.
    async fn read(&self, query: &StreamQuery) -> Result<StreamPage, BusError>;

    /// Stores a message in the stream of its subject and waits for the acknowledgement. The same `message_id` within the stream's window is
    /// stored once.
    /// Plain subscribers of the subject get the message once for each call, even if it is a duplicate.
    ///
    /// # Errors
    /// As [`SharedState::bucket`](crate::SharedState::bucket); [`BusError::NoResponders`] if no stream stores that subject (on NATS after
    /// 0.5 s); [`BusError::TimedOut`] if it is unknown whether the message was stored, and [`BusError::Other`] if the server has too many
    /// messages in hand. In these two cases append it again with the same id, by which plain subscribers recognise the repeat.
    async fn append(&self, message: Message, message_id: &str) -> Result<Appended, BusError>;
}

/// A stream that stores what is published on its subjects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamSpec {
    /// `[A-Za-z0-9_-]+`.
    pub name: String,
    /// The subjects that it stores.
    pub subjects: Vec<String>,
    /// How long it keeps a message.
    pub max_age: Option<Duration>,
    /// How many bytes it keeps; the oldest messages are removed first.
    pub max_bytes: Option<u64>,
    /// Within this time a message id is stored once.
    pub duplicate_window: Duration,
    /// The subjects under which it stores what it takes; none: as published.
    pub transform: Option<SubjectTransform>,
}

/// The subject under which a stream stores what was published on another, as NATS writes it: `{{wildcard(1)}}` is the token of the first
/// wildcard, `{{partition(8,2)}}` a number below 8 made from the token of the second. Subscribers get the message under its published
/// subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubjectTransform {
    /// The published subject.
    pub source: String,
    /// The subject that it is stored under.
    pub destination: String,
}

/// The identity and progress of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamStatus {
    /// When it was made, by its server's clock. A different value means a different stream.
    pub created: String,
    /// The sequence of its last message; 0: it has stored none.
    pub last_sequence: u64,
}

/// Selects messages of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamQuery {
    /// The stream.
    pub stream: String,
    /// Only messages that are stored under one of these subjects, which may hold wildcards.
    pub subjects: Vec<String>,
    /// Where to start.
    pub from: StreamStart,
    /// The most messages of each subject; an answer also holds no more than some MiB.
    pub limit: usize,
}

/// Where to start reading a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamStart {
    /// At the first message with this sequence or a later one.
    Sequence(u64),
    /// At the first message that was stored at this time or later, since 1970 by the server's clock.
    Time(Duration),
}

/// Messages of a stream, in the order in which they were stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamPage {
    /// The messages.
    pub messages: Vec<StoredMessage>,
    /// Where the next page begins; none: this was the last one.
    pub next: Option<u64>,
}

/// A message as a stream holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredMessage {
    /// Its sequence in the stream.
    pub sequence: u64,
    /// When it was stored, since 1970 by the server's clock.
    pub stored_at: Duration,
    /// The message; its subject is the one under which it is stored.
    pub message: Message,
}

/// The place of a stored message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// Its sequence in the stream.
    pub sequence: u64,
    /// It was stored already.
    pub duplicate: bool,
}
