//! The keys of leases in a bucket.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bus::{BucketSpec, KeyValue, KeyValueError, SharedStateRef};
use bytes::Bytes;
use clock::Clock;
use contract::NodeName;
use contract::know::{StoredLease, decode, encode_as};
use contract::version::FIRST;
use tokio::sync::OnceCell;

use crate::outlived::Outlived;

/// How many released leases are remembered. One more takes the place of another, which then takes two round trips.
const RELEASED_MAX: usize = 4_096;

/// The parts of a [`LeaseStore`].
pub struct LeaseParts {
    /// Opens the bucket.
    pub state: SharedStateRef,
    /// The bucket.
    pub bucket: BucketSpec,
    /// The node that holds the leases taken here.
    pub holder: NodeName,
    /// Identifies this process if another one has the same node name.
    pub instance: String,
    /// How long a lease lasts without a renewal.
    pub term: Duration,
    /// The process's clock.
    pub clock: Clock,
}

/// The leases of one process in one bucket. Calls have no time limit: callers wait as long as they want. A request that a caller abandons
/// may still have been done; then the next look shows it.
pub struct LeaseStore {
    parts: LeaseParts,
    /// The version in which leases are written.
    version: AtomicU32,
    bucket: OnceCell<Arc<dyn KeyValue>>,
    /// Leases of others that this process could not take.
    outlived: Mutex<Outlived>,
    /// What this process holds, as far as it knows; removed when its term is over.
    held: Mutex<BTreeMap<String, Own>>,
    /// The revision at which each lease was released, if [`LeaseStore::saw_released`] recorded it.
    released: Mutex<BTreeMap<String, u64>>,
}

/// A lease that was taken or renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// The epoch: higher than all before, including those of a lost bucket if the server states when it was made.
    pub epoch: u64,
    /// The revision of its key.
    pub revision: u64,
    /// When it was requested, on this process's clock; its term counts from then.
    pub asked: Duration,
}

/// The result of a look at a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Looked {
    /// No process holds the lease.
    Free,
    /// This process holds it: an answer was lost.
    Mine {
        /// The revision of the key.
        revision: u64,
    },
    /// Another process holds it.
    Theirs {
        /// The holder: another node, or another process with this node's name.
        holder: NodeName,
        /// The epoch.
        epoch: u64,
    },
    /// The value is not this lease, or is just changing.
    Unreadable,
}

/// The result of taking a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Taken {
    /// This process holds it now.
    Now(Held),
    /// This process does not hold it; the look shows which one does.
    Not(Looked),
}

/// A lease to be released.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owned {
    key: String,
    revision: u64,
}

#[derive(Clone, Copy, Debug)]
struct Own {
    held: Held,
    until: Duration,
}

impl LeaseStore {
    /// Uses the bus only when called.
    #[must_use]
    pub fn new(parts: LeaseParts) -> Self {
        let outlived = Mutex::new(Outlived::of_term(parts.term));
        Self {
            parts,
            version: AtomicU32::new(FIRST),
            bucket: OnceCell::new(),
            outlived,
            held: Mutex::default(),
            released: Mutex::default(),
        }
    }

    /// The node that holds the leases taken here.
    #[must_use]
    pub fn holder(&self) -> &NodeName {
        &self.parts.holder
    }

    /// Sets the version in which leases are written from now on.
    pub fn write_in(&self, version: u32) {
        self.version.store(version, Ordering::Relaxed);
    }

    /// The bucket, opened at the first call.
    ///
    /// # Errors
    /// As [`bus::SharedState::bucket`].
    pub async fn bucket(&self) -> Result<Arc<dyn KeyValue>, KeyValueError> {
        let open = || async { Ok(self.parts.state.bucket(&self.parts.bucket).await?) };
        self.bucket.get_or_try_init(open).await.cloned()
    }

    /// Records that a lease was released at this revision of its key. Then [`LeaseStore::create`] takes it in one round trip; without the
    /// revision it takes two, because the server keeps a marker under the key.
    pub fn saw_released(&self, key: &str, revision: u64) {
        let mut released = locked(&self.released);
        if released.len() >= RELEASED_MAX && !released.contains_key(key) {
            released.pop_first();
        }
        released.insert(key.to_owned(), revision);
    }

