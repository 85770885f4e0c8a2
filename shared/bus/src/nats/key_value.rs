//! A bucket on NATS.
//!
//! Writes are messages with headers instead of the client library's calls, which drop the time to live of a key that is put over a marker
//! or updated.

use std::pin::pin;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use super::jetstream::{CallError, JetStream, code};
use super::refusals::Act;
use super::snapshot;
use super::stored::Stored;
use super::streams::{ensure_bucket, stream_of};
use crate::error::BusError;
use crate::message::{Headers, Message};
use crate::rules;
use crate::shared_state::{BucketSpec, BucketStatus, Entry, KeyValue, KeyValueError, Snapshot};

/// How often `create` looks at a key that others change before it reports a conflict.
const CREATE_ATTEMPTS: usize = 3;

/// A handle to a bucket; it makes the bucket again if it was lost.
pub(super) struct NatsKeyValue {
    jetstream: JetStream,
    spec: BucketSpec,
    clustered: bool,
}

impl NatsKeyValue {
    /// `clustered`: JetStream is one of several servers.
    pub(super) fn new(jetstream: JetStream, spec: BucketSpec, clustered: bool) -> Self {
        Self { jetstream, spec, clustered }
    }

    async fn newest(&self, key: &str) -> Result<Option<Stored>, KeyValueError> {
        let (stream, subject) = (stream_of(&self.spec.name), self.subject(key));
        let found = match self.look(&stream, &subject).await {
            Err(CallError::Bus(BusError::NoResponders { .. }) | CallError::Refused { code: code::STREAM_NOT_FOUND, .. }) => {
                ensure_bucket(&self.jetstream, &self.spec).await?;
                self.look(&stream, &subject).await
            }
            found => found,
        };
        found.map_err(|error| KeyValueError::Bus(error.into_bus(&format!("reading {key}"))))
    }

    /// In a cluster the leader is asked, because other servers may not have the last write yet: a node that was refused a lease would
    /// otherwise read a holder that has released it, and would get no later change. An answer of the leader also shows that leases can be
    /// had.
    async fn look(&self, stream: &str, subject: &str) -> Result<Option<Stored>, CallError> {
        if self.clustered {
            return self.jetstream.newest_by_leader(stream, subject).await;
        }
        self.jetstream.newest(stream, subject).await.map_err(CallError::Bus)
    }

    async fn put_if(&self, key: &str, value: Bytes, expected: Option<u64>, ttl: Option<Duration>) -> Result<u64, KeyValueError> {
        let mut headers = Headers::new();
        if let Some(ttl) = ttl {
            headers.set("Nats-TTL", ttl.as_secs().to_string());
        }
        self.store(key, value, headers, expected).await
    }

    async fn store(&self, key: &str, payload: Bytes, mut headers: Headers, expected: Option<u64>) -> Result<u64, KeyValueError> {
        if let Some(revision) = expected {
            headers.set("Nats-Expected-Last-Subject-Sequence", revision.to_string());
        }
        let message = Message::new(self.subject(key), payload).with_headers(headers);
        let stored = match self.jetstream.store_in_bucket(message.clone(), false).await {
            Err(CallError::Bus(BusError::NoResponders { .. })) => {
                ensure_bucket(&self.jetstream, &self.spec).await?;
                self.jetstream.store_in_bucket(message, true).await
            }
            stored => stored,
        };
        let stream = stream_of(&self.spec.name);
        match stored {
            Ok(stored) => {
                self.jetstream.connection.link.done(&stream, Act::Store);
                Ok(stored.sequence)
            }
            Err(error) => Err(self.refused(&stream, key, error)),
        }
    }

    fn refused(&self, stream: &str, key: &str, error: CallError) -> KeyValueError {
        let conflict = KeyValueError::Conflict { key: key.to_owned() };
        let full = matches!(error, CallError::Refused { code: code::STREAM_STORE_FAILED, .. });
        match error {
            CallError::Refused { code: code::WRONG_LAST_SEQUENCE | code::WRONG_LAST_SEQUENCE_CONSTANT, .. } => conflict,
            error => match self.jetstream.refused(stream, Act::Store, error, &format!("a value in the stream {stream}"), None) {
                BusError::Unsupported { .. } if full => KeyValueError::Full { key: key.to_owned() },
                error => error.into(),
            },
        }
    }

    fn subject(&self, key: &str) -> String {
        format!("$KV.{}.{key}", self.spec.name)
    }

    fn check(&self, key: &str, value: &[u8], ttl: Option<Duration>) -> Result<(), KeyValueError> {
        rules::check_key(key)?;
        rules::check_value(key, value)?;
        rules::check_ttl(&self.spec, ttl)
    }
}

#[async_trait]
impl KeyValue for NatsKeyValue {
    async fn get(&self, key: &str) -> Result<Option<Entry>, KeyValueError> {
        rules::check_key(key)?;
        let newest = self.newest(key).await?;
        Ok(newest.and_then(|Stored { revision, value }| Some(Entry { key: key.to_owned(), value: value?, revision })))
    }

    async fn put(&self, key: &str, value: Bytes, ttl: Option<Duration>) -> Result<u64, KeyValueError> {
        self.check(key, &value, ttl)?;
        self.put_if(key, value, None, ttl).await
    }

    async fn create(&self, key: &str, value: Bytes, ttl: Option<Duration>) -> Result<u64, KeyValueError> {
        self.check(key, &value, ttl)?;
        let mut expected = 0;
        for _ in 0..CREATE_ATTEMPTS {
            // The current value is requested directly behind the write, so that a refusal takes one round trip.
            let mut put = pin!(self.put_if(key, value.clone(), Some(expected), ttl));
            let mut pending = pin!(self.newest(key));
            let (put, newest) = tokio::select! {
                biased;
                put = &mut put => (put, None),
                newest = &mut pending => (put.await, Some(newest)),
            };
            match put {
                Err(KeyValueError::Conflict { .. }) => {}
                done => return done,
            }
            let newest = match newest {
                Some(newest) => newest,
                None => pending.await,
            };
            expected = match newest? {
                Some(Stored { value: Some(_), .. }) => break,
                Some(Stored { value: None, revision }) => revision,
                None => 0,
            };
        }
        Err(KeyValueError::Conflict { key: key.to_owned() })
    }

    async fn update(&self, key: &str, value: Bytes, revision: u64, ttl: Option<Duration>) -> Result<u64, KeyValueError> {
        self.check(key, &value, ttl)?;
        self.put_if(key, value, Some(revision), ttl).await
    }

    async fn delete(&self, key: &str, revision: Option<u64>) -> Result<(), KeyValueError> {
        rules::check_key(key)?;
        let mut headers = Headers::new();
        // An expired purge, unlike a deletion (DEL), is not followed by a marker of the server's own.
        headers.set("KV-Operation", "PURGE");
        if let Some(ttl) = self.spec.marker_ttl {
            headers.set("Nats-TTL", ttl.as_secs().to_string());
        }
        self.store(key, Bytes::new(), headers, revision).await.map(|_| ())
    }

    async fn status(&self) -> Result<BucketStatus, KeyValueError> {
        Ok(ensure_bucket(&self.jetstream, &self.spec).await?.status())
    }

    async fn snapshot(&self, since: Option<&BucketStatus>) -> Result<Snapshot, KeyValueError> {
        Ok(snapshot::read(&self.jetstream, &self.spec, since).await?)
    }
}
