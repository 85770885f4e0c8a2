//! The sans-IO core: a token bucket, slots and a queue for the node, and budgets for the fleet.

mod bucket;
pub mod budget;
mod pulls;
mod queue;

pub use queue::{Effect, Input, OnExhausted, Queue, ThrottlePolicy};
