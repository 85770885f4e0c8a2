//! Watching a bucket.
//!
//! A push consumer of the server feeds the watch: the newest of each key, then what comes. Whenever anything is amiss (a new
//! connection, a gap, silence, a bucket that is gone) the watch lists anew and tells what differs from what it has told.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use async_nats::Subscriber;
use bytes::Bytes;
use futures::StreamExt;
use serde_json::json;
use tokio::sync::watch::Receiver;
use tokio::time::timeout;
use tracing::debug;

use super::jetstream::JetStream;
use super::link::Phase;
use super::stored::is_marker;
use super::streams::{ensure_bucket, nanoseconds, stream_of};
use crate::message::Message;
use crate::port::{BucketSpec, BusError, Entry, EntryChange, EntryWatch};

/// How often the server says that it is still there when nothing changes.
const HEARTBEAT: Duration = Duration::from_secs(2);

/// After two missed heartbeats and some delay the feed counts as dead.
const SILENCE_LIMIT: Duration = Duration::from_secs(5);

/// How long the server keeps a consumer that nobody reads any more.
const CONSUMER_KEPT: Duration = Duration::from_secs(10);

/// How long to wait after a listing that failed although the bus is connected.
const RETRY_DELAY: Duration = Duration::from_millis(500);

/// The status of messages about a feed that is well.
const IDLE_HEARTBEAT_STATUS: u16 = 100;

/// Begins a watch; fails if the first listing cannot begin.
pub(super) async fn begin(jetstream: JetStream, spec: BucketSpec, prefix: &str) -> Result<EntryWatch, BusError> {
    let mut epochs = jetstream.connection.link.epochs();
    epochs.mark_unchanged();
    let cut = jetstream.connection.link.until(Phase::Cut);
    let mut watch = Watch {
        jetstream,
        spec,
        prefix: prefix.to_owned(),
        epochs,
        feed: None,
        created: String::new(),
        known: BTreeMap::new(),
        listed: false,
        ready: VecDeque::new(),
    };
    watch.list().await?;
    let changes = futures::stream::unfold(watch, |mut watch| async move {
        let change = watch.next().await?;
        Some((change, watch))
    });
    Ok(changes.take_until(cut).boxed())
}

struct Watch {
    jetstream: JetStream,
    spec: BucketSpec,
    prefix: String,
    epochs: Receiver<u64>,
    feed: Option<Feed>,
    /// When the bucket was made that `known` is of.
    created: String,
    /// The revision of each key whose value has been told.
    known: BTreeMap<String, u64>,
    /// Whether the first listing is over.
    listed: bool,
    ready: VecDeque<EntryChange>,
}

/// What a consumer sends.
struct Feed {
    subscriber: Subscriber,
    /// Counts what the consumer has sent; a jump is a message that was dropped.
    sequence: u64,
    /// The keys with values seen in the listing; none when that is over.
    listing: Option<BTreeSet<String>>,
}

/// What a feed gave.
enum Fed {
    /// The newest of a key.
    Newest { key: String, revision: u64, content: Option<Bytes>, last: bool },
    /// Nothing new, but all of the listing has come.
    Complete,
    /// The feed is over.
    Broken(&'static str),
}

impl Watch {
    /// The next change; none when the connection is over.
    async fn next(&mut self) -> Option<EntryChange> {
        loop {
            if let Some(change) = self.ready.pop_front() {
                return Some(change);
            }
            if self.epochs.has_changed().unwrap_or(false) {
                self.feed = None;
            }
            match &mut self.feed {
                None if self.jetstream.connection.link.is_closed() => return None,
                None => self.list_again().await,
                Some(feed) => {
                    let prefix_len = "$KV..".len() + self.spec.name.len();
                    let fed = tokio::select! {
                        biased;
                        _ = self.epochs.changed() => Fed::Broken("a new connection"),
                        fed = feed.next(&self.jetstream, prefix_len) => fed,
                    };
                    self.take(fed);
                }
            }
        }
    }

