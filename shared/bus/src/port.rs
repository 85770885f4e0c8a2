//! The port: what every bus can do.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;

use crate::asker::Asker;
use crate::message::Message;

/// A shared bus of either kind.
pub type BusRef = Arc<dyn Bus>;

/// Publish and subscribe, request and reply, key-value state, durable append.
#[async_trait]
pub trait Bus: Send + Sync + 'static {
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

    /// Opens a bucket of key-value state, making it if it is not there. A bucket that is there keeps what its operator set;
    /// expiry and republishing are added if it has none. A bucket that is lost later is made again by its next use.
    ///
    /// # Errors
    /// [`BusError::BadSubject`] for a name that is not allowed, [`BusError::Unsupported`] when the server has no JetStream, is
    /// too old, or its limits or permissions do not allow it, and those of `request`. What must be changed is part of [`Bus::health`] then.
    async fn bucket(&self, spec: &BucketSpec) -> Result<Arc<dyn KeyValue>, BusError>;

    /// Makes sure a stream is there that stores what is published on its subjects, and says which it is. One that is there keeps its
    /// limits.
    ///
    /// # Errors
    /// As [`Bus::bucket`].
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
    /// As [`Bus::bucket`]; [`BusError::NoResponders`] when no stream stores that subject, on NATS after half a second;
    /// [`BusError::TimedOut`] when it is not known whether the message was stored, and [`BusError::Other`] when the server has too many
    /// messages in hand: append it again with the same id, by which plain subscribers know the repeat.
    async fn append(&self, message: Message, message_id: &str) -> Result<Appended, BusError>;

    /// How the bus is now. Cheap: no round trip.
    fn health(&self) -> BusHealth;

    /// How the bus is now, then every change. Changes that come faster than they are read are seen as the last one alone.
    fn health_changes(&self) -> HealthChanges;

    /// How many messages were dropped because a subscription was not read fast enough. On NATS a lower bound.
    fn dropped(&self) -> u64;

    /// How many nodes the fleet has: so many may connect again at the same time as this one, and spread it. No matter where nothing connects.
    fn set_fleet_size(&self, _nodes: u64) {}

    /// Leaves the server for this reason, and stays disconnected until none is given: messages are refused, subscriptions are kept for
    /// later. A bus in this process cannot be left.
    fn set_aside(&self, _reason: Option<String>) {}

    /// Ends all subscriptions after what has arrived is read, and sends what is waiting to be sent.
    async fn drain(&self);
}

/// What arrives on a subscription. It ends when the bus is drained; dropping it unsubscribes.
pub type Subscription = BoxStream<'static, Message>;

/// The health of a bus as it changes. It ends with the bus.
pub type HealthChanges = BoxStream<'static, BusHealth>;

/// The most messages that wait in one subscription; beyond it the newest is dropped and counted. A few seconds of what a
/// large fleet says, and at a few hundred bytes each a bound of some MiB.
pub const SUBSCRIPTION_CAPACITY: usize = 8 * 1024;

/// Header of every request: how many milliseconds its caller was ready to wait when it was sent. A handler need not begin
/// what takes longer.
pub const DEADLINE_HEADER: &str = "fleetpull-deadline-ms";

/// How a bus is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BusHealth {
    /// All of it works.
    Connected,
    /// Messages flow, but state and streams do not, or not all of them: the reason in words (no JetStream, server too old, no room).
    Degraded {
        /// In words that say what to do.
        reason: String,
        /// Whether it may pass by itself within seconds, as the election of a leader; else somebody has to change something.
        transient: bool,
    },
    /// No server is reached; it is tried again all the time.
    Disconnected {
        /// In words that say what to do.
        reason: String,
    },
}

/// Why the bus did not do what was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BusError {
    /// Nobody subscribes to that subject.
    #[error("nobody answers on {subject}")]
    NoResponders {
        /// The subject asked on.
        subject: String,
    },
    /// No answer within the time given.
    #[error("no answer on {subject} within {timeout:?}")]
    TimedOut {
        /// The subject asked on.
        subject: String,
        /// How long was waited.
        timeout: Duration,
    },
    /// The server does not let this login publish there.
    #[error(
        "this login may not publish to {subject}: allow it in the server's permissions (subjects of agents: `$JS.API.>`, `$KV.>` and the fleet's own)"
    )]
    Forbidden {
        /// Where it was to go.
        subject: String,
    },
    /// Headers and payload together are larger than [`crate::MAX_PAYLOAD_BYTES`], or than the server allows.
    #[error("a message of {bytes} bytes for {subject} is over the limit of {limit} bytes")]
    TooLarge {
        /// Where it was to go.
        subject: String,
        /// Its size.
        bytes: usize,
        /// The most allowed.
        limit: usize,
    },
    /// The subject is not valid: empty tokens, spaces, control characters, misplaced wildcards.
    #[error("{subject:?} is not a valid subject")]
    BadSubject {
        /// The subject as given.
        subject: String,
    },
    /// The header cannot be sent: the name is empty, not printable or `traceparent` in capitals, or the value holds a line break.
    #[error("the header {name:?} cannot be sent: names are printable ASCII without colons, traceparent is lower case, values are one line")]
    BadHeader {
        /// The name as given.
        name: String,
    },
    /// The server is not reached now.
    #[error("the bus is not connected: {reason}")]
    Disconnected {
        /// In words.
        reason: String,
    },
    /// The bus was drained.
    #[error("the bus is closed")]
    Closed,
    /// The server cannot do it: no JetStream, or too old.
    #[error("the server cannot do this: {reason}")]
    Unsupported {
        /// In words that say what to do.
        reason: String,
    },
    /// Anything else that the server said.
    #[error("the bus failed: {reason}")]
    Other {
        /// In words.
        reason: String,
    },
}