    /// Records that another process holds a lease.
    pub fn saw_taken(&self, key: &str) {
        locked(&self.released).remove(key);
    }

    /// Forgets all of [`LeaseStore::saw_released`], because the bucket is or may be another one, in which a revision may be that of a lease
    /// that another process holds.
    pub fn forget_released(&self) {
        locked(&self.released).clear();
    }

    /// Looks up the holder of a lease; `of`: what the key is a hash of, else empty. A key that stays for two terms without a sign of its
    /// holder was written without a TTL, and is deleted.
    ///
    /// # Errors
    /// As [`KeyValue::get`].
    pub async fn look(&self, key: &str, of: &str) -> Result<Looked, KeyValueError> {
        let bucket = self.bucket().await?;
        let Some(entry) = bucket.get(key).await? else { return Ok(Looked::Free) };
        let lease = decode::<StoredLease>(&entry.value).ok().filter(|lease| lease.of == of);
        if locked(&self.outlived).stays(self.now(), key, entry.revision, &entry.value) {
            tracing::warn!(key, of, revision = entry.revision, "deleted a lease that stayed for two terms without a renewal");
            return match bucket.delete(key, Some(entry.revision)).await {
                Ok(()) => Ok(Looked::Free),
                Err(KeyValueError::Conflict { .. }) => Ok(Looked::Unreadable),
                Err(error) => Err(error),
            };
        }
        if lease.as_ref().is_some_and(|lease| self.is_mine(lease)) {
            return Ok(Looked::Mine { revision: entry.revision });
        }
        Ok(lease.map_or(Looked::Unreadable, |lease| {
            let epoch = lease.epoch_at(entry.revision);
            Looked::Theirs { holder: lease.holder, epoch }
        }))
    }

    /// Takes a lease that no process holds; none if one does. `bucket_made_s`: from the bucket's status, so that epochs rise if the bucket
    /// was lost; 0 if they need not.
    ///
    /// # Errors
    /// As [`KeyValue::create`], without the conflict.
    pub async fn create(&self, key: &str, of: &str, bucket_made_s: u64) -> Result<Option<Held>, KeyValueError> {
        let bucket = self.bucket().await?;
        let (asked, lease) = (self.now(), self.own(of, 0, bucket_made_s));
        let released = locked(&self.released).remove(key);
        if let Some(revision) = released {
            let updated = bucket.update(key, self.encoded(&lease), revision, Some(self.parts.term)).await;
            if let Some(held) = self.written(key, asked, &lease, updated)? {
                return Ok(Some(held));
            }
            // Another process took it, or its marker has expired.
        }
        let created = bucket.create(key, self.encoded(&lease), Some(self.parts.term)).await;
        self.written(key, asked, &lease, created)
    }

    /// Takes a lease in one round trip if no process holds it, or after its key has outlived its term.
    ///
    /// # Errors
    /// As [`LeaseStore::create`] and [`LeaseStore::look`].
    pub async fn take(&self, key: &str, of: &str) -> Result<Taken, KeyValueError> {
        if let Some(held) = self.create(key, of, 0).await? {
            return Ok(Taken::Now(held));
        }
        match self.look(key, of).await? {
            Looked::Free => Ok(self.create(key, of, 0).await?.map_or(Taken::Not(Looked::Unreadable), Taken::Now)),
            looked => Ok(Taken::Not(looked)),
        }
    }

    /// Takes a lease again that [`Looked::Mine`] found: with a new epoch, because it is unknown what was done in the earlier one. None if
    /// another process holds it by now.
    ///
    /// # Errors
    /// As [`KeyValue::update`], without the conflict.
    pub async fn regain(&self, key: &str, of: &str, revision: u64, bucket_made_s: u64) -> Result<Option<Held>, KeyValueError> {
        let bucket = self.bucket().await?;
        let (asked, lease) = (self.now(), self.own(of, 0, bucket_made_s));
        let updated = bucket.update(key, self.encoded(&lease), revision, Some(self.parts.term)).await;
        self.written(key, asked, &lease, updated)
    }

