//! One bucket: the newest value or marker of each key, with revisions that count for the whole bucket.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use clock::Now;

use crate::shared_state::{AgedEntry, BucketSpec, BucketStatus, Entry, KeyValueError, Snapshot};

/// The state of a bucket.
pub(super) struct Bucket {
    pub(super) spec: BucketSpec,
    /// Distinguishes this bucket from a lost one of the same name.
    created: u64,
    made: Now,
    revision: u64,
    slots: BTreeMap<Arc<str>, Slot>,
    /// The keys of values, in the order in which they were stored.
    stored: BTreeMap<u64, Arc<str>>,
    /// When keys expire, earliest first.
    expiring: BTreeSet<(Duration, Arc<str>)>,
    /// When the next check for expired keys is planned.
    expiry_check_at: Option<Duration>,
    bytes: u64,
}

/// The newest value or marker of one key.
struct Slot {
    content: Content,
    revision: u64,
    expires: Option<Duration>,
    stored: Duration,
}

/// The contents of a key: a value, or a marker that says why there is none.
#[derive(Clone)]
pub(super) enum Content {
    Value(Bytes),
    Deleted,
    Expired,
}

/// What must hold before a write is done.
#[derive(Clone, Copy)]
pub(super) enum Condition {
    Always,
    /// There is no value: never put, deleted or expired.
    Absent,
    /// The newest revision of the key is this one; 0: the key never had one.
    Revision(u64),
}

/// What was stored, for republishing.
pub(super) struct Stored {
    pub(super) key: String,
    pub(super) content: Content,
    pub(super) revision: u64,
    /// The key's previous revision; 0 if there was none.
    pub(super) previous: u64,
}

impl Bucket {
    pub(super) fn new(spec: BucketSpec, created: u64, made: Now) -> Self {
        let (slots, stored, expiring) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
        Self { spec, created, made, revision: 0, slots, stored, expiring, expiry_check_at: None, bytes: 0 }
    }

    /// Adds what `spec` asks for and this bucket lacks.
    pub(super) fn widen(&mut self, spec: &BucketSpec) {
        self.spec.marker_ttl = self.spec.marker_ttl.or(spec.marker_ttl);
        if self.spec.republish_to.is_none() {
            self.spec.republish_to.clone_from(&spec.republish_to);
        }
    }

    /// The value of a key.
    pub(super) fn get(&self, key: &str) -> Option<Entry> {
        Some(self.aged(key, Duration::ZERO)?.entry)
    }

    /// Which bucket it is and how far it has come.
    pub(super) fn status(&self, now: Duration) -> BucketStatus {
        let age = now.saturating_sub(self.made.monotonic);
        BucketStatus { created: self.created.to_string(), sequence: self.revision, made_at: self.made.wall, age, servers: None }
    }

    /// All values with their ages, or those stored after `since`, in the order in which they were stored.
    pub(super) fn snapshot(&self, now: Duration, since: Option<&BucketStatus>) -> Snapshot {
        let status = self.status(now);
        let after = since.filter(|since| since.created == status.created).map_or(0, |since| since.sequence);
        let stored = self.stored.range(after + 1..).map(|(_, key)| key);
        Snapshot { entries: stored.filter_map(|key| self.aged(key, now)).collect(), status }
    }

    fn aged(&self, key: &str, now: Duration) -> Option<AgedEntry> {
        let slot = self.slots.get(key)?;
        let value = slot.content.value()?.clone();
        let entry = Entry { key: key.to_owned(), value, revision: slot.revision };
        Some(AgedEntry { entry, age: now.saturating_sub(slot.stored) })
    }

    /// Stores a value for a time, if the condition holds and the bucket has room.
    pub(super) fn put(
        &mut self,
        key: &str,
        value: Bytes,
        condition: Condition,
        now: Duration,
        ttl: Option<Duration>,
    ) -> Result<Stored, KeyValueError> {
        self.check(key, condition)?;
        let content = Content::Value(value);
        let before = self.slots.get(key).map_or(0, |slot| slot.content.bytes(key));
        let room = self.spec.max_bytes.unwrap_or(u64::MAX);
        if self.spec.forgets_oldest && content.bytes(key) <= room {
            self.make_room(key, room - content.bytes(key));
        } else if self.bytes - before + content.bytes(key) > room {
            return Err(KeyValueError::Full { key: key.to_owned() });
        }
        Ok(self.store(key, content, now, ttl.map(|ttl| now + ttl)))
    }

