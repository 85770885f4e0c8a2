//! The registrar's lease in the fleet's bucket `leaders`, and what its digest says of the buckets `reports` and `members`.

use std::sync::Arc;

use actors::bucket_spec;
use bus::{BucketSpec, BucketStatus, BusRef, KeyValueError};
use clock::Clock;
use contract::NodeName;
use contract::know::SharedBucket;
use contract::messages::registrar::REGISTRAR_LEASE;
use contract::subject::Fleet;
use lease::{Answer, Held, LeaseParts, LeaseStore, Taken};
use tracing::debug;

use crate::core::{BUCKET_ANSWERS_WITHIN, LEASE_FOR, Looked};

/// The key says of what the lease is.
const OF: &str = "";

/// Asks for the lease in the name of one agent.
#[derive(Clone)]
pub(crate) struct LeaseKeeper {
    bus: BusRef,
    reports: BucketSpec,
    members: BucketSpec,
    store: Arc<LeaseStore>,
}

impl LeaseKeeper {
    pub(crate) fn new(bus: BusRef, fleet: &Fleet, holder: NodeName, instance: String, clock: Clock) -> Self {
        let [bucket, reports, members] =
            [SharedBucket::leaders(fleet), SharedBucket::reports(fleet), SharedBucket::members(fleet)].map(bucket_spec);
        let store = LeaseStore::new(LeaseParts { bus: bus.clone(), bucket, holder, instance, term: LEASE_FOR, clock });
        Self { bus, reports, members, store: Arc::new(store) }
    }

    /// How far the buckets of reports and of members have come; nothing of one where that cannot be said now.
    pub(crate) async fn buckets_status(&self) -> (BucketStatus, BucketStatus) {
        futures::join!(self.status(&self.reports), self.status(&self.members))
    }

    async fn status(&self, bucket: &BucketSpec) -> BucketStatus {
        let look = async { self.bus.bucket(bucket).await?.status().await };
        match tokio::time::timeout(BUCKET_ANSWERS_WITHIN, look).await {
            Ok(Ok(status)) => status,
            Ok(Err(error)) => {
                debug!(%error, bucket = bucket.name, "how far a bucket has come is not known");
                BucketStatus::default()
            }
            Err(_) => BucketStatus::default(),
        }
    }

    /// Takes the lease if nobody holds it, or anew if this agent took it and did not hear of it.
    pub(crate) async fn take(&self) -> Answer {
        answer(async {
            Ok(match self.store.take(REGISTRAR_LEASE, OF).await? {
                Taken::Now(held) => Some(held),
                Taken::Not(lease::Looked::Mine { revision }) => self.store.regain(REGISTRAR_LEASE, OF, revision, 0).await?,
                Taken::Not(_) => None,
            })
        })
        .await
    }

    /// Renews the lease of that epoch.
    pub(crate) async fn renew(&self, epoch: u64) -> Answer {
        answer(self.store.renew(REGISTRAR_LEASE, OF, epoch)).await
    }

    /// Gives the lease of that epoch back. It ends by itself where this fails.
    pub(crate) async fn give_back(&self, epoch: u64) {
        let Some(owned) = self.store.give_up(REGISTRAR_LEASE, Some(epoch)) else { return };
        if let Ok(Err(error)) = tokio::time::timeout(BUCKET_ANSWERS_WITHIN, self.store.delete(&owned)).await {
            debug!(%error, "the registrar's lease was not given back");
        }
    }

    /// Who holds the lease.
    pub(crate) async fn holder(&self) -> Looked {
        match tokio::time::timeout(BUCKET_ANSWERS_WITHIN, self.store.look(REGISTRAR_LEASE, OF)).await {
            Ok(Ok(lease::Looked::Free)) => Looked::Nobody,
            Ok(Ok(lease::Looked::Mine { .. })) => Looked::Holder(self.store.holder().clone()),
            Ok(Ok(lease::Looked::Theirs { holder, .. })) => Looked::Holder(holder),
            Ok(Ok(lease::Looked::Unreadable) | Err(_)) | Err(_) => Looked::Unknown,
        }
    }
}

async fn answer(asking: impl Future<Output = Result<Option<Held>, KeyValueError>>) -> Answer {
    match tokio::time::timeout(BUCKET_ANSWERS_WITHIN, asking).await {
        Ok(Ok(Some(held))) => Answer::Held { epoch: held.epoch },
        Ok(Ok(None)) => Answer::Taken,
        Ok(Err(error)) => {
            debug!(%error, "the registrar's lease was not asked for");
            Answer::Unknown
        }
        Err(_) => Answer::Unknown,
    }
}