/// A bucket to open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketSpec {
    /// `[A-Za-z0-9_-]+`.
    pub name: String,
    /// Whether a key may expire; markers of expiry and of deletion are kept this long. Whole seconds, at least 1 s.
    pub marker_ttl: Option<Duration>,
    /// The most bytes the bucket may hold; a put beyond it is refused.
    pub max_bytes: Option<u64>,
    /// Beyond it the oldest values are forgotten instead, without a word of it. As the bucket was made; another spec does not change it.
    pub forgets_oldest: bool,
    /// Republish every stored change to this subject followed by `.<key>`.
    pub republish_to: Option<String>,
}

/// One value with its place in the history of the bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// The value.
    pub value: Bytes,
    /// Counts changes of the whole bucket, not of the key.
    pub revision: u64,
}

/// Key-value state with compare-and-set and expiry. Keys: `[-/_=.a-zA-Z0-9]+`, no dot first or last, none doubled.
#[async_trait]
pub trait KeyValue: Send + Sync + 'static {
    /// The value now, or none when it was never put, was deleted or has expired.
    ///
    /// # Errors
    /// [`KeyValueError::Bus`], [`KeyValueError::BadKey`].
    async fn get(&self, key: &str) -> Result<Option<Entry>, KeyValueError>;

    /// Puts a value whatever was there; returns the revision. `ttl`: whole seconds, at least 1 s.
    ///
    /// # Errors
    /// As `get`, and [`KeyValueError::BadTtl`].
    async fn put(&self, key: &str, value: Bytes, ttl: Option<Duration>) -> Result<u64, KeyValueError>;

    /// Puts a value only if there is none (deleted and expired count as none).
    ///
    /// # Errors
    /// As `put`, and [`KeyValueError::Conflict`].
    async fn create(&self, key: &str, value: Bytes, ttl: Option<Duration>) -> Result<u64, KeyValueError>;

    /// Puts a value only if the key's newest revision is `revision`.
    ///
    /// # Errors
    /// As `put`, and [`KeyValueError::Conflict`].
    async fn update(&self, key: &str, value: Bytes, revision: u64, ttl: Option<Duration>) -> Result<u64, KeyValueError>;

    /// Deletes a key, with `revision` only if that is the key's newest. Deleting what is not there succeeds.
    ///
    /// # Errors
    /// As `get`, and [`KeyValueError::Conflict`].
    async fn delete(&self, key: &str, revision: Option<u64>) -> Result<(), KeyValueError>;

    /// Which bucket this is and how far it has come.
    ///
    /// # Errors
    /// As `get`.
    async fn status(&self) -> Result<BucketStatus, KeyValueError>;

    /// All values that are there now, in the order in which they were stored, without a consumer on the server. Values stored
    /// while it is read may be among them. `since`: in the same bucket only those that were stored after that; in another one all.
    ///
    /// # Errors
    /// As `get`.
    async fn snapshot(&self, since: Option<&BucketStatus>) -> Result<Snapshot, KeyValueError>;
}

/// Which bucket it is and how far it has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BucketStatus {
    /// When it was made, as its server says it. Another value is another bucket.
    pub created: String,
    /// The revision of its last change; everything republished up to it is part of a snapshot taken after.
    pub sequence: u64,
    /// When it was made, as `created`, since 1970 by the clock of its server; zero where the server does not say it.
    pub made_at: Duration,
    /// How long it has been there by the same clock, without any clock of the asker's; zero where the server does not say it.
    pub age: Duration,
}

/// All values of a bucket, or those stored since.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Of which bucket, as it was when the reading began.
    pub status: BucketStatus,
    /// The values.
    pub entries: Vec<AgedEntry>,
}

/// A value, and how long it has been there by the clock of its server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgedEntry {
    /// The value.
    pub entry: Entry,
    /// Since when.
    pub age: Duration,
}

/// Why a bucket did not do what was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyValueError {
    /// Somebody else changed the key first.
    #[error("{key} was changed by somebody else")]
    Conflict {
        /// The key.
        key: String,
    },
    /// The key has characters that are not allowed.
    #[error("{key:?} is not a valid key")]
    BadKey {
        /// The key as given.
        key: String,
    },
    /// The time to live is not in whole seconds, is under 1 s, or the bucket has none.
    #[error("a time to live of {ttl:?} cannot be had: whole seconds from 1 s on, in a bucket made for expiry")]
    BadTtl {
        /// As given.
        ttl: Duration,
    },
    /// The bucket holds as many bytes as it may.
    #[error("the bucket is full: {key} was not stored")]
    Full {
        /// The key.
        key: String,
    },
    /// The bus failed beneath.
    #[error(transparent)]
    Bus(#[from] BusError),
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
