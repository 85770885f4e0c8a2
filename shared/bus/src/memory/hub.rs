//! What all connections of a memory bus share: subscriptions, awaited replies, streams and buckets.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use clock::{Clock, Now};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::sync::{mpsc, oneshot};

use super::bucket::{Bucket, Content, Stored};
use super::routes::Routes;
use super::streams::{MESSAGE_ID, Streams};
use crate::caller_state::CallerState;
use crate::error::BusError;
use crate::event_log::{Appended, StreamPage, StreamQuery, StreamSpec, StreamStatus};
use crate::message::{Headers, Message};
use crate::messaging::SUBSCRIPTION_CAPACITY;
use crate::shared_state::{BucketSpec, BucketStatus, Entry, KeyValueError, Snapshot};

/// A connection, in the order of connecting.
pub(super) type ConnectionId = u64;

/// The prefix of reply subjects; the number of the request follows.
const REPLY_PREFIX: &str = "_INBOX.memory.";

/// The shared state behind a lock that is never held across an await.
pub(super) struct Hub {
    clock: Clock,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    last_id: u64,
    last_bucket: u64,
    closed: BTreeSet<ConnectionId>,
    routes: Routes,
    subscribers: BTreeMap<u64, Subscriber>,
    /// The position of the next receiver in each queue group.
    turns: BTreeMap<String, usize>,
    replies: BTreeMap<u64, oneshot::Sender<Message>>,
    dropped: u64,
    streams: Streams,
    buckets: BTreeMap<String, Bucket>,
    /// Buckets refuse all values.
    full: bool,
    /// How long buckets take to answer.
    delay: Duration,
}

struct Subscriber {
    connection: ConnectionId,
    pattern: String,
    queue: Option<String>,
    /// All subscribers share one message: it is copied when a subscriber takes it.
    messages: mpsc::Sender<Arc<Message>>,
}

impl Hub {
    pub(super) fn new(clock: Clock) -> Self {
        Self { clock, state: Mutex::default() }
    }

    pub(super) fn connect(&self) -> ConnectionId {
        self.state().new_id()
    }

    pub(super) fn check_open(&self, connection: ConnectionId) -> Result<(), BusError> {
        if self.state().closed.contains(&connection) { Err(BusError::Closed) } else { Ok(()) }
    }

    /// Ends the subscriptions of a connection after its queued messages have been read.
    pub(super) fn close(&self, connection: ConnectionId) {
        let mut state = self.state();
        state.closed.insert(connection);
        let ended: Vec<_> = state.subscribers.iter().filter(|(_, one)| one.connection == connection).map(|(id, _)| *id).collect();
        for id in ended {
            state.unsubscribe(id);
        }
    }

    pub(super) fn publish(&self, message: Message) {
        let now = self.clock.now();
        let mut state = self.state();
        state.streams.store(&message, now);
        state.deliver(message);
    }

    /// Publishes and awaits an answer; none if nobody subscribes.
    pub(super) fn ask(&self, mut message: Message) -> Option<(u64, oneshot::Receiver<Message>)> {
        let mut state = self.state();
        let reached = state.routes.reached_by(&message.subject);
        if reached.is_empty() {
            return None;
        }
        let id = state.new_id();
        let (sender, receiver) = oneshot::channel();
        state.replies.insert(id, sender);
        message.reply_to = Some(format!("{REPLY_PREFIX}{id}"));
        state.deliver_to(&reached, message);
        Some((id, receiver))
    }

    /// Numbered instead of random, so that a run is repeatable.
    pub(super) fn new_inbox(&self) -> String {
        format!("{REPLY_PREFIX}{}", self.state().new_id())
    }

    pub(super) fn forget_reply(&self, id: u64) {
        self.state().replies.remove(&id);
    }

    /// Whether anybody waits for a reply on this subject.
    pub(super) fn caller_state(&self, reply_to: &str) -> CallerState {
        let mut state = self.state();
        let awaited = state.awaited_on(reply_to).is_some_and(|id| state.replies.contains_key(&id));
        if awaited || !state.routes.reached_by(reply_to).is_empty() { CallerState::Waiting } else { CallerState::Abandoned }
    }

    pub(super) fn subscribe(&self, connection: ConnectionId, pattern: &str, queue: Option<&str>) -> (u64, mpsc::Receiver<Arc<Message>>) {
        let (messages, receiver) = mpsc::channel(SUBSCRIPTION_CAPACITY);
        let (pattern, queue) = (pattern.to_owned(), queue.map(str::to_owned));
        let mut state = self.state();
        let id = state.new_id();
        state.routes.insert(&pattern, id);
        state.subscribers.insert(id, Subscriber { connection, pattern, queue, messages });
        (id, receiver)
    }

