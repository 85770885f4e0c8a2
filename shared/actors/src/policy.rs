//! Follows the fleet policy on the bus: reads it at the start, subscribes to changes, and reads it again in case a change was missed.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bus::{BusError, BusHealth, BusRef, HealthChanges, KeyValue, KeyValueError, Message, Subscription};
use clock::Random;
use contract::know::{POLICY, SharedBucket, decode};
use contract::policy::{FleetPolicy, POLICY_KEY, StoredPolicy};
use contract::subject::Fleet;
use futures::stream::{select_all, unfold};
use futures::{Stream, StreamExt as _};
use tokio::time::{Sleep, sleep, timeout};

use crate::bucket_spec;

/// How long a service waits for the policy at its start; a reachable bus answers within milliseconds.
const FIRST_WITHIN: Duration = Duration::from_millis(250);
/// How long the bucket may take to answer later.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// How often the bucket is read in case a change was missed, with a jitter of half. 10,000 nodes with two services each make some 350 reads
/// per second.
const LOOK_EVERY: Duration = Duration::from_secs(60);
/// The pause before the next read if the bus did not answer.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// As `LOOK_AGAIN`, if the bus refuses until a setting is changed. It is longer because the whole fleet asks.
const REFUSED_LOOK_AGAIN: Duration = Duration::from_secs(10);
/// When the bus comes back, all nodes read the bucket within this time. The known policy applies meanwhile.
const LOOK_SPREAD: Duration = Duration::from_secs(10);
/// The header with the revision of a republished value.
const REVISION: &str = "Nats-Sequence";

/// The policy in force. Revision 0: there is no policy, or this bus cannot have one.
#[derive(Debug, PartialEq)]
pub struct Followed {
    /// The policy.
    pub policy: FleetPolicy,
    /// Its revision.
    pub revision: u64,
}

/// Follows the policy of one fleet.
pub struct PolicyFollower {
    bus: BusRef,
    fleet: Fleet,
    random: Random,
    bucket: Option<Arc<dyn KeyValue>>,
    news: Option<Subscription>,
    health: HealthChanges,
    /// The health that the bus reported last. The first report is no change.
    reported: Option<BusHealth>,
    /// The timer of the next read.
    look_in: Pin<Box<Sleep>>,
    /// Whether that read is because the bus came back.
    looks_soon: bool,
    known: Known,
}

/// The known policy.
#[derive(Debug, Default)]
struct Known {
    /// The revision in force; 0: there is none.
    revision: Option<u64>,
    /// The last revision and value read, valid or not.
    seen: (u64, Vec<u8>),
    /// The creation time of the bucket when it was last looked up; empty: not yet.
    created: String,
    /// Whether a policy came by a message since then, so that the bucket may be a newer one.
    may_be_newer: bool,
    /// The creation time of a newer bucket that has no policy.
    empty: String,
    /// Whether another follower of this node logs what happens.
    is_quiet: bool,
}

impl Known {
    /// Takes the value at a revision; returns the policy if it is new and valid. An invalid one is logged once.
    fn found(&mut self, revision: u64, value: &[u8]) -> Option<Followed> {
        if self.has_seen(revision, value) {
            return None;
        }
        self.seen = (revision, value.to_vec());
        let read = decode::<StoredPolicy>(value).map_err(|error| error.to_string());
        let read = read.and_then(|stored| stored.policy.check().map_err(|error| error.to_string()).map(|()| stored));
        match read {
            Ok(StoredPolicy { policy, by }) => {
                if !self.is_quiet {
                    tracing::info!(revision, by, "the fleet policy is followed");
                }
                self.revision = Some(revision);
                Some(Followed { policy, revision })
            }
            Err(error) => {
                let followed = self.followed();
                if !self.is_quiet {
                    tracing::warn!(
                        revision,
                        error,
                        followed,
                        "the fleet policy cannot be followed, the one before is kept (0: none): set one with `fleetpull policy set`"
                    );
                }
                self.none_at_first()
            }
        }
    }

    /// Takes the absence of a policy in the bucket that was created at this time.
    fn found_none(&mut self, created: &str) -> Option<Followed> {
        if self.followed() == 0 {
            return self.none_at_first();
        }
        if created != self.created {
            if created != self.empty {
                let followed = self.followed();
                if !self.is_quiet {
                    tracing::warn!(
                        followed,
                        "the bus has lost the fleet policy, and this node goes on by it: set it with `fleetpull policy set`"
                    );
                }
                created.clone_into(&mut self.empty);
            }
            return None;
        }
        if !self.is_quiet {
            tracing::info!("there is no fleet policy any more: the median of the nodes' settings applies");
        }
        *self = Self { created: created.to_owned(), is_quiet: self.is_quiet, ..Self::default() };
        self.none_at_first()
    }

    /// Whether this value was read before. The revision alone does not show it, because revisions begin again in a new bucket.
    fn has_seen(&self, revision: u64, value: &[u8]) -> bool {
        self.seen.0 == revision && self.seen.1 == value
    }

    fn followed(&self) -> u64 {
        self.revision.unwrap_or_default()
    }

    /// Reports the absence of a policy once.
    fn none_at_first(&mut self) -> Option<Followed> {
        let is_news = self.revision.is_none();
        self.revision.get_or_insert(0);
        is_news.then(|| Followed { policy: FleetPolicy::default(), revision: 0 })
    }
}

impl PolicyFollower {
    /// A follower of the policy of a fleet. `random` is used for jitter alone.
    #[must_use]
    pub fn new(bus: BusRef, fleet: Fleet, random: Random) -> Self {
        let health = bus.health_changes();
        let known = Known::default();
        let look_in = Box::pin(sleep(Duration::ZERO));
        Self { bus, fleet, random, bucket: None, news: None, health, reported: None, look_in, looks_soon: false, known }
    }

