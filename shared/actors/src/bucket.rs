//! The buckets that services share, as the bus takes them.

use bus::BucketSpec;
use contract::know::SharedBucket;

/// What is said of a bucket in the contract, as the bus is asked for it.
#[must_use]
pub fn bucket_spec(bucket: SharedBucket) -> BucketSpec {
    let SharedBucket { name, markers_kept, max_bytes, forgets_oldest, republished_to } = bucket;
    BucketSpec { name, marker_ttl: markers_kept, max_bytes: Some(max_bytes), forgets_oldest, republish_to: republished_to }
}
