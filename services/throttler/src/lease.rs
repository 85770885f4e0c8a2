//! The lease of a budget leader, in the fleet's bucket of leaders.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use actors::bucket_spec;
use bus::{BucketStatus, BusError, BusRef, KeyValueError};
use clock::{Clock, RoundTrips};
use contract::know::SharedBucket;
use contract::subject::Fleet;
use contract::{DEADLINES, NodeName};
use lease::{Held, LeaseParts, LeaseStore, Looked};
use sha2::{Digest as _, Sha256};
use tokio::sync::OnceCell;

use crate::core::budget::{Input, LEADERS_PERMITS_LAST, OWNERS_MAX, Term};

/// How long the bucket remembers that a budget was led, much longer than permits last. The record is renewed at a third of this.
const LED_REMEMBERED: Duration = Duration::from_secs(600);
/// This key marks a bucket that replaces a lost one, for a while: a node that has just started cannot know that there was another bucket.
const REPLACES_ANOTHER: &str = "budget.replaced";
/// The bucket is assumed to answer in this time until it has answered once.
const ANSWER_EXPECTED: Duration = Duration::from_millis(50);

/// The bucket of leaders, as the throttlers of a fleet use it.
pub(crate) struct Leases {
    store: LeaseStore,
    clock: Clock,
    /// The bucket that existed when this node first found the bus; none if it could not be read.
    found: OnceCell<Option<String>>,
    /// When the record that a budget is led was last written, by owner.
    remembered: Mutex<BTreeMap<String, Duration>>,
    /// How long the bucket takes to answer.
    round_trips: Mutex<RoundTrips>,
}

/// The keys of an owner's lease.
struct Keys {
    lead: String,
    /// Exists while there was a leader of the budget in the last minutes.
    past: String,
}

impl Keys {
    fn of(owner: &str) -> Self {
        // An owner's name has any length and any characters; 128 bits of its hash are a token.
        let hashed: String = Sha256::digest(owner.as_bytes())[..16].iter().map(|byte| format!("{byte:02x}")).collect();
        Self { lead: format!("budget.{hashed}.lead"), past: format!("budget.{hashed}.past") }
    }
}

/// The result of a look at the lease.
enum Campaign {
    /// The leader, for the core.
    Led(Option<(NodeName, u64)>),
    /// This node has taken the lease.
    Elected(Term),
    /// Unknown: no node leads and this one may not, the holder cannot be asked, or a leader by a lost bucket may still lead.
    Undecided,
}

impl Leases {
    pub(crate) fn new(bus: BusRef, fleet: &Fleet, node: NodeName, instance: String, clock: Clock) -> Self {
        let bucket = bucket_spec(SharedBucket::leaders(fleet));
        let store =
            LeaseStore::new(LeaseParts { state: bus, bucket, holder: node, instance, term: DEADLINES.leader_lease, clock: clock.clone() });
        let round_trips = Mutex::new(RoundTrips::expected(ANSWER_EXPECTED));
        Self { store, clock, found: OnceCell::new(), remembered: Mutex::default(), round_trips }
    }

    /// Reads once, when the bus is found, which bucket exists. Another one later shows that this one was lost.
    pub(crate) async fn found(&self) -> Option<&str> {
        let look = || async {
            let status = async { self.store.bucket().await?.status().await };
            match self.in_time(status).await {
                Ok(status) => Some(status.created),
                Err(error) => {
                    tracing::debug!(%error, "the bucket of leaders cannot be identified");
                    None
                }
            }
        };
        self.found.get_or_init(look).await.as_deref()
    }

    pub(crate) fn write_in(&self, version: u32) {
        self.store.write_in(version);
    }

    /// Finds the leader, or takes the lease if nobody has it and this node may. `leads`: this node leads, as far as it knows.
    pub(crate) async fn campaign(&self, owner: String, leads: bool, may_take: bool) -> Input {
        let asked = self.now();
        let looking = async {
            self.found().await;
            self.look_or_take(&owner, leads, may_take).await
        };
        match tokio::time::timeout(DEADLINES.campaign, looking).await {
            Ok(Ok(Campaign::Led(leader))) => return Input::Lead { owner, leader },
            Ok(Ok(Campaign::Elected(term))) => {
                // The lease is taken, so the node leads even if the record is not written.
                self.remember(&owner, term.epoch).await;
                return Input::Elected { owner, term };
            }
            Ok(Ok(Campaign::Undecided)) | Err(_) => {}
            Ok(Err(error)) => tracing::debug!(owner, %error, "the leader of this budget cannot be looked up"),
        }
        Input::LeaseUnknown { owner, asked }
    }

    /// Renews a lease. A late answer counts while the renewed term lasts; the core renews again meanwhile.
    pub(crate) async fn keep(&self, owner: String, epoch: u64) -> Input {
        let (asked, keys) = (self.now(), Keys::of(&owner));
        match tokio::time::timeout(DEADLINES.leader_lease, self.store.renew(&keys.lead, &owner, epoch)).await {
            Ok(Ok(Some(held))) => Input::LeaseKept { owner, epoch, until: held.asked + DEADLINES.leader_lease },
            Ok(Ok(None)) => Input::LeaseLost { owner, epoch },
            Ok(Err(error)) => {
                tracing::debug!(owner, %error, "the lease of this budget was not renewed");
                Input::LeaseUnknown { owner, asked }
            }
            Err(_) => Input::LeaseUnknown { owner, asked },
        }
    }

