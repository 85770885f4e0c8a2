//! Taking a lease in the bucket, past a key that does not end by itself.

use std::sync::Arc;
use std::time::Duration;

use bus::{KeyValue, KeyValueError, Outlived};
use bytes::Bytes;

/// A lease that is asked for.
pub(crate) struct Taking {
    pub(crate) bucket: Arc<dyn KeyValue>,
    pub(crate) key: String,
    pub(crate) value: Bytes,
    pub(crate) ttl: Duration,
    pub(crate) now: Duration,
    /// The leases of others that stood in the way of this node's.
    pub(crate) outlived: Arc<Outlived>,
}

impl Taking {
    /// Takes the lease if nobody holds it. One that stands at the same revision for two terms does not end by itself, as those of agents
    /// do: it is deleted first.
    pub(crate) async fn take(self) -> Result<u64, KeyValueError> {
        let Self { bucket, key, value, ttl, now, outlived } = self;
        let taken = bucket.create(&key, value.clone(), Some(ttl)).await;
        let Err(conflict @ KeyValueError::Conflict { .. }) = taken else { return taken };
        let Some(entry) = bucket.get(&key).await?.filter(|entry| outlived.stays(now, entry)) else { return Err(conflict) };
        tracing::warn!(key, revision = entry.revision, "a lease stays though its term is over: it is deleted");
        bucket.delete(&key, Some(entry.revision)).await?;
        bucket.create(&key, value, Some(ttl)).await
    }
}

#[cfg(test)]
mod tests {
    use actors::bucket_spec;
    use bus::Bus as _;
    use bus::memory::MemoryBus;
    use clock::Clock;
    use contract::know::SharedBucket;
    use contract::subject::Fleet;

    use super::*;

    const TERM: Duration = Duration::from_secs(15);

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_stays_for_two_terms_is_deleted_and_one_that_is_taken_anew_is_not() {
        // Whether the key in the way ends by itself, whether it is written anew, and after how many terms the lease is taken.
        for (ends, renewed, taken) in [(false, false, Some(2)), (false, true, None), (true, false, Some(1))] {
            let clock = Clock::simulated(Duration::from_secs(1_700_000_000));
            let bus = MemoryBus::new(clock.clone());
            let bucket = bus.connect().bucket(&bucket_spec(SharedBucket::leases(&Fleet::default()))).await.expect("a bucket");
            let (outlived, key) = (Arc::new(Outlived::of_term(TERM)), "lead.1.0".to_owned());
            bucket.put(&key, "stranger".into(), ends.then_some(TERM)).await.expect("it is stored");
            let mut taken_after = None;
            for terms in 0..4 {
                let taking = Taking {
                    bucket: Arc::clone(&bucket),
                    key: key.clone(),
                    value: "own".into(),
                    ttl: TERM,
                    now: clock.now().monotonic,
                    outlived: Arc::clone(&outlived),
                };
                if taking.take().await.is_ok() {
                    taken_after = taken_after.or(Some(terms));
                }
                if renewed {
                    bucket.put(&key, "stranger".into(), None).await.expect("it is stored");
                }
                tokio::time::sleep(TERM).await;
            }
            assert_eq!(taken_after, taken, "ends {ends}, renewed {renewed}");
        }
    }
}
