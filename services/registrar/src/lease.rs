//! The registrar's lease in the fleet's bucket `leaders`, and the status of the buckets `reports` and `members` for its digest.

use std::sync::Arc;

use actors::bucket_spec;
use bus::{BucketSpec, BucketStatus, KeyValueError, SharedStateRef};
use clock::Clock;
use contract::know::SharedBucket;
use contract::messages::registrar::REGISTRAR_LEASE;
use contract::subject::Fleet;
use contract::{DEADLINES, NodeName};
use lease::{Answer, Held, LeaseParts, LeaseStore, Taken};
use tracing::debug;

use crate::core::Looked;

/// The registrar's key has no part that says what the lease is about.
const NO_SUBJECT: &str = "";

/// Takes, renews and returns the lease for one agent.
#[derive(Clone)]
pub(crate) struct LeaseKeeper {
    state: SharedStateRef,
    reports: BucketSpec,
    members: BucketSpec,
    store: Arc<LeaseStore>,
}

impl LeaseKeeper {
    pub(crate) fn new(state: SharedStateRef, fleet: &Fleet, holder: NodeName, instance: String, clock: Clock) -> Self {
        let [bucket, reports, members] =
            [SharedBucket::leaders(fleet), SharedBucket::reports(fleet), SharedBucket::members(fleet)].map(bucket_spec);
        let store = LeaseStore::new(LeaseParts { state: state.clone(), bucket, holder, instance, term: DEADLINES.registrar_lease, clock });
        Self { state, reports, members, store: Arc::new(store) }
    }

    /// The status of the buckets of reports and of members; the default for one that does not answer.
    pub(crate) async fn buckets_status(&self) -> (BucketStatus, BucketStatus) {
        futures::join!(self.status(&self.reports), self.status(&self.members))
    }

    async fn status(&self, bucket: &BucketSpec) -> BucketStatus {
        let look = async { self.state.bucket(bucket).await?.status().await };
        match tokio::time::timeout(DEADLINES.registrar_lease_answer, look).await {
            Ok(Ok(status)) => status,
            Ok(Err(error)) => {
                debug!(%error, bucket = bucket.name, "the last sequence of a bucket is unknown");
                BucketStatus::default()
            }
            Err(_) => BucketStatus::default(),
        }
    }

    /// Takes the lease if it is free, or if this agent holds it without knowing because an answer was lost.
    pub(crate) async fn take(&self) -> Answer {
        answer(async {
            Ok(match self.store.take(REGISTRAR_LEASE, NO_SUBJECT).await? {
                Taken::Now(held) => Some(held),
                Taken::Not(lease::Looked::Mine { revision }) => self.store.regain(REGISTRAR_LEASE, NO_SUBJECT, revision, 0).await?,
                Taken::Not(_) => None,
            })
        })
        .await
    }

    /// Renews the lease of that epoch.
    pub(crate) async fn renew(&self, epoch: u64) -> Answer {
        answer(self.store.renew(REGISTRAR_LEASE, NO_SUBJECT, epoch)).await
    }

    /// Gives back the lease of that epoch. If this fails, the lease ends with its term.
    pub(crate) async fn give_back(&self, epoch: u64) {
        let Some(owned) = self.store.give_up(REGISTRAR_LEASE, Some(epoch)) else { return };
        if let Ok(Err(error)) = tokio::time::timeout(DEADLINES.registrar_lease_answer, self.store.delete(&owned)).await {
            debug!(%error, "the registrar's lease could not be released");
        }
    }

    /// The holder of the lease.
    pub(crate) async fn holder(&self) -> Looked {
        match tokio::time::timeout(DEADLINES.registrar_lease_answer, self.store.look(REGISTRAR_LEASE, NO_SUBJECT)).await {
            Ok(Ok(lease::Looked::Free)) => Looked::Nobody,
            Ok(Ok(lease::Looked::Mine { .. })) => Looked::Holder(self.store.holder().clone()),
            Ok(Ok(lease::Looked::Theirs { holder, .. })) => Looked::Holder(holder),
            Ok(Ok(lease::Looked::Unreadable) | Err(_)) | Err(_) => Looked::Unknown,
        }
    }
}

async fn answer(asking: impl Future<Output = Result<Option<Held>, KeyValueError>>) -> Answer {
    match tokio::time::timeout(DEADLINES.registrar_lease_answer, asking).await {
        Ok(Ok(Some(held))) => Answer::Held { epoch: held.epoch },
        Ok(Ok(None)) => Answer::Taken,
        Ok(Err(error)) => {
            debug!(%error, "the registrar's lease could not be requested");
            Answer::Unknown
        }
        Err(_) => Answer::Unknown,
    }
}