    /// Logs nothing about the policy, because another service of the node follows it too and logs.
    #[must_use]
    pub fn quiet(mut self) -> Self {
        self.known.is_quiet = true;
        self
    }

    /// The policy at a service's start, if the bus answers in time; later ones come with [`Self::changes`].
    pub async fn first(&mut self) -> Option<Followed> {
        let first = self.look_within(FIRST_WITHIN).await;
        if self.known.revision.is_none() {
            self.look_in = Box::pin(sleep(Duration::ZERO));
        }
        first
    }

    /// Each later policy. The stream ends when the bus is drained.
    pub fn changes(self) -> impl Stream<Item = Followed> + Send {
        let changes = unfold(self, |mut follower| async move {
            let followed = follower.next().await?;
            Some((followed, follower))
        });
        // An actor polls its streams with each message that it handles. In a selection, a stream is polled only if one of its parts is ready.
        select_all([changes.boxed()])
    }

    /// Reads the bucket; returns the policy if it is new.
    async fn look(&mut self) -> Result<Option<Followed>, KeyValueError> {
        // Subscribe before the read, so that no later change is missed.
        if self.news.is_none() {
            self.news = Some(self.bus.subscribe(&self.fleet.knowledge_below(POLICY), None).await.map_err(KeyValueError::from)?);
        }
        let bucket = match &self.bucket {
            Some(bucket) => Arc::clone(bucket),
            None => {
                let bucket = self.bus.bucket(&bucket_spec(SharedBucket::policy(&self.fleet))).await.map_err(KeyValueError::from)?;
                Arc::clone(self.bucket.insert(bucket))
            }
        };
        match bucket.get(POLICY_KEY).await? {
            Some(entry)
                if self.known.has_seen(entry.revision, &entry.value) && !self.known.created.is_empty() && !self.known.may_be_newer =>
            {
                Ok(None)
            }
            Some(entry) => {
                (self.known.created, self.known.may_be_newer) = (bucket.status().await?.created, false);
                Ok(self.known.found(entry.revision, &entry.value))
            }
            None if self.known.followed() == 0 => {
                // Looked up once, so that a policy that is deleted before the next read is not taken for a lost one. Not at the start, which
                // does not wait for it.
                if self.known.revision.is_some() && self.known.created.is_empty() {
                    self.known.created = bucket.status().await?.created;
                }
                Ok(self.known.found_none(""))
            }
            None => Ok(self.known.found_none(&bucket.status().await?.created)),
        }
    }

    /// Reads the bucket within a time limit, and plans the next read.
    async fn look_within(&mut self, within: Duration) -> Option<Followed> {
        let looked = timeout(within, self.look()).await;
        let again = match &looked {
            Ok(Ok(_)) => LOOK_EVERY,
            Ok(Err(KeyValueError::Bus(BusError::Unsupported { .. } | BusError::Forbidden { .. }))) => REFUSED_LOOK_AGAIN,
            Ok(Err(_)) | Err(_) => LOOK_AGAIN,
        };
        self.look_in = Box::pin(sleep(again.mul_f64(0.5 + self.random.fraction())));
        self.looks_soon = false;
        match looked {
            Ok(Ok(followed)) => followed,
            Ok(Err(error)) => {
                tracing::debug!(%error, "the fleet policy cannot be read yet: what was known of it goes on");
                if again == REFUSED_LOOK_AGAIN { self.known.none_at_first() } else { None }
            }
            Err(_) => {
                tracing::debug!("the fleet policy is not read yet: the bus takes its time");
                None
            }
        }
    }

    /// Takes a republished change. For an older revision or a deletion the bucket is read instead.
    fn received(&mut self, message: &Message) -> Option<Followed> {
        if self.fleet.key_of(POLICY, &message.subject) != Some(POLICY_KEY) {
            return None;
        }
        let revision = message.headers.get(REVISION).and_then(|number| number.parse().ok()).unwrap_or_default();
        if revision > self.known.followed() && !message.payload.is_empty() {
            // The next read looks up the bucket's creation time.
            self.known.may_be_newer = true;
            return self.known.found(revision, &message.payload);
        }
        if !self.known.has_seen(revision, &message.payload) {
            self.look_in = Box::pin(sleep(Duration::ZERO));
        }
        None
    }

    /// Waits for the next policy; none: the bus was drained.
    async fn next(&mut self) -> Option<Followed> {
        loop {
            let news = async {
                match &mut self.news {
                    Some(news) => news.next().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                message = news => {
                    if let Some(followed) = self.received(&message?) {
                        return Some(followed);
                    }
                }
                health = self.health.next() => {
                    let health = health?;
                    let is_back = self.reported.is_some() && !is_away(&health);
                    self.reported = Some(health);
                    // Only once, so that a flapping bus does not postpone the read for ever.
                    if is_back && !std::mem::replace(&mut self.looks_soon, true) {
                        self.look_in = Box::pin(sleep(LOOK_SPREAD.mul_f64(self.random.fraction())));
                    }
                }
                // A bus that is away answers nothing, and its return plans a read.
                () = self.look_in.as_mut(), if !self.reported.as_ref().is_some_and(is_away) => {
                    if let Some(followed) = self.look_within(ANSWER_WITHIN).await {
                        return Some(followed);
                    }
                }
            }
        }
    }
}

fn is_away(health: &BusHealth) -> bool {
    matches!(health, BusHealth::Disconnected { .. })
}

#[cfg(test)]
mod tests;
