//! The port for state: buckets of keys and values.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use crate::error::BusError;

/// What opens buckets, of any kind.
pub type SharedStateRef = Arc<dyn SharedState>;

/// Key-value state that all nodes share.
#[async_trait]
pub trait SharedState: Send + Sync + 'static {
    /// Opens a bucket of key-value state, making it if it is not there. A bucket that is there keeps what its operator set;
    /// expiry and republishing are added if it has none. A bucket that is lost later is made again by its next use.
    ///
    /// # Errors
    /// [`BusError::BadSubject`] for a name that is not allowed, [`BusError::Unsupported`] when the server has no JetStream, is
    /// too old, or its limits or permissions do not allow it, and those of `request`. What must be changed is part of [`Messaging::health`](crate::Messaging::health) then.
    async fn bucket(&self, spec: &BucketSpec) -> Result<Arc<dyn KeyValue>, BusError>;
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
