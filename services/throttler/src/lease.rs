//! The lease of a budget's leader, in the fleet's bucket of leaders.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use actors::bucket_spec;
use bus::{BucketStatus, BusRef, KeyValue, KeyValueError};
use clock::Clock;
use contract::NodeName;
use contract::know::{SharedBucket, decode, encode_as};
use contract::messages::throttler::{StoredBudgetLease, budget_epoch};
use contract::subject::Fleet;
use contract::version::FIRST;
use lease::Outlived;
use sha2::{Digest as _, Sha256};
use tokio::sync::OnceCell;

use crate::core::budget::{FLEET_PERMIT_LEASE, Input, LEADER_LEASE, Office};

/// How long it is remembered that somebody has led a budget, which is written anew at a third of it. Much longer than permits last.
const LED_REMEMBERED: Duration = Duration::from_secs(600);
/// How long the bucket may take to answer; a leader renews its lease three times within it.
const BUCKET_ANSWERS_WITHIN: Duration = Duration::from_secs(1);
/// There for a while in a bucket that was made in place of one that was lost: who has just begun cannot know that there was another.
const REPLACES_ANOTHER: &str = "budget.replaced";
/// So long permits by the bucket before may be out: until its leader's lease is over, and what it gave out at last.
const LOST_PERMITS_LAST: Duration = Duration::from_secs(LEADER_LEASE.as_secs() + FLEET_PERMIT_LEASE.as_secs());
/// The keys of so many owners are remembered: as many as a node takes part in.
const KEYS_MAX: usize = 1_000;

/// The bucket of leaders, as the throttlers of a fleet use it.
pub(crate) struct Leases {
    bus: BusRef,
    fleet: Fleet,
    node: NodeName,
    clock: Clock,
    /// Names this process, should another one have the node's name.
    instance: String,
    /// In which version leases are written.
    version: AtomicU32,
    bucket: OnceCell<Arc<dyn KeyValue>>,
    /// Which bucket was there when this node found the bus first; none: that could not be said.
    found: OnceCell<Option<String>>,
    keys: Mutex<BTreeMap<String, Keys>>,
    /// Leases of others that this node was kept from taking.
    outlived: Mutex<Outlived>,
}

/// Where the lease of an owner stands.
#[derive(Clone)]
struct Keys {
    lead: String,
    /// There while somebody has led the budget in the last minutes.
    past: String,
}

/// A lease that is held.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    pub(crate) epoch: u64,
    pub(crate) revision: u64,
    /// When it was written last that somebody leads; none: that is still to be done.
    remembered: Option<Duration>,
}

/// What came of an attempt on a lease.
pub(crate) struct Outcome {
    pub(crate) input: Input,
    pub(crate) held: Option<Held>,
}

impl Leases {
    pub(crate) fn new(bus: BusRef, fleet: Fleet, node: NodeName, instance: String, clock: Clock) -> Self {
        let (version, bucket, found) = (AtomicU32::new(FIRST), OnceCell::new(), OnceCell::new());
        Self {
            bus,
            fleet,
            node,
            clock,
            instance,
            version,
            bucket,
            found,
            keys: Mutex::default(),
            outlived: Mutex::new(Outlived::of_term(LEADER_LEASE)),
        }
    }

    /// Looks which bucket is there, once: the bus was found. Another one later shows that this one was lost.
    pub(crate) async fn found(&self) -> Option<&str> {
        let look = || async {
            let status = async { self.bucket().await?.status().await };
            match tokio::time::timeout(BUCKET_ANSWERS_WITHIN, status).await {
                Ok(Ok(status)) => Some(status.created),
                Ok(Err(error)) => {
                    tracing::debug!(%error, "which bucket of leaders is there cannot be said");
                    None
                }
                Err(_) => None,
            }
        };
        self.found.get_or_init(look).await.as_deref()
    }

    /// Leases are written in this version from now on.
    pub(crate) fn write_in(&self, version: u32) {
        self.version.store(version, Ordering::Relaxed);
    }

    /// Who leads; this node, if nobody else does. `leads`: this node does, as far as it knows. None: that cannot be said now.
    pub(crate) async fn campaign(&self, owner: &str, leads: bool) -> Option<Outcome> {
        self.found().await;
        match tokio::time::timeout(BUCKET_ANSWERS_WITHIN, self.look_or_take(owner, leads)).await {
            Ok(Ok(Some(Outcome { input, held: Some(held) }))) => {
                // The lease is taken: whatever becomes of this, the node leads.
                let held = self.remember(owner, held).await;
                Some(Outcome { input, held: Some(held) })
            }
            Ok(Ok(outcome)) => outcome,
            Ok(Err(error)) => {
                tracing::debug!(owner, %error, "nobody can be asked who leads this budget");
                None
            }
            Err(_) => None,
        }
    }

