//! The sans-IO core: a token bucket, slots and a queue.

mod bucket;
mod queue;

pub use bucket::TokenBucket;
pub use queue::{Effect, Input, OnExhausted, PERMIT_LEASE, Queue, ThrottlePolicy};
