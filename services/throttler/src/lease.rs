//! The lease of a budget's leader, in the fleet's bucket of leaders.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use actors::bucket_spec;
use bus::{BusRef, KeyValue, KeyValueError};
use clock::Clock;
use contract::NodeName;
use contract::know::{SharedBucket, decode, encode_as};
use contract::messages::throttler::StoredBudgetLease;
use contract::subject::Fleet;
use contract::version::FIRST;
use sha2::{Digest as _, Sha256};
use tokio::sync::OnceCell;

use crate::core::budget::{Input, LEADER_LEASE, Office};

/// How long it is remembered that somebody has led a budget, which is written anew at a third of it. Much longer than permits last.
const LED_REMEMBERED: Duration = Duration::from_secs(600);
/// How long the bucket may take to answer; a leader renews its lease three times within it.
const BUCKET_ANSWERS_WITHIN: Duration = Duration::from_secs(1);

/// The bucket of leaders, as the throttlers of a fleet use it.
pub(crate) struct Leases {
    bus: BusRef,
    fleet: Fleet,
    node: NodeName,
    clock: Clock,
    /// In which version leases are written.
    version: AtomicU32,
    bucket: OnceCell<Arc<dyn KeyValue>>,
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
    pub(crate) fn new(bus: BusRef, fleet: Fleet, node: NodeName, clock: Clock) -> Self {
        Self { bus, fleet, node, clock, version: AtomicU32::new(FIRST), bucket: OnceCell::new() }
    }

    /// Leases are written in this version from now on.
    pub(crate) fn write_in(&self, version: u32) {
        self.version.store(version, Ordering::Relaxed);
    }

    /// Who leads; this node, if nobody else does. `leads`: this node does, as far as it knows.
    pub(crate) async fn campaign(&self, owner: &str, leads: bool) -> Option<Outcome> {
        match tokio::time::timeout(BUCKET_ANSWERS_WITHIN, self.look_or_take(owner, leads)).await {
            Ok(Ok(Outcome { input, held: Some(held) })) => {
                // The lease is taken: whatever becomes of this, the node leads.
                let held = self.remember(owner, held).await;
                Some(Outcome { input, held: Some(held) })
            }
            Ok(Ok(outcome)) => Some(outcome),
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
            bucket.delete(&past_key(owner), None).await?;
            bucket.delete(&lead_key(owner), Some(held.revision)).await
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
            bucket.put(&past_key(owner), self.value(owner, held.epoch), Some(LED_REMEMBERED)).await
        };
        match tokio::time::timeout(BUCKET_ANSWERS_WITHIN, write).await {
            Ok(Ok(_)) => return Held { remembered: Some(asked), ..held },
            Ok(Err(error)) => tracing::debug!(owner, %error, "it is not written yet that this budget is led"),
            Err(_) => tracing::debug!(owner, "it is not written yet that this budget is led: the bucket does not answer"),
        }
        Held { remembered: None, ..held }
    }

    async fn look_or_take(&self, owner: &str, leads: bool) -> Result<Outcome, KeyValueError> {
        let bucket = self.bucket().await?;
        if let Some(outcome) = self.look(&bucket, owner, leads).await? {
            return Ok(outcome);
        }
        let first = bucket.get(&past_key(owner)).await?.is_none();
        let asked = self.clock.now().monotonic;
        match bucket.create(&lead_key(owner), self.value(owner, 0), Some(LEADER_LEASE)).await {
            Ok(epoch) => Ok(taken(owner, Office { epoch, first, until: asked + LEADER_LEASE })),
            Err(KeyValueError::Conflict { .. }) => {
                let nobody = Outcome { input: Input::Lead { owner: owner.to_owned(), leader: None }, held: None };
                Ok(self.look(&bucket, owner, leads).await?.unwrap_or(nobody))
            }
            Err(error) => Err(error),
        }
    }

    /// Who leads, if somebody does. A lease of this node's own that it does not know of, as the answer was lost, is taken anew: under
    /// a new epoch, by a leader that learns first.
    async fn look(&self, bucket: &Arc<dyn KeyValue>, owner: &str, leads: bool) -> Result<Option<Outcome>, KeyValueError> {
        let asked = self.clock.now().monotonic;
        let Some(entry) = bucket.get(&lead_key(owner)).await? else { return Ok(None) };
        let lease = decode::<StoredBudgetLease>(&entry.value).ok().filter(|lease| lease.owner == owner);
        if !leads && lease.as_ref().is_some_and(|lease| lease.holder == self.node) {
            return match bucket.update(&lead_key(owner), self.value(owner, 0), entry.revision, Some(LEADER_LEASE)).await {
                Ok(epoch) => Ok(Some(taken(owner, Office { epoch, first: false, until: asked + LEADER_LEASE }))),
                Err(KeyValueError::Conflict { .. }) => {
                    Ok(Some(Outcome { input: Input::Lead { owner: owner.to_owned(), leader: None }, held: None }))
                }
                Err(error) => Err(error),
            };
        }
        let lease = lease.filter(|lease| lease.holder != self.node);
        let leader = lease.map(|lease| (lease.holder, if lease.epoch == 0 { entry.revision } else { lease.epoch }));
        Ok(Some(Outcome { input: Input::Lead { owner: owner.to_owned(), leader }, held: None }))
    }

