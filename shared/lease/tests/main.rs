//! Leases: their keys in a bucket, and many processes that want one.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod processes;
mod store;

use std::sync::Arc;
use std::time::Duration;

use bus::memory::MemoryBus;
use bus::{BucketSpec, SharedStateRef};
use clock::Clock;
use lease::{LeaseParts, LeaseStore};

const TERM: Duration = Duration::from_secs(10);
const KEY: &str = "some.lease";

fn bucket() -> BucketSpec {
    let marker_ttl = Some(Duration::from_secs(60));
    BucketSpec { name: "leases".to_owned(), marker_ttl, max_bytes: None, forgets_oldest: false, republish_to: None }
}

/// The leases of a process, on its own connection.
fn store_of(bus: &MemoryBus, clock: &Clock, node: &str, instance: &str) -> LeaseStore {
    store_in(Arc::new(bus.connect()), clock, node, instance)
}

fn store_in(state: SharedStateRef, clock: &Clock, node: &str, instance: &str) -> LeaseStore {
    LeaseStore::new(LeaseParts {
        state,
        bucket: bucket(),
        holder: node.parse().unwrap(),
        instance: instance.to_owned(),
        term: TERM,
        clock: clock.clone(),
    })
}
