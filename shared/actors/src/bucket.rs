//! Converts the contract's shared buckets to the bus's specification.

use bus::BucketSpec;
use contract::know::SharedBucket;

/// The bus's specification of a bucket of the contract.
#[must_use]
pub fn bucket_spec(bucket: SharedBucket) -> BucketSpec {
    let SharedBucket { name, markers_kept, max_bytes, forgets_oldest, republished_to } = bucket;
    BucketSpec { name, marker_ttl: markers_kept, max_bytes: Some(max_bytes), forgets_oldest, republish_to: republished_to }
}