    /// Lists as soon as the bus lets it.
    async fn list_again(&mut self) {
        let link = &self.jetstream.connection.link;
        tokio::select! {
            biased;
            () = link.until(Phase::Closed) => return,
            _ = link.wait_up() => {}
        }
        self.epochs.mark_unchanged();
        if let Err(error) = self.list().await {
            debug!(bucket = self.spec.name, %error, "a watch cannot list, tries again");
            tokio::time::sleep(RETRY_DELAY).await;
        }
    }

    /// Begins a feed with the newest of each key.
    async fn list(&mut self) -> Result<(), BusError> {
        let existing = ensure_bucket(&self.jetstream, &self.spec).await?;
        if existing.created != self.created {
            // Revisions of another bucket mean nothing here: what is there now must be told whatever its revision.
            self.known.values_mut().for_each(|revision| *revision = 0);
            self.created = existing.created;
        }
        let client = &self.jetstream.connection.client;
        let inbox = client.new_inbox();
        let subscriber = self.jetstream.connection.subscribe(&inbox, None).await?;
        let stream = stream_of(&self.spec.name);
        let name = inbox.rsplit('.').next().unwrap_or(&inbox);
        let request = json!({
            "stream_name": stream,
            "action": "create",
            "config": {
                "name": name,
                "deliver_subject": inbox,
                "deliver_policy": "last_per_subject",
                "filter_subjects": self.filters(),
                "ack_policy": "none",
                "replay_policy": "instant",
                "flow_control": true,
                "idle_heartbeat": nanoseconds(HEARTBEAT),
                "inactive_threshold": nanoseconds(CONSUMER_KEPT),
                "num_replicas": 1,
                "mem_storage": true,
            },
        });
        let made = self.jetstream.call(&format!("CONSUMER.CREATE.{stream}.{name}"), &request).await;
        let made = made.map_err(|error| error.into_bus(&format!("watching the bucket {}", self.spec.name)))?;
        self.feed = Some(Feed { subscriber, sequence: 0, listing: Some(BTreeSet::new()) });
        self.end_listing_if(made["num_pending"] == json!(0) && made["delivered"]["consumer_seq"] == json!(0));
        Ok(())
    }

    fn filters(&self) -> Vec<String> {
        let bucket = &self.spec.name;
        match self.prefix.as_str() {
            "" => vec![format!("$KV.{bucket}.>")],
            prefix => vec![format!("$KV.{bucket}.{prefix}"), format!("$KV.{bucket}.{prefix}.>")],
        }
    }

    fn take(&mut self, fed: Fed) {
        let Some(feed) = &mut self.feed else { return };
        match fed {
            Fed::Newest { key, revision, content: Some(value), last } => {
                if let Some(seen) = &mut feed.listing {
                    seen.insert(key.clone());
                }
                if self.known.insert(key.clone(), revision) != Some(revision) {
                    self.ready.push_back(EntryChange::Put(Entry { key, value, revision }));
                }
                self.end_listing_if(last);
            }
            Fed::Newest { key, revision, content: None, last } => {
                // A marker of old is news to nobody who never knew the key.
                if self.known.remove(&key).is_some() || feed.listing.is_none() {
                    self.ready.push_back(EntryChange::Gone { key, revision });
                }
                self.end_listing_if(last);
            }
            Fed::Complete => self.end_listing_if(true),
            Fed::Broken(why) => {
                debug!(bucket = self.spec.name, why, "a watch lists anew");
                self.feed = None;
            }
        }
    }