    pub(super) fn unsubscribe(&self, id: u64) {
        self.state().unsubscribe(id);
    }

    pub(super) fn dropped(&self) -> u64 {
        self.state().dropped
    }

    pub(super) fn open_stream(&self, spec: &StreamSpec) -> StreamStatus {
        let mut state = self.state();
        let number = state.new_id();
        state.streams.open(spec, number)
    }

    pub(super) fn lose_stream(&self, name: &str) {
        self.state().streams.lose(name);
    }

    /// One page; none if there is no such stream.
    pub(super) fn read_stream(&self, query: &StreamQuery) -> Option<StreamPage> {
        let now = self.clock.now().wall;
        self.state().streams.read(query, now)
    }

    /// Stores a message and delivers it; none if no stream stores its subject.
    pub(super) fn append(&self, mut message: Message, message_id: &str) -> Option<Appended> {
        let now = self.clock.now();
        let mut state = self.state();
        message.headers.set(MESSAGE_ID, message_id.to_owned());
        let appended = state.streams.store(&message, now);
        state.deliver(message);
        appended
    }

    pub(super) fn open_bucket(&self, spec: &BucketSpec) {
        self.state().bucket(spec, self.clock.now()).widen(spec);
    }

    pub(super) fn lose_bucket(&self, name: &str) {
        self.state().buckets.remove(name);
    }

    pub(super) fn set_full(&self, full: bool) {
        self.state().full = full;
    }

    pub(super) fn set_delay(&self, delay: Duration) {
        self.state().delay = delay;
    }

    /// Waits for as long as an answer takes.
    pub(super) async fn delay(&self) {
        let delay = self.state().delay;
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.state().full
    }

    /// The value of a key now.
    pub(super) fn get(&self, spec: &BucketSpec, key: &str) -> Option<Entry> {
        self.state().current_bucket(spec, self.clock.now()).get(key)
    }

    /// All values of a bucket now, or those stored after `since`.
    pub(super) fn snapshot(&self, spec: &BucketSpec, since: Option<&BucketStatus>) -> Snapshot {
        let now = self.clock.now();
        self.state().current_bucket(spec, now).snapshot(now.monotonic, since)
    }

    /// Which bucket it is now and how far it has come.
    pub(super) fn status(&self, spec: &BucketSpec) -> BucketStatus {
        let now = self.clock.now();
        self.state().current_bucket(spec, now).status(now.monotonic)
    }

    /// Applies `write` to the current bucket, republishes the change, and returns the revision.
    pub(super) fn write(
        &self,
        spec: &BucketSpec,
        write: impl FnOnce(&mut Bucket, Duration) -> Result<Stored, KeyValueError>,
    ) -> Result<u64, KeyValueError> {
        let now = self.clock.now();
        let mut state = self.state();
        let stored = write(state.current_bucket(spec, now), now.monotonic)?;
        let revision = stored.revision;
        state.announce(&spec.name, stored, now);
        Ok(revision)
    }

    /// Starts to remove expired keys when the next one is due. One task does this for a bucket, because leases are renewed far more often
    /// than they expire.
    pub(super) fn watch_expiry(self: &Arc<Self>, spec: &BucketSpec) {
        let now = self.clock.now().monotonic;
        let Some(mut planned) = self.state().buckets.get_mut(&spec.name).and_then(Bucket::plan_expiry_check) else { return };
        let (hub, name, mut wait) = (Arc::downgrade(self), spec.name.clone(), planned.saturating_sub(now));
        let expiring = async move {
            loop {
                tokio::time::sleep(wait).await;
                let Some(hub) = hub.upgrade() else { return };
                let Some(next) = hub.expire(&name, planned) else { return };
                (planned, wait) = next;
            }
        };
        tasks::spawn("bus-expiry", expiring);
    }