    /// Stores a marker of deletion, if the condition holds.
    pub(super) fn delete(&mut self, key: &str, condition: Condition, now: Duration) -> Result<Stored, KeyValueError> {
        self.check(key, condition)?;
        Ok(self.store(key, Content::Deleted, now, self.marker_end(now)))
    }

    /// Stores markers for the keys that have expired, and removes markers whose own time is up.
    pub(super) fn expire(&mut self, now: Duration) -> Vec<Stored> {
        let mut stored = Vec::new();
        while self.expiring.first().is_some_and(|(at, _)| *at <= now) {
            let Some((_, key)) = self.expiring.pop_first() else {
                break;
            };
            let Some(slot) = self.slots.get(&key) else {
                continue;
            };
            if slot.content.value().is_some() {
                stored.push(self.store(&key, Content::Expired, now, self.marker_end(now)));
            } else {
                self.slots.remove(&key);
            }
        }
        stored
    }

    /// Removes the oldest values, except that of `key`, until the rest has at most `most` bytes.
    fn make_room(&mut self, key: &str, most: u64) {
        let of_key = self.slots.get(key).map_or(0, |slot| slot.content.bytes(key));
        while self.bytes - of_key > most
            && let Some(oldest) = self.stored.values().find(|stored| ***stored != *key).cloned()
        {
            self.forget(&oldest);
        }
    }

    fn forget(&mut self, key: &str) {
        let Some((name, slot)) = self.slots.remove_entry(key) else { return };
        self.bytes -= slot.content.bytes(key);
        self.stored.remove(&slot.revision);
        if let Some(at) = slot.expires {
            self.expiring.remove(&(at, name));
        }
    }

    fn check(&self, key: &str, condition: Condition) -> Result<(), KeyValueError> {
        let slot = self.slots.get(key);
        let holds = match condition {
            Condition::Always => true,
            Condition::Absent => slot.is_none_or(|slot| slot.content.value().is_none()),
            Condition::Revision(expected) => slot.map_or(0, |slot| slot.revision) == expected,
        };
        if holds { Ok(()) } else { Err(KeyValueError::Conflict { key: key.to_owned() }) }
    }

    fn store(&mut self, key: &str, content: Content, stored: Duration, expires: Option<Duration>) -> Stored {
        self.revision += 1;
        let revision = self.revision;
        let mut previous = 0;
        let mut name: Arc<str> = Arc::from(key);
        if let Some((known, before)) = self.slots.remove_entry(key) {
            name = known;
            previous = before.revision;
            self.bytes -= before.content.bytes(key);
            self.stored.remove(&before.revision);
            if let Some(at) = before.expires {
                self.expiring.remove(&(at, Arc::clone(&name)));
            }
        }
        self.bytes += content.bytes(key);
        if content.value().is_some() {
            self.stored.insert(revision, Arc::clone(&name));
        }
        if let Some(at) = expires {
            self.expiring.insert((at, Arc::clone(&name)));
        }
        let slot = Slot { content: content.clone(), revision, expires, stored };
        self.slots.insert(name, slot);
        Stored { key: key.to_owned(), content, revision, previous }
    }

    /// Plans a check for expired keys when the first key expires; none if a check by then is planned already, or nothing expires.
    pub(super) fn plan_expiry_check(&mut self) -> Option<Duration> {
        let (at, _) = self.expiring.first()?;
        let is_news = self.expiry_check_at.is_none_or(|planned| *at < planned);
        is_news.then(|| *self.expiry_check_at.insert(*at))
    }

    /// Begins the check that was planned for this time; false if another one has replaced it.
    pub(super) fn begin_expiry_check(&mut self, planned: Duration) -> bool {
        let is_due = self.expiry_check_at == Some(planned);
        if is_due {
            self.expiry_check_at = None;
        }
        is_due
    }

    fn marker_end(&self, now: Duration) -> Option<Duration> {
        self.spec.marker_ttl.map(|ttl| now + ttl)
    }
}

impl Content {
    fn value(&self) -> Option<&Bytes> {
        match self {
            Self::Value(value) => Some(value),
            Self::Deleted | Self::Expired => None,
        }
    }

    /// How many bytes this counts towards the limit of the bucket.
    fn bytes(&self, key: &str) -> u64 {
        self.value().map_or(0, |value| (key.len() + value.len()) as u64)
    }
}