    /// Renews a lease; none: it is not known whether that came through.
    pub(crate) async fn keep(&self, owner: &str, held: Held) -> Option<Outcome> {
        match tokio::time::timeout(BUCKET_ANSWERS_WITHIN, self.renew(owner, held)).await {
            Ok(Ok(outcome)) => Some(outcome),
            Ok(Err(error)) => {
                tracing::debug!(owner, %error, "the lease of this budget was not renewed");
                None
            }
            Err(_) => None,
        }
    }

    /// Gives a lease back in good order: nobody holds a permit, so who leads next has nothing to learn.
    pub(crate) async fn release(&self, owner: &str, held: Held) {
        let release = async {
            let bucket = self.bucket().await?;
            let keys = self.keys(owner);
            bucket.delete(&keys.past, None).await?;
            bucket.delete(&keys.lead, Some(held.revision)).await
        };
        if let Ok(Err(error)) = tokio::time::timeout(BUCKET_ANSWERS_WITHIN, release).await {
            tracing::debug!(owner, %error, "the lease of a budget was not given back; it runs out");
        }
    }

    /// Writes that somebody leads. What does not come through is done with the next renewal.
    async fn remember(&self, owner: &str, held: Held) -> Held {
        let asked = self.clock.now().monotonic;
        let write = async {
            let bucket = self.bucket().await?;
            bucket.put(&self.keys(owner).past, self.value(owner, held.epoch, 0), Some(LED_REMEMBERED)).await
        };
        match tokio::time::timeout(BUCKET_ANSWERS_WITHIN, write).await {
            Ok(Ok(_)) => return Held { remembered: Some(asked), ..held },
            Ok(Err(error)) => tracing::debug!(owner, %error, "it is not written yet that this budget is led"),
            Err(_) => tracing::debug!(owner, "it is not written yet that this budget is led: the bucket does not answer"),
        }
        Held { remembered: None, ..held }
    }

    async fn look_or_take(&self, owner: &str, leads: bool) -> Result<Option<Outcome>, KeyValueError> {
        let bucket = self.bucket().await?;
        let keys = self.keys(owner);
        match self.look(&bucket, owner, leads).await? {
            Looked::Nobody => {}
            Looked::Answer(outcome) => return Ok(outcome),
        }
        let (status, past, replaced) = futures::try_join!(bucket.status(), bucket.get(&keys.past), bucket.get(REPLACES_ANOTHER))?;
        let lost_for = self.lost_for(&status).await;
        if replaced.is_none() && lost_for.is_some_and(|age| age < LOST_PERMITS_LAST) {
            self.say_replaced(&bucket).await;
        }
        if lost_for.is_some_and(|age| age < LEADER_LEASE) {
            // Whoever led by the bucket before may do so until its lease is over.
            return Ok(None);
        }
        let asked = self.clock.now().monotonic;
        let made_s = status.made_at.as_secs();
        match bucket.create(&keys.lead, self.value(owner, 0, made_s), Some(LEADER_LEASE)).await {
            Ok(revision) => {
                // A revision that starts over shows that it was lost just now.
                let remembers = lost_for.is_none_or(|age| age >= LOST_PERMITS_LAST) && revision > status.sequence;
                let first = past.is_none() && replaced.is_none() && remembers;
                let office = Office { epoch: budget_epoch(made_s, revision), first, until: asked + LEADER_LEASE };
                Ok(Some(taken(owner, office, revision)))
            }
            Err(KeyValueError::Conflict { .. }) => match self.look(&bucket, owner, leads).await? {
                Looked::Nobody => Ok(Some(nobody(owner))),
                Looked::Answer(outcome) => Ok(outcome),
            },
            Err(error) => Err(error),
        }
    }

    /// Tells those who have just begun that the bucket replaces another. One who does so is enough.
    async fn say_replaced(&self, bucket: &Arc<dyn KeyValue>) {
        if let Err(error) = bucket.create(REPLACES_ANOTHER, bytes::Bytes::new(), Some(LOST_PERMITS_LAST)).await {
            tracing::debug!(%error, "that the bucket of leaders was lost is not written: another node may have done so");
        }
    }

    /// How long ago the bucket was lost that this node has known, at most; none: as far as it knows, there was no other than this one.
    async fn lost_for(&self, status: &BucketStatus) -> Option<Duration> {
        (self.found().await != Some(status.created.as_str())).then_some(status.age)
    }