    async fn renew(&self, owner: &str, held: Held) -> Result<Outcome, KeyValueError> {
        let bucket = self.bucket().await?;
        let asked = self.clock.now().monotonic;
        let mut held = held;
        let updated = bucket.update(&lead_key(owner), self.value(owner, held.epoch), held.revision, Some(LEADER_LEASE)).await;
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
            bucket.put(&past_key(owner), self.value(owner, held.epoch), Some(LED_REMEMBERED)).await?;
            held.remembered = Some(asked);
        }
        let input = Input::LeaseKept { owner: owner.to_owned(), epoch: held.epoch, until: asked + LEADER_LEASE };
        Ok(Outcome { input, held: Some(held) })
    }

    /// A renewal whose answer was lost has moved the revision on: then the lease is this node's all the same.
    async fn renew_unheard(&self, bucket: &Arc<dyn KeyValue>, owner: &str, held: Held) -> Result<Option<u64>, KeyValueError> {
        let Some(entry) = bucket.get(&lead_key(owner)).await? else { return Ok(None) };
        let mine = |lease: &StoredBudgetLease| lease.holder == self.node && lease.epoch == held.epoch;
        if !decode::<StoredBudgetLease>(&entry.value).is_ok_and(|lease| mine(&lease)) {
            return Ok(None);
        }
        match bucket.update(&lead_key(owner), self.value(owner, held.epoch), entry.revision, Some(LEADER_LEASE)).await {
            Ok(revision) => Ok(Some(revision)),
            Err(KeyValueError::Conflict { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn bucket(&self) -> Result<Arc<dyn KeyValue>, KeyValueError> {
        let open = || async { Ok(self.bus.bucket(&bucket_spec(SharedBucket::leaders(&self.fleet))).await?) };
        self.bucket.get_or_try_init(open).await.cloned()
    }

    fn value(&self, owner: &str, epoch: u64) -> bytes::Bytes {
        let lease = StoredBudgetLease { owner: owner.to_owned(), holder: self.node.clone(), epoch };
        // Too long an owner has no lease that anybody could read: its key is refused in the look before.
        encode_as(self.version.load(Ordering::Relaxed), &lease).unwrap_or_default().into()
    }
}

fn taken(owner: &str, office: Office) -> Outcome {
    let Office { epoch, first, .. } = office;
    tracing::info!(owner, epoch, first, "this node leads the fleet's budget");
    Outcome { input: Input::Elected { owner: owner.to_owned(), office }, held: Some(Held { epoch, revision: epoch, remembered: None }) }
}

fn lead_key(owner: &str) -> String {
    format!("budget.{}.lead", hashed(owner))
}

/// There while somebody has led the budget in the last minutes.
fn past_key(owner: &str) -> String {
    format!("budget.{}.past", hashed(owner))
}

/// An owner's name has no bound and any characters; 128 bits of its hash are a token.
fn hashed(owner: &str) -> String {
    Sha256::digest(owner.as_bytes())[..16].iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use bus::memory::MemoryBus;

    use super::*;

    #[test]
    fn a_lease_whose_taking_was_not_heard_of_is_taken_anew_by_its_node_alone() {
        actix::System::new().block_on(async {
            let clock = Clock::host();
            let bus: BusRef = Arc::new(MemoryBus::new(clock.clone()));
            let fleet = Fleet::named("test").expect("a fleet");
            let of = |name: &str| Leases::new(Arc::clone(&bus), fleet.clone(), name.parse().expect("a name"), clock.clone());
            let (a, b) = (of("a"), of("b"));
            let office = |outcome: Option<Outcome>| match outcome.map(|outcome| outcome.input) {
                Some(Input::Elected { office, .. }) => Some(office),
                _ => None,
            };
            let unheard = office(a.campaign("owner", false).await).expect("nobody leads");
            assert!(unheard.first);
            assert_eq!(office(b.campaign("owner", false).await), None, "it is another's");
            let again = office(a.campaign("owner", false).await).expect("its own");
            assert!(again.epoch > unheard.epoch && !again.first);
            assert_eq!(office(a.campaign("owner", true).await), None, "it leads already");
        });
    }
}