    /// Removes expired keys, as planned for this time. Returns when to do it next, and how long that is from now.
    fn expire(&self, bucket: &str, planned: Duration) -> Option<(Duration, Duration)> {
        let now = self.clock.now();
        let mut state = self.state();
        if !state.buckets.get_mut(bucket)?.begin_expiry_check(planned) {
            return None;
        }
        state.expire(bucket, now);
        let next = state.buckets.get_mut(bucket)?.plan_expiry_check()?;
        Some((next, next.saturating_sub(now.monotonic)))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn new_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    fn unsubscribe(&mut self, id: u64) {
        if let Some(subscriber) = self.subscribers.remove(&id) {
            self.routes.remove(&subscriber.pattern, id);
        }
    }

    fn deliver(&mut self, message: Message) {
        let reached = self.routes.reached_by(&message.subject);
        if let Some(caller) = self.awaited_on(&message.subject).and_then(|id| self.replies.remove(&id)) {
            // The caller may have given up just now; then the reply is dropped.
            let _ = caller.send(message.clone());
        }
        self.deliver_to(&reached, message);
    }

    /// The number of the request that awaits its reply on this subject; none if it is another subject.
    fn awaited_on(&self, subject: &str) -> Option<u64> {
        subject.strip_prefix(REPLY_PREFIX)?.parse().ok()
    }

    /// Delivers to every plain subscription, and to one member of each queue group in turn.
    fn deliver_to(&mut self, reached: &[u64], message: Message) {
        let message = Arc::new(message);
        if let [only] = reached {
            return self.deliver_one(*only, message);
        }
        let mut groups: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        let mut receivers = Vec::with_capacity(reached.len());
        for id in reached {
            match self.subscribers.get(id).and_then(|subscriber| subscriber.queue.as_ref()) {
                Some(queue) => groups.entry(queue.clone()).or_default().push(*id),
                None => receivers.push(*id),
            }
        }
        for (queue, members) in groups {
            let turn = self.turns.entry(queue).or_default();
            receivers.push(members[*turn % members.len()]);
            *turn = turn.wrapping_add(1);
        }
        for id in receivers {
            self.deliver_one(id, Arc::clone(&message));
        }
    }

    fn deliver_one(&mut self, id: u64, message: Arc<Message>) {
        let Some(subscriber) = self.subscribers.get(&id) else { return };
        if let Err(mpsc::error::TrySendError::Full(_)) = subscriber.messages.try_send(message) {
            self.dropped += 1;
        }
    }

    /// The bucket, made again if it was lost.
    fn bucket(&mut self, spec: &BucketSpec, now: Now) -> &mut Bucket {
        if !self.buckets.contains_key(&spec.name) {
            self.last_bucket += 1;
        }
        let created = self.last_bucket;
        self.buckets.entry(spec.name.clone()).or_insert_with(|| Bucket::new(spec.clone(), created, now))
    }

    /// The bucket, with expired keys removed.
    fn current_bucket(&mut self, spec: &BucketSpec, now: Now) -> &mut Bucket {
        self.bucket(spec, now);
        self.expire(&spec.name, now);
        self.bucket(spec, now)
    }

    fn expire(&mut self, bucket: &str, now: Now) {
        let expired = self.buckets.get_mut(bucket).map(|bucket| bucket.expire(now.monotonic)).unwrap_or_default();
        for stored in expired {
            self.announce(bucket, stored, now);
        }
    }

    fn announce(&mut self, bucket: &str, stored: Stored, now: Now) {
        let spec = self.buckets.get(bucket).map(|bucket| &bucket.spec);
        if let Some(target) = spec.and_then(|spec| spec.republish_to.clone()) {
            self.deliver(republished(bucket, &target, stored, now));
        }
    }
}

/// A stored change as a server republishes it, with the headers that a server sets.
fn republished(bucket: &str, target: &str, stored: Stored, now: Now) -> Message {
    let Stored { key, content, revision, previous } = stored;
    let time = (OffsetDateTime::UNIX_EPOCH + now.wall).format(&Rfc3339);
    let mut headers = Headers::new();
    headers.set("Nats-Stream", format!("KV_{bucket}"));
    headers.set("Nats-Subject", format!("$KV.{bucket}.{key}"));
    headers.set("Nats-Sequence", revision.to_string());
    headers.set("Nats-Last-Sequence", previous.to_string());
    headers.set("Nats-Time-Stamp", time.unwrap_or_default());
    let payload = match content {
        Content::Value(value) => value,
        Content::Deleted => {
            headers.set("KV-Operation", "PURGE");
            headers.set("Nats-Rollup", "sub");
            Bytes::new()
        }
        Content::Expired => {
            headers.set("Nats-Marker-Reason", "MaxAge");
            Bytes::new()
        }
    };
    Message::new(format!("{target}.{key}"), payload).with_headers(headers)
}