    /// Who leads. A lease of this process's own that it does not know of, as the answer was lost, is taken anew: under a new epoch, by
    /// a leader that learns first. One of another process of this node's name, living or dead, is another's: it is left to run out, as
    /// one that cannot be read. A key that stays for two terms without a renewal was written without a TTL: it is deleted.
    async fn look(&self, bucket: &Arc<dyn KeyValue>, owner: &str, leads: bool) -> Result<Looked, KeyValueError> {
        let (keys, asked) = (self.keys(owner), self.clock.now().monotonic);
        let Some(entry) = bucket.get(&keys.lead).await? else { return Ok(Looked::Nobody) };
        let lease = decode::<StoredBudgetLease>(&entry.value).ok().filter(|lease| lease.owner == owner);
        let mine = lease.as_ref().is_some_and(|lease| self.is_mine(lease));
        if !mine && self.stays(asked, &entry) {
            tracing::warn!(owner, revision = entry.revision, "the lease of a budget stays though nobody renews it: it is deleted");
            return match bucket.delete(&keys.lead, Some(entry.revision)).await {
                Ok(()) => Ok(Looked::Nobody),
                Err(KeyValueError::Conflict { .. }) => Ok(Looked::Answer(Some(nobody(owner)))),
                Err(error) => Err(error),
            };
        }
        let Some(lease) = lease else { return Ok(Looked::Answer(None)) };
        if leads && mine {
            return Ok(Looked::Answer(Some(nobody(owner))));
        }
        if lease.holder != self.node {
            let leader = Some((lease.holder.clone(), lease.epoch_at(entry.revision)));
            return Ok(Looked::Answer(Some(Outcome { input: Input::Lead { owner: owner.to_owned(), leader }, held: None })));
        }
        if !mine {
            return Ok(Looked::Answer(None));
        }
        let made_s = bucket.status().await?.made_at.as_secs();
        match bucket.update(&keys.lead, self.value(owner, 0, made_s), entry.revision, Some(LEADER_LEASE)).await {
            Ok(revision) => {
                let office = Office { epoch: budget_epoch(made_s, revision), first: false, until: asked + LEADER_LEASE };
                Ok(Looked::Answer(Some(taken(owner, office, revision))))
            }
            Err(KeyValueError::Conflict { .. }) => Ok(Looked::Answer(Some(nobody(owner)))),
            Err(error) => Err(error),
        }
    }

    fn stays(&self, asked: Duration, entry: &bus::Entry) -> bool {
        let mut outlived = self.outlived.lock().unwrap_or_else(PoisonError::into_inner);
        outlived.stays(asked, &entry.key, entry.revision, &entry.value)
    }

    fn is_mine(&self, lease: &StoredBudgetLease) -> bool {
        lease.holder == self.node && lease.instance == self.instance
    }

    async fn renew(&self, owner: &str, held: Held) -> Result<Outcome, KeyValueError> {
        let bucket = self.bucket().await?;
        let asked = self.clock.now().monotonic;
        let (keys, mut held) = (self.keys(owner), held);
        let updated = bucket.update(&keys.lead, self.value(owner, held.epoch, 0), held.revision, Some(LEADER_LEASE)).await;
        held.revision = match updated {
            Ok(revision) => revision,
            Err(KeyValueError::Conflict { .. }) => match self.renew_unheard(&bucket, owner, held).await? {
                Some(revision) => revision,
                None => {
                    let (owner, epoch) = (owner.to_owned(), held.epoch);
                    return Ok(Outcome { input: Input::LeaseLost { owner, epoch }, held: None });
                }
            },
            Err(error) => return Err(error),
        };
        if held.remembered.is_none_or(|remembered| asked >= remembered + LED_REMEMBERED / 3) {
            bucket.put(&keys.past, self.value(owner, held.epoch, 0), Some(LED_REMEMBERED)).await?;
            held.remembered = Some(asked);
        }
        let input = Input::LeaseKept { owner: owner.to_owned(), epoch: held.epoch, until: asked + LEADER_LEASE };
        Ok(Outcome { input, held: Some(held) })
    }