    /// Tells what went while nobody was watching, and the first time that the listing is complete.
    fn end_listing_if(&mut self, complete: bool) {
        if !complete {
            return;
        }
        let Some(seen) = self.feed.as_mut().and_then(|feed| feed.listing.take()) else { return };
        let gone: Vec<String> = self.known.keys().filter(|key| !seen.contains(*key)).cloned().collect();
        for key in gone {
            self.known.remove(&key);
            self.ready.push_back(EntryChange::Gone { key, revision: 0 });
        }
        if !self.listed {
            self.listed = true;
            self.ready.push_back(EntryChange::Current);
        }
    }
}

impl Feed {
    async fn next(&mut self, jetstream: &JetStream, prefix_len: usize) -> Fed {
        loop {
            let message = match timeout(SILENCE_LIMIT, self.subscriber.next()).await {
                Ok(Some(message)) => message,
                Ok(None) => return Fed::Broken("the subscription ended"),
                Err(_) => return Fed::Broken("no heartbeat"),
            };
            if message.status.is_some() {
                match self.control(message, jetstream).await {
                    Some(fed) => return fed,
                    None => continue,
                }
            }
            let Some(place) = message.reply.as_deref().and_then(Place::read) else { continue };
            self.sequence += 1;
            if place.consumer_sequence != self.sequence {
                return Fed::Broken("a gap");
            }
            let marker = message.headers.as_ref().is_some_and(is_marker);
            return Fed::Newest {
                key: message.subject.get(prefix_len..).unwrap_or_default().to_owned(),
                revision: place.stream_sequence,
                content: (!marker).then_some(message.payload),
                last: place.pending == 0,
            };
        }
    }

    /// A message of the server about the feed itself: a heartbeat, or a question whether we keep up.
    async fn control(&self, message: async_nats::Message, jetstream: &JetStream) -> Option<Fed> {
        if message.status.map(|status| status.as_u16()) != Some(IDLE_HEARTBEAT_STATUS) {
            return Some(Fed::Broken("the server ended it"));
        }
        let header = |name: &str| message.headers.as_ref()?.get(name).map(ToString::to_string);
        let answer_to = message.reply.as_ref().map(ToString::to_string).or_else(|| header("Nats-Consumer-Stalled"));
        if let Some(subject) = answer_to {
            // When it cannot be sent there is no connection, and the next one lists anew.
            let _ = jetstream.connection.send(Message::new(subject, "")).await;
        }
        let sent: u64 = header("Nats-Last-Consumer")?.parse().ok()?;
        match sent == self.sequence {
            true => self.listing.is_some().then_some(Fed::Complete),
            false => Some(Fed::Broken("a gap")),
        }
    }
}

/// Where a message stands, as the server writes it into the reply subject.
struct Place {
    stream_sequence: u64,
    consumer_sequence: u64,
    /// How many are still to come.
    pending: u64,
}

impl Place {
    /// Reads `$JS.ACK.<stream>.<consumer>.<deliveries>.<stream sequence>.<consumer sequence>.<time>.<pending>`, which newer
    /// servers write with two more tokens before the stream and one at the end.
    fn read(reply: &str) -> Option<Self> {
        let tokens: Vec<&str> = reply.split('.').collect();
        let first = match tokens.len() {
            9 => 2,
            11.. => 4,
            _ => return None,
        };
        let number = |place: usize| tokens.get(first + place)?.parse().ok();
        Some(Self { stream_sequence: number(3)?, consumer_sequence: number(4)?, pending: number(6)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_of_a_message_is_read_from_both_forms() {
        for (reply, expected) in [
            ("$JS.ACK.KV_b.c.1.30.20.1700000000000000000.10", Some((30, 20, 10))),
            ("$JS.ACK._.hash.KV_b.c.1.30.20.1700000000000000000.10.rnd", Some((30, 20, 10))),
            ("$JS.ACK.hub.hash.KV_b.c.1.30.20.1700000000000000000.10", Some((30, 20, 10))),
            ("$JS.ACK.KV_b.c.1.x.20.1700000000000000000.10", None),
            ("_INBOX.a.b", None),
        ] {
            let place = Place::read(reply).map(|place| (place.stream_sequence, place.consumer_sequence, place.pending));
            assert_eq!(place, expected, "{reply}");
        }
    }
}
