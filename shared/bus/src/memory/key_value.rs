//! A handle to a bucket of the memory bus.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use super::bucket::Condition;
use super::hub::{ConnectionId, Hub};
use crate::rules;
use crate::shared_state::{BucketSpec, BucketStatus, Entry, KeyValue, KeyValueError, Snapshot};

/// A handle to a bucket; it makes the bucket again if it was lost.
pub(super) struct MemoryKeyValue {
    hub: Arc<Hub>,
    connection: ConnectionId,
    spec: BucketSpec,
}

impl MemoryKeyValue {
    pub(super) fn new(hub: Arc<Hub>, connection: ConnectionId, spec: BucketSpec) -> Self {
        Self { hub, connection, spec }
    }

    fn check(&self, key: &str) -> Result<(), KeyValueError> {
        self.hub.check_open(self.connection)?;
        rules::check_key(key)
    }

    fn store(&self, key: &str, value: Bytes, condition: Condition, ttl: Option<Duration>) -> Result<u64, KeyValueError> {
        self.check(key)?;
        rules::check_value(key, &value)?;
        rules::check_ttl(&self.spec, ttl)?;
        if self.hub.is_full() {
            return Err(KeyValueError::Full { key: key.to_owned() });
        }
        let revision = self.hub.write(&self.spec, |bucket, now| bucket.put(key, value, condition, now, ttl))?;
        if ttl.is_some() {
            self.hub.watch_expiry(&self.spec);
        }
        Ok(revision)
    }
}

#[async_trait]
impl KeyValue for MemoryKeyValue {
    async fn get(&self, key: &str) -> Result<Option<Entry>, KeyValueError> {
        self.check(key)?;
        let entry = self.hub.get(&self.spec, key);
        self.hub.delay().await;
        Ok(entry)
    }

    async fn put(&self, key: &str, value: Bytes, ttl: Option<Duration>) -> Result<u64, KeyValueError> {
        let stored = self.store(key, value, Condition::Always, ttl);
        self.hub.delay().await;
        stored
    }

    async fn create(&self, key: &str, value: Bytes, ttl: Option<Duration>) -> Result<u64, KeyValueError> {
        let stored = self.store(key, value, Condition::Absent, ttl);
        self.hub.delay().await;
        stored
    }

    async fn update(&self, key: &str, value: Bytes, revision: u64, ttl: Option<Duration>) -> Result<u64, KeyValueError> {
        let stored = self.store(key, value, Condition::Revision(revision), ttl);
        self.hub.delay().await;
        stored
    }

    async fn delete(&self, key: &str, revision: Option<u64>) -> Result<(), KeyValueError> {
        self.check(key)?;
        let condition = revision.map_or(Condition::Always, Condition::Revision);
        let deleted = self.hub.write(&self.spec, |bucket, now| bucket.delete(key, condition, now));
        self.hub.delay().await;
        deleted.map(|_| ())
    }

    async fn status(&self) -> Result<BucketStatus, KeyValueError> {
        self.hub.check_open(self.connection)?;
        let status = self.hub.status(&self.spec);
        self.hub.delay().await;
        Ok(status)
    }

    async fn snapshot(&self, since: Option<&BucketStatus>) -> Result<Snapshot, KeyValueError> {
        self.hub.check_open(self.connection)?;
        let snapshot = self.hub.snapshot(&self.spec, since);
        self.hub.delay().await;
        Ok(snapshot)
    }
}
