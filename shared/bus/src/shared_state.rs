//! The port for state: buckets of keys and values.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use crate::error::BusError;

/// Opens buckets on any kind of bus.
pub type SharedStateRef = Arc<dyn SharedState>;

/// Key-value state that all nodes share.
#[async_trait]
pub trait SharedState: Send + Sync + 'static {
    /// Opens a bucket of key-value state, and makes it if it does not exist. An existing bucket keeps its operator's settings; missing
    /// expiry and republishing are added. A bucket that is lost later is made again by its next use.
    ///
    /// # Errors
    /// [`BusError::BadSubject`] for a name that is not allowed, [`BusError::Unsupported`] if the server has no JetStream, is too old, or
    /// its limits or permissions do not allow it, and those of `request`. What must be changed is then part of
    /// [`Messaging::health`](crate::Messaging::health).
    async fn bucket(&self, spec: &BucketSpec) -> Result<Arc<dyn KeyValue>, BusError>;
}

/// A bucket to open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketSpec {
    /// `[A-Za-z0-9_-]+`.
    pub name: String,
    /// Whether keys may expire, and how long markers of expiry and of deletion are kept. Whole seconds, at least 1 s.
    pub marker_ttl: Option<Duration>,
    /// The most bytes the bucket may hold; a put beyond it is refused.
    pub max_bytes: Option<u64>,
    /// Beyond `max_bytes` the oldest values are removed instead, without a notice. Set when the bucket is made; another spec does not
    /// change it.
    pub forgets_oldest: bool,
    /// The subject to which every stored change is republished, followed by `.<key>`.
    pub republish_to: Option<String>,
}

/// One value with its revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// The value.
    pub value: Bytes,
    /// The revision, which counts the changes of the whole bucket, not of the key.
    pub revision: u64,
}

/// Key-value state with compare-and-set and expiry. Keys: `[-/_=.a-zA-Z0-9]+`, no dot first or last, none doubled.
#[async_trait]
pub trait KeyValue: Send + Sync + 'static {
    /// The current value; none if it was never put, was deleted or has expired.
    ///
    /// # Errors
    /// [`KeyValueError::Bus`], [`KeyValueError::BadKey`].
    async fn get(&self, key: &str) -> Result<Option<Entry>, KeyValueError>;

    /// Puts a value, whatever the current one is; returns the revision. `ttl`: whole seconds, at least 1 s.
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

    /// Deletes a key; with `revision`, only if that is the key's newest. Deleting a missing key succeeds.
    ///
    /// # Errors
    /// As `get`, and [`KeyValueError::Conflict`].
    async fn delete(&self, key: &str, revision: Option<u64>) -> Result<(), KeyValueError>;

    /// Which bucket this is, and how far it has come.
    ///
    /// # Errors
    /// As `get`.
    async fn status(&self) -> Result<BucketStatus, KeyValueError>;

    /// All current values in the order in which they were stored, without a consumer on the server. Values that are stored during the
    /// reading may be among them. `since`: only those stored after it if the bucket is the same; all if it is another one.
    ///
    /// # Errors
    /// As `get`.
    async fn snapshot(&self, since: Option<&BucketStatus>) -> Result<Snapshot, KeyValueError>;
}

/// Which bucket it is, and how far it has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BucketStatus {
    /// When it was made, by its server's clock. A different value means a different bucket.
    pub created: String,
    /// The revision of its last change. A snapshot that is taken later includes everything republished up to it.
    pub sequence: u64,
    /// As `created`, since 1970 by the server's clock; zero if the server does not report it.
    pub made_at: Duration,
    /// How long it has existed by the same clock, independently of this process's clock; zero if the server does not report it.
    pub age: Duration,
    /// The servers that hold it; none if the bus does not report them.
    pub servers: Option<BucketServers>,
}

/// The servers that hold a bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BucketServers {
    /// How many there are.
    pub total: u64,
    /// The names of those that are down.
    pub down: Vec<String>,
}

impl BucketServers {
    /// How many are up.
    #[must_use]
    pub fn up(&self) -> u64 {
        self.total.saturating_sub(self.down.len() as u64)
    }
}

/// All values of a bucket, or those stored after `since`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// The status of the bucket when the reading began.
    pub status: BucketStatus,
    /// The values.
    pub entries: Vec<AgedEntry>,
}

/// A value with its age by the server's clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgedEntry {
    /// The value.
    pub entry: Entry,
    /// Its age.
    pub age: Duration,
}

/// Errors of a bucket.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyValueError {
    /// Another writer changed the key first.
    #[error("{key} was changed by another client")]
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
    #[error("a time to live of {ttl:?} is not possible: it is whole seconds from 1 s on, in a bucket made for expiry")]
    BadTtl {
        /// As given.
        ttl: Duration,
    },
    /// The bucket is full.
    #[error("the bucket is full: {key} was not stored")]
    Full {
        /// The key.
        key: String,
    },
    /// The bus failed.
    #[error(transparent)]
    Bus(#[from] BusError),
}