    /// Renews a lease of this process; none if this process no longer holds it. A renewal whose answer was lost has increased the revision:
    /// then the lease still belongs to this process.
    ///
    /// # Errors
    /// As [`KeyValue::update`] and [`KeyValue::get`], without the conflict.
    pub async fn renew(&self, key: &str, of: &str, epoch: u64) -> Result<Option<Held>, KeyValueError> {
        let bucket = self.bucket().await?;
        let (asked, lease) = (self.now(), self.own(of, epoch, 0));
        if let Some(revision) = self.revision_of(key, epoch) {
            let updated = bucket.update(key, self.encoded(&lease), revision, Some(self.parts.term)).await;
            if let Some(held) = self.written(key, asked, &lease, updated)? {
                return Ok(Some(held));
            }
        }
        let Some(entry) = bucket.get(key).await? else { return Ok(None) };
        let mine = |found: &StoredLease| self.is_mine(found) && found.of == of && found.epoch_at(entry.revision) == epoch;
        if !decode::<StoredLease>(&entry.value).is_ok_and(|found| mine(&found)) {
            return Ok(None);
        }
        let updated = bucket.update(key, self.encoded(&lease), entry.revision, Some(self.parts.term)).await;
        self.written(key, asked, &lease, updated)
    }

    /// Gives up a lease of this process, to be deleted now or later; none if the process does not hold it in this epoch. `epoch`: none for
    /// any.
    #[must_use]
    pub fn give_up(&self, key: &str, epoch: Option<u64>) -> Option<Owned> {
        let mut own = locked(&self.held);
        let revision = own.get(key).filter(|own| epoch.is_none_or(|epoch| own.held.epoch == epoch)).map(|own| own.held.revision)?;
        own.remove(key);
        Some(Owned { key: key.to_owned(), revision })
    }

    /// A lease that this process acquired without an answer, to be deleted.
    ///
    /// # Errors
    /// As [`LeaseStore::look`].
    pub async fn unanswered(&self, key: &str, of: &str) -> Result<Option<Owned>, KeyValueError> {
        let Looked::Mine { revision } = self.look(key, of).await? else { return Ok(None) };
        let is_known = locked(&self.held).contains_key(key);
        Ok((!is_known).then(|| Owned { key: key.to_owned(), revision }))
    }

    /// Releases a lease. If this fails, another process holds it by now, or it ends by itself.
    ///
    /// # Errors
    /// As [`KeyValue::delete`].
    pub async fn delete(&self, owned: &Owned) -> Result<(), KeyValueError> {
        self.bucket().await?.delete(&owned.key, Some(owned.revision)).await
    }

    /// The value that this process writes for its lease of that epoch, for a second key that records that a process has held it.
    #[must_use]
    pub fn record(&self, of: &str, epoch: u64) -> Bytes {
        self.encoded(&self.own(of, epoch, 0))
    }

    /// The result of writing `lease`; none: another process was faster.
    fn written(
        &self,
        key: &str,
        asked: Duration,
        lease: &StoredLease,
        written: Result<u64, KeyValueError>,
    ) -> Result<Option<Held>, KeyValueError> {
        let revision = match written {
            Ok(revision) => revision,
            Err(KeyValueError::Conflict { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let held = Held { epoch: lease.epoch_at(revision), revision, asked };
        let now = self.now();
        let mut own = locked(&self.held);
        own.retain(|_, own| now < own.until);
        own.insert(key.to_owned(), Own { held, until: asked + self.parts.term });
        Ok(Some(held))
    }

    fn revision_of(&self, key: &str, epoch: u64) -> Option<u64> {
        locked(&self.held).get(key).filter(|own| own.held.epoch == epoch).map(|own| own.held.revision)
    }

    fn own(&self, of: &str, epoch: u64, bucket_made_s: u64) -> StoredLease {
        let (holder, instance) = (self.parts.holder.clone(), self.parts.instance.clone());
        StoredLease { holder, instance, of: of.to_owned(), epoch, bucket_made_s }
    }

    fn is_mine(&self, lease: &StoredLease) -> bool {
        lease.holder == self.parts.holder && lease.instance == self.parts.instance
    }

    fn encoded(&self, lease: &StoredLease) -> Bytes {
        // A name that is too long for a value gives no readable lease: looks call it unreadable.
        encode_as(self.version.load(Ordering::Relaxed), lease).unwrap_or_default().into()
    }

    fn now(&self) -> Duration {
        self.parts.clock.now().monotonic
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