    /// Gives a lease back. `in_good_order`: nobody holds a permit, so the next leader has nothing to learn.
    pub(crate) async fn release(&self, owner: &str, epoch: u64, in_good_order: bool) {
        let keys = Keys::of(owner);
        let Some(owned) = self.store.give_up(&keys.lead, Some(epoch)) else { return };
        let release = async {
            if in_good_order {
                locked(&self.remembered).remove(owner);
                self.store.bucket().await?.delete(&keys.past, None).await?;
            }
            self.store.delete(&owned).await
        };
        if let Err(error) = self.in_time(release).await {
            tracing::debug!(owner, %error, "the lease of a budget was not given back; it expires by itself");
        }
    }

    /// Records that there is a leader, unless that was done lately. If it fails, the next renewal repeats it.
    pub(crate) async fn remember(&self, owner: &str, epoch: u64) {
        let asked = self.now();
        if locked(&self.remembered).get(owner).is_some_and(|at| asked < *at + LED_REMEMBERED / 3) {
            return;
        }
        let write = async {
            let value = self.store.record(owner, epoch);
            self.store.bucket().await?.put(&Keys::of(owner).past, value, Some(LED_REMEMBERED)).await
        };
        match self.in_time(write).await {
            Ok(_) => {
                let mut remembered = locked(&self.remembered);
                if remembered.len() >= OWNERS_MAX {
                    remembered.clear();
                }
                remembered.insert(owner.to_owned(), asked);
            }
            Err(error) => tracing::debug!(owner, %error, "the record that this budget is led is not written yet"),
        }
    }

    async fn look_or_take(&self, owner: &str, leads: bool, may_take: bool) -> Result<Campaign, KeyValueError> {
        let (bucket, keys) = (self.store.bucket().await?, Keys::of(owner));
        match self.look(owner, leads).await? {
            None if !may_take => return Ok(Campaign::Undecided),
            None => {}
            Some(answer) => return Ok(answer),
        }
        let (status, past, replaced) =
            self.in_time(async { futures::try_join!(bucket.status(), bucket.get(&keys.past), bucket.get(REPLACES_ANOTHER)) }).await?;
        let lost_for = self.lost_for(&status).await;
        // Recorded for nodes that have just started; one node that does so is enough.
        if replaced.is_none()
            && lost_for.is_some_and(|age| age < LEADERS_PERMITS_LAST)
            && let Err(error) = bucket.create(REPLACES_ANOTHER, bytes::Bytes::new(), Some(LEADERS_PERMITS_LAST)).await
        {
            tracing::debug!(%error, "the loss of the bucket of leaders was not recorded: another node may have recorded it");
        }
        if lost_for.is_some_and(|age| age < DEADLINES.leader_lease) {
            return Ok(Campaign::Undecided);
        }
        match self.in_time(self.store.create(&keys.lead, owner, status.made_at.as_secs())).await? {
            Some(held) => {
                // A revision that starts over shows that the bucket was lost just now.
                let remembers = lost_for.is_none_or(|age| age >= LEADERS_PERMITS_LAST) && held.revision > status.sequence;
                Ok(self.elected(owner, held, past.is_none() && replaced.is_none() && remembers))
            }
            None => Ok(self.look(owner, leads).await?.unwrap_or(Campaign::Led(None))),
        }
    }

    /// Returns the leader; none if there is none. A lease of this process that the process does not know of, because an answer was lost, is
    /// taken again with a new epoch, and the leader learns first. A lease of another process with the same node name, alive or dead, names
    /// no node that can be asked. It is left to expire, and so is a lease that cannot be read.
    async fn look(&self, owner: &str, leads: bool) -> Result<Option<Campaign>, KeyValueError> {
        let keys = Keys::of(owner);
        Ok(match self.in_time(self.store.look(&keys.lead, owner)).await? {
            Looked::Free => None,
            Looked::Mine { .. } if leads => Some(Campaign::Led(None)),
            Looked::Mine { revision } => {
                let bucket = self.store.bucket().await?;
                let made_s = self.in_time(bucket.status()).await?.made_at.as_secs();
                let regained = self.in_time(self.store.regain(&keys.lead, owner, revision, made_s)).await?;
                Some(regained.map_or(Campaign::Led(None), |held| self.elected(owner, held, false)))
            }
            Looked::Theirs { holder, .. } if holder == *self.store.holder() => Some(Campaign::Undecided),
            Looked::Theirs { holder, epoch } => Some(Campaign::Led(Some((holder, epoch)))),
            Looked::Unreadable => Some(Campaign::Undecided),
        })
    }

    fn elected(&self, owner: &str, held: Held, first: bool) -> Campaign {
        let Held { epoch, asked, .. } = held;
        tracing::info!(owner, epoch, first, "this node leads the fleet's budget");
        // The record that there is a leader is written again.
        locked(&self.remembered).remove(owner);
        Campaign::Elected(Term { epoch, first, until: asked + DEADLINES.leader_lease })
    }

    /// The longest time since the bucket that this node knew was lost; none if this node knows of no bucket before the present one.
    async fn lost_for(&self, status: &BucketStatus) -> Option<Duration> {
        (self.found().await != Some(status.created.as_str())).then_some(status.age)
    }

    /// The answer of the bucket, or an error if it does not come in time.
    async fn in_time<T>(&self, asking: impl Future<Output = Result<T, KeyValueError>>) -> Result<T, KeyValueError> {
        let asked = self.now();
        let timeout = locked(&self.round_trips).within(DEADLINES.leader_lease_answer.least, DEADLINES.leader_lease_answer.most);
        let Ok(answer) = tokio::time::timeout(timeout, asking).await else {
            locked(&self.round_trips).missed(timeout);
            return Err(BusError::TimedOut { subject: "the bucket of leaders".to_owned(), timeout }.into());
        };
        // An error comes at once if there is no connection, and then shows nothing.
        if answer.is_ok() {
            locked(&self.round_trips).saw(self.now(), asked);
        }
        answer
    }

    fn now(&self) -> Duration {
        self.clock.now().monotonic
    }
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
