//! A key-value bucket that a node reaches over its faulty line.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bus::{BucketStatus, BusError, Entry, KeyValue, KeyValueError, Snapshot};
use bytes::Bytes;

use super::faulty_bus::STORE_TIMEOUT;
use super::faulty_network::{Direction, Fate, FaultyNetwork, LONG_WAY, Line};

/// A bucket behind a faulty line.
pub struct FaultyBucket {
    pub inner: Arc<dyn KeyValue>,
    pub node: usize,
    pub name: String,
    /// Whether this is the bucket of leases, whose grants are recorded.
    pub of_leases: bool,
    pub network: FaultyNetwork,
}

impl FaultyBucket {
    /// Performs a request, unless the request is lost; the answer may be lost too.
    async fn ask<T>(&self, asked: impl Future<Output = Result<T, KeyValueError>>) -> Result<T, KeyValueError> {
        let (began, line) = (self.network.now(), self.network.line(self.node));
        let (fate, takes) = self.network.fate(self.node, Direction::Out);
        let long = |takes: Duration| {
            if self.of_leases && takes >= LONG_WAY {
                self.network.unanswered(self.node, began)
            }
        };
        long(if fate == Fate::Lost { STORE_TIMEOUT } else { takes });
        if line == Line::Cut {
            return Err(BusError::Disconnected { reason: "the line is cut".to_owned() }.into());
        }
        if fate == Fate::Lost {
            if line == Line::Up && self.network.either() {
                let _ = asked.await;
            }
            return self.time_out(began).await;
        }
        tokio::time::sleep(takes).await;
        let answer = asked.await;
        let Some(takes) = self.network.answer(self.node) else {
            long(STORE_TIMEOUT);
            return self.time_out(began).await;
        };
        long(takes);
        tokio::time::sleep(takes).await;
        answer
    }

    /// Performs a write that takes a lease if it succeeds, and records that.
    async fn take(
        &self,
        key: &str,
        ttl: Option<Duration>,
        writing: impl Future<Output = Result<u64, KeyValueError>>,
    ) -> Result<u64, KeyValueError> {
        let asked = self.network.leases(|_, now| now);
        let written = self.ask(writing).await;
        if let (true, Some(ttl), true) = (self.of_leases, ttl, written.is_ok()) {
            self.network.leases(|leases, now| leases.won(self.node, key, asked, now, ttl));
        }
        written
    }

    /// Ends a request without an answer, after its time-out.
    async fn time_out<T>(&self, began: Duration) -> Result<T, KeyValueError> {
        tokio::time::sleep((began + STORE_TIMEOUT).saturating_sub(self.network.now())).await;
        Err(BusError::TimedOut { subject: self.name.clone(), timeout: STORE_TIMEOUT }.into())
    }
}

#[async_trait]
impl KeyValue for FaultyBucket {
    async fn get(&self, key: &str) -> Result<Option<Entry>, KeyValueError> {
        self.ask(self.inner.get(key)).await
    }

    async fn put(&self, key: &str, value: Bytes, ttl: Option<Duration>) -> Result<u64, KeyValueError> {
        self.ask(self.inner.put(key, value, ttl)).await
    }

    async fn create(&self, key: &str, value: Bytes, ttl: Option<Duration>) -> Result<u64, KeyValueError> {
        self.take(key, ttl, self.inner.create(key, value, ttl)).await
    }

    async fn update(&self, key: &str, value: Bytes, revision: u64, ttl: Option<Duration>) -> Result<u64, KeyValueError> {
        self.take(key, ttl, self.inner.update(key, value, revision, ttl)).await
    }

    async fn delete(&self, key: &str, revision: Option<u64>) -> Result<(), KeyValueError> {
        if self.of_leases {
            self.network.leases(|leases, now| leases.released(self.node, key, now));
        }
        self.ask(self.inner.delete(key, revision)).await
    }

    async fn status(&self) -> Result<BucketStatus, KeyValueError> {
        self.ask(self.inner.status()).await
    }

    async fn snapshot(&self, since: Option<&BucketStatus>) -> Result<Snapshot, KeyValueError> {
        self.ask(self.inner.snapshot(since)).await
    }
}