    /// A renewal whose answer was lost has moved the revision on: then the lease is this node's all the same.
    async fn renew_unheard(&self, bucket: &Arc<dyn KeyValue>, owner: &str, held: Held) -> Result<Option<u64>, KeyValueError> {
        let lead = self.keys(owner).lead;
        let Some(entry) = bucket.get(&lead).await? else { return Ok(None) };
        let mine = |lease: &StoredBudgetLease| self.is_mine(lease) && lease.epoch == held.epoch;
        if !decode::<StoredBudgetLease>(&entry.value).is_ok_and(|lease| mine(&lease)) {
            return Ok(None);
        }
        match bucket.update(&lead, self.value(owner, held.epoch, 0), entry.revision, Some(LEADER_LEASE)).await {
            Ok(revision) => Ok(Some(revision)),
            Err(KeyValueError::Conflict { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn bucket(&self) -> Result<Arc<dyn KeyValue>, KeyValueError> {
        let open = || async { Ok(self.bus.bucket(&bucket_spec(SharedBucket::leaders(&self.fleet))).await?) };
        self.bucket.get_or_try_init(open).await.cloned()
    }

    fn keys(&self, owner: &str) -> Keys {
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = keys.get(owner) {
            return known.clone();
        }
        // An owner's name has no bound and any characters; 128 bits of its hash are a token.
        let hashed: String = Sha256::digest(owner.as_bytes())[..16].iter().map(|byte| format!("{byte:02x}")).collect();
        let fresh = Keys { lead: format!("budget.{hashed}.lead"), past: format!("budget.{hashed}.past") };
        if keys.len() >= KEYS_MAX {
            keys.clear();
        }
        keys.insert(owner.to_owned(), fresh.clone());
        fresh
    }

    /// With no epoch, the lease begins here, in a bucket that was made then.
    fn value(&self, owner: &str, epoch: u64, bucket_made_s: u64) -> bytes::Bytes {
        let (holder, instance) = (self.node.clone(), self.instance.clone());
        let lease = StoredBudgetLease { owner: owner.to_owned(), holder, epoch, instance, bucket_made_s };
        // Too long an owner has no lease that anybody could read: its key is refused in the look before.
        encode_as(self.version.load(Ordering::Relaxed), &lease).unwrap_or_default().into()
    }
}

/// What a look at a lease shows.
enum Looked {
    /// There is none.
    Nobody,
    /// What the core is told; none: nothing.
    Answer(Option<Outcome>),
}

fn taken(owner: &str, office: Office, revision: u64) -> Outcome {
    let Office { epoch, first, .. } = office;
    tracing::info!(owner, epoch, first, "this node leads the fleet's budget");
    Outcome { input: Input::Elected { owner: owner.to_owned(), office }, held: Some(Held { epoch, revision, remembered: None }) }
}

fn nobody(owner: &str) -> Outcome {
    Outcome { input: Input::Lead { owner: owner.to_owned(), leader: None }, held: None }
}

#[cfg(test)]
mod tests {
    use bus::memory::MemoryBus;

    use super::*;

    const WALL: Duration = Duration::from_secs(1_700_000_000);

    /// A node's leases; `process` names one of several with the node's name.
    fn of(bus: &MemoryBus, clock: &Clock, name: &str, process: &str) -> Leases {
        let fleet = Fleet::named("test").expect("a fleet");
        let bus: BusRef = Arc::new(bus.connect());
        Leases::new(bus, fleet, name.parse().expect("a name"), process.to_owned(), clock.clone())
    }

    fn office(outcome: Option<Outcome>) -> Option<Office> {
        match outcome?.input {
            Input::Elected { office, .. } => Some(office),
            _ => None,
        }
    }

    async fn lead(leases: &Leases) -> Option<Office> {
        office(leases.campaign("owner", false).await)
    }

    async fn later(seconds: u64) {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
    }

    fn lose(bus: &MemoryBus) {
        bus.lose_bucket(&SharedBucket::leaders(&Fleet::named("test").expect("a fleet")).name);
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_whose_taking_was_not_heard_of_is_taken_anew_by_its_process_alone() {
        let clock = Clock::simulated(WALL);
        let bus = MemoryBus::new(clock.clone());
        let (a, b, double) = (of(&bus, &clock, "a", "1"), of(&bus, &clock, "b", "2"), of(&bus, &clock, "a", "3"));
        let unheard = lead(&a).await.expect("nobody leads");
        assert!(unheard.first);
        assert_eq!(lead(&b).await, None, "it is another's");
        assert!(double.campaign("owner", false).await.is_none(), "it is another process's, which is nobody to ask");
        let again = lead(&a).await.expect("its own");
        assert!(again.epoch > unheard.epoch && !again.first);
        assert_eq!(office(a.campaign("owner", true).await), None, "it leads already");
        later(4).await;
        let next = lead(&double).await.expect("the lease has run out");
        assert!(next.epoch > again.epoch && !next.first);
    }

    #[tokio::test(start_paused = true)]
    async fn a_second_process_of_one_name_cannot_keep_a_lease_of_the_first() {
        let clock = Clock::simulated(WALL);
        let bus = MemoryBus::new(clock.clone());
        let (a, double) = (of(&bus, &clock, "a", "1"), of(&bus, &clock, "a", "2"));
        let taken = a.campaign("owner", false).await.expect("nobody leads");
        let held = taken.held.expect("it is held");
        // A renewal whose answer was lost has moved the revision on.
        assert!(a.keep("owner", held).await.is_some_and(|kept| kept.held.is_some()));
        let lost = double.keep("owner", held).await.expect("the bucket answers");
        assert!(matches!(lost.input, Input::LeaseLost { .. }) && lost.held.is_none());
        let kept = a.keep("owner", held).await.expect("the bucket answers");
        assert!(kept.held.is_some(), "its own renewal that it did not hear of");
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_nobody_renews_and_that_does_not_end_is_deleted_after_two_terms() {
        let of_stranger = |leases: &Leases| leases.value("owner", 0, 0);
        // What stands there, whether it is written anew each second, and whether somebody leads after 7 s.
        for (readable, renewed, leads) in [(true, false, true), (false, false, true), (true, true, false), (false, true, false)] {
            let clock = Clock::simulated(WALL);
            let bus = MemoryBus::new(clock.clone());
            let (a, liar) = (of(&bus, &clock, "a", "1"), of(&bus, &clock, "liar", "2"));
            let value = if readable { of_stranger(&liar) } else { "rubbish".into() };
            let (bucket, key) = (liar.bucket().await.expect("a bucket"), liar.keys("owner").lead);
            bucket.put(&key, value.clone(), None).await.expect("it is stored");
            for second in 0..7 {
                assert_eq!(lead(&a).await, None, "after {second} s");
                if renewed || second == 0 {
                    bucket.put(&key, value.clone(), None).await.expect("it is stored");
                }
                later(1).await;
            }
            assert_eq!(lead(&a).await.is_some(), leads, "readable {readable}, renewed {renewed}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn in_a_bucket_that_was_lost_nobody_leads_for_a_lease_and_who_leads_then_learns() {
        // After how many seconds somebody asks: who leads, and learns nothing.
        for (waited, leads, first) in [(0, false, false), (2, false, false), (3, true, false), (5, true, false), (6, true, true)] {
            let clock = Clock::simulated(WALL);
            let bus = MemoryBus::new(clock.clone());
            let a = of(&bus, &clock, "a", "1");
            assert!(a.found().await.is_some());
            lose(&bus);
            // Somebody else makes it anew.
            let b = of(&bus, &clock, "b", "2");
            b.found().await;
            later(waited).await;
            let office = lead(&a).await;
            assert_eq!(office.map(|office| office.first), leads.then_some(first), "after {waited} s");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_begins_in_a_bucket_that_was_just_lost_learns_if_anybody_knew_the_one_before() {
        // Whether somebody looks who has known the bucket before; after how many seconds one who has not asks: who leads, and learns nothing.
        for (known, waited, first) in [(true, 0, false), (true, 5, false), (true, 7, true), (false, 0, true), (false, 5, true)] {
            let clock = Clock::simulated(WALL);
            let bus = MemoryBus::new(clock.clone());
            let (a, b) = (of(&bus, &clock, "a", "1"), of(&bus, &clock, "b", "2"));
            assert!(a.found().await.is_some());
            lose(&bus);
            if known {
                assert_eq!(lead(&a).await, None);
            }
            later(waited).await;
            assert_eq!(lead(&b).await.map(|office| office.first), Some(first), "known {known}, after {waited} s");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn epochs_go_on_when_revisions_start_over() {
        let clock = Clock::simulated(WALL);
        let bus = MemoryBus::new(clock.clone());
        let (a, b) = (of(&bus, &clock, "a", "1"), of(&bus, &clock, "b", "2"));
        let mut held = a.campaign("owner", false).await.expect("nobody leads").held.expect("it is held");
        for _ in 0..100 {
            later(1).await;
            held = a.keep("owner", held).await.expect("the bucket answers").held.expect("it is held");
        }
        lose(&bus);
        b.found().await;
        later(3).await;
        let next = lead(&b).await.expect("nobody leads");
        assert!(next.epoch > held.epoch, "{} after {}", next.epoch, held.epoch);
        let Some(Input::Lead { leader: Some(leader), .. }) = a.campaign("owner", false).await.map(|told| told.input) else {
            panic!("a is told of b");
        };
        assert_eq!(leader, ("b".parse().expect("a name"), next.epoch));
    }
}
