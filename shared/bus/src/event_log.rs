//! The port for durable events: streams that store what is published.

use std::time::Duration;

use async_trait::async_trait;

use crate::error::BusError;
use crate::message::Message;

/// Durable append, and reading what was stored.
#[async_trait]
pub trait EventLog: Send + Sync + 'static {
    /// Makes sure a stream is there that stores what is published on its subjects, and says which it is. One that is there keeps its
    /// limits.
    ///
    /// # Errors
    /// As [`SharedState::bucket`](crate::SharedState::bucket).
    async fn stream(&self, spec: &StreamSpec) -> Result<StreamStatus, BusError>;

    /// One page of what a stream holds, oldest first, without a consumer on the server.
    ///
    /// # Errors
    /// [`BusError::NoResponders`] when there is no such stream, and those of `request`.
    async fn read(&self, query: &StreamQuery) -> Result<StreamPage, BusError>;

    /// Stores a message in the stream of its subject and waits for the acknowledgement. The same `message_id` within the stream's window is stored once.
    /// Plain subscribers of the subject get the message as well, stored or not, and once for each call.
    ///
    /// # Errors
    /// As [`SharedState::bucket`](crate::SharedState::bucket); [`BusError::NoResponders`] when no stream stores that subject, on NATS after half a second;
    /// [`BusError::TimedOut`] when it is not known whether the message was stored, and [`BusError::Other`] when the server has too many
    /// messages in hand: append it again with the same id, by which plain subscribers know the repeat.
    async fn append(&self, message: Message, message_id: &str) -> Result<Appended, BusError>;
}

/// A stream that stores what is published on its subjects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamSpec {
    /// `[A-Za-z0-9_-]+`.
    pub name: String,
    /// What it stores.
    pub subjects: Vec<String>,
    /// How long.
    pub max_age: Option<Duration>,
    /// How much; the oldest goes first.
    pub max_bytes: Option<u64>,
    /// Within this time a message id is stored once.
    pub duplicate_window: Duration,
    /// Under which other subjects it stores what it takes; none: as published.
    pub transform: Option<SubjectTransform>,
}

/// Under which subject a stream stores what was published on another, as NATS writes it: `{{wildcard(1)}}` is the token of the first
/// wildcard, `{{partition(8,2)}}` a number below 8 made from that of the second. Subscribers hear what is published as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubjectTransform {
    /// What is transformed.
    pub source: String,
    /// To what.
    pub destination: String,
}

/// Which stream it is and how far it has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamStatus {
    /// When it was made, as its server says it. Another value is another stream.
    pub created: String,
    /// The sequence of its last message; 0: it has stored none.
    pub last_sequence: u64,
}

/// Which messages of a stream are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamQuery {
    /// The stream.
    pub stream: String,
    /// Only messages that are stored under one of these subjects, which may hold wildcards.
    pub subjects: Vec<String>,
    /// Where to begin.
    pub from: StreamStart,
    /// At most so many messages of each subject, and no more than some MiB.
    pub limit: usize,
}

/// Where reading a stream begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamStart {
    /// With the first message of this sequence or a later one.
    Sequence(u64),
    /// With the first message that was stored at this time or later, since 1970 by the server's clock.
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
    /// The message as it was published.
    pub message: Message,
}

/// The place of a stored message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// Its sequence in the stream.
    pub sequence: u64,
    /// It was there already.
    pub duplicate: bool,
}
