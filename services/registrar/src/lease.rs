//! The registrar's lease in the fleet's bucket `leaders`, and what its digest says of the buckets `reports` and `members`.

use std::sync::Arc;
use std::time::Duration;

use actors::bucket_spec;
use bus::{BucketSpec, BucketStatus, BusRef, KeyValue, KeyValueError, Outlived};
use clock::Clock;
use contract::know::SharedBucket;
use contract::messages::registrar::{REGISTRAR_LEASE, RegistrarLease};
use contract::subject::Fleet;
use tracing::{debug, warn};

use crate::core::{Asked, LEASE_FOR, Looked};
use crate::inbound::decode;
use crate::outbound::encode;

/// Longer than a server takes that is at all well; then it counts as not answering.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// Asks for the lease in the name of one agent.
#[derive(Clone)]
pub(crate) struct LeaseKeeper {
    bus: BusRef,
    leaders: BucketSpec,
    reports: BucketSpec,
    members: BucketSpec,
    own: RegistrarLease,
    clock: Clock,
    outlived: Arc<Outlived>,
}

impl LeaseKeeper {
    pub(crate) fn new(bus: BusRef, fleet: &Fleet, own: RegistrarLease, clock: Clock) -> Self {
        let [leaders, reports, members] =
            [SharedBucket::leaders(fleet), SharedBucket::reports(fleet), SharedBucket::members(fleet)].map(bucket_spec);
        Self { bus, leaders, reports, members, own, clock, outlived: Arc::new(Outlived::of_term(LEASE_FOR)) }
    }

    /// How far the buckets of reports and of members have come; nothing of one where that cannot be said now.
    pub(crate) async fn buckets_status(&self) -> (BucketStatus, BucketStatus) {
        futures::join!(self.status(&self.reports), self.status(&self.members))
    }

    async fn status(&self, bucket: &BucketSpec) -> BucketStatus {
        let look = async { self.bus.bucket(bucket).await?.status().await };
        match tokio::time::timeout(ANSWER_WITHIN, look).await {
            Ok(Ok(status)) => status,
            Ok(Err(error)) => {
                debug!(%error, bucket = bucket.name, "how far a bucket has come is not known");
                BucketStatus::default()
            }
            Err(_) => BucketStatus::default(),
        }
    }

    /// Takes the lease if nobody holds it. One that nobody renews and that does not end by itself is deleted first.
    pub(crate) async fn take(&self) -> Asked {
        let value = bytes::Bytes::from(encode(&self.own));
        self.ask(|leases| async move {
            let made = leases.create(REGISTRAR_LEASE, value.clone(), Some(LEASE_FOR)).await;
            let made = match made {
                Err(KeyValueError::Conflict { .. }) if self.is_outlived_one_deleted(&leases).await => {
                    leases.create(REGISTRAR_LEASE, value, Some(LEASE_FOR)).await
                }
                made => made,
            };
            (leases, made)
        })
        .await
    }

    async fn is_outlived_one_deleted(&self, leases: &Arc<dyn KeyValue>) -> bool {
        let Ok(Some(held)) = leases.get(REGISTRAR_LEASE).await else { return false };
        if !self.outlived.stays(self.clock.now().monotonic, &held) {
            return false;
        }
        warn!(revision = held.revision, "the registrar's lease stays though nobody renews it: it is deleted");
        leases.delete(REGISTRAR_LEASE, Some(held.revision)).await.is_ok()
    }

    /// Renews the lease of that revision.
    pub(crate) async fn renew(&self, revision: u64) -> Asked {
        let value = encode(&self.own);
        self.ask(|leases| async move {
            let renewed = leases.update(REGISTRAR_LEASE, value.into(), revision, Some(LEASE_FOR)).await;
            (leases, renewed)
        })
        .await
    }

    /// Gives the lease of that revision back. It ends by itself where this fails.
    pub(crate) async fn give_back(&self, revision: u64) {
        let given = async {
            let leases = self.bus.bucket(&self.leaders).await?;
            leases.delete(REGISTRAR_LEASE, Some(revision)).await
        };
        if let Ok(Err(error)) = tokio::time::timeout(ANSWER_WITHIN, given).await {
            debug!(%error, "the registrar's lease was not given back");
        }
    }

    /// Who holds the lease.
    pub(crate) async fn holder(&self) -> Looked {
        let look = async {
            let leases = self.bus.bucket(&self.leaders).await?;
            leases.get(REGISTRAR_LEASE).await
        };
        match tokio::time::timeout(ANSWER_WITHIN, look).await {
            Ok(Ok(Some(found))) => decode(&found.value).map_or(Looked::Unknown, |lease: RegistrarLease| Looked::Holder(lease.holder)),
            Ok(Ok(None)) => Looked::Nobody,
            Ok(Err(_)) | Err(_) => Looked::Unknown,
        }
    }

    async fn ask<F>(&self, write: impl FnOnce(Arc<dyn KeyValue>) -> F) -> Asked
    where
        F: Future<Output = (Arc<dyn KeyValue>, Result<u64, KeyValueError>)>,
    {
        let asking = async {
            let (leases, written) = write(self.bus.bucket(&self.leaders).await?).await;
            match written {
                Err(KeyValueError::Conflict { .. }) => self.renew_unheard(&leases).await,
                written => written.map(Asked::Held),
            }
        };
        match tokio::time::timeout(ANSWER_WITHIN, asking).await {
            Ok(Ok(asked)) => asked,
            Ok(Err(error)) => {
                debug!(%error, "the registrar's lease was not asked for");
                Asked::Unknown
            }
            Err(_) => Asked::Unknown,
        }
    }

    /// What was asked for had been done before, and the answer was lost: the lease is this agent's. It is renewed, as its term counts from
    /// when it was written, which this agent does not know.
    async fn renew_unheard(&self, leases: &Arc<dyn KeyValue>) -> Result<Asked, KeyValueError> {
        let held = leases.get(REGISTRAR_LEASE).await?.filter(|held| decode(&held.value).as_ref() == Some(&self.own));
        let Some(held) = held else { return Ok(Asked::Taken) };
        match leases.update(REGISTRAR_LEASE, encode(&self.own).into(), held.revision, Some(LEASE_FOR)).await {
            Err(KeyValueError::Conflict { .. }) => Ok(Asked::Taken),
            renewed => renewed.map(Asked::Held),
        }
    }
}

#[cfg(test)]
mod tests {
    use bus::Bus as _;
    use bus::memory::MemoryBus;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_stays_for_two_terms_is_deleted_and_one_that_is_renewed_is_not() {
        // Whether the key in the way is written anew, and whether the lease is taken in the third term.
        for (renewed, taken) in [(false, true), (true, false)] {
            let clock = Clock::simulated(Duration::from_secs(1_700_000_000));
            let bus = MemoryBus::new(clock.clone());
            let fleet = Fleet::default();
            let own = RegistrarLease { holder: "n1".parse().expect("a name"), instance: "1".to_owned() };
            let keeper = LeaseKeeper::new(Arc::new(bus.connect()), &fleet, own, clock);
            let leaders = bus.bucket(&bucket_spec(SharedBucket::leaders(&fleet))).await.expect("a bucket");
            leaders.put(REGISTRAR_LEASE, "stranger".into(), None).await.expect("it is stored");
            for _ in 0..2 {
                assert_eq!(keeper.take().await, Asked::Taken);
                if renewed {
                    leaders.put(REGISTRAR_LEASE, "stranger".into(), None).await.expect("it is stored");
                }
                tokio::time::sleep(LEASE_FOR).await;
            }
            assert_eq!(matches!(keeper.take().await, Asked::Held(_)), taken, "renewed {renewed}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_whose_renewal_was_not_heard_of_is_renewed_from_when_it_is_asked_for() {
        let clock = Clock::simulated(Duration::from_secs(1_700_000_000));
        let bus = MemoryBus::new(clock.clone());
        let fleet = Fleet::default();
        let own = RegistrarLease { holder: "n1".parse().expect("a name"), instance: "1".to_owned() };
        let keeper = LeaseKeeper::new(Arc::new(bus.connect()), &fleet, own, clock);
        let Asked::Held(first) = keeper.take().await else { panic!("nobody holds it") };
        tokio::time::sleep(LEASE_FOR / 2).await;
        assert!(matches!(keeper.renew(first).await, Asked::Held(_)), "and the answer is lost");
        for ask in [true, false] {
            tokio::time::sleep(LEASE_FOR * 9 / 10).await;
            let again = if ask { keeper.renew(first).await } else { keeper.take().await };
            assert!(matches!(again, Asked::Held(_)), "{again:?}");
            tokio::time::sleep(LEASE_FOR * 9 / 10).await;
            assert_eq!(keeper.holder().await, Looked::Holder("n1".parse().expect("a name")));
        }
    }
}
