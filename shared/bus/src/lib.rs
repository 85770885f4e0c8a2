//! The bus: how the services of a fleet talk to each other.
//!
//! [`Bus`] is a small port with two adapters: `memory` (one process, no server; the embedded default) and `nats`
//! (nats-server 2.11 or newer). One conformance suite runs on both and pins the semantics that callers may rely on.

mod message;
mod port;

pub use message::{Headers, MAX_PAYLOAD_BYTES, Message};
pub use port::{Bus, BusError, BusHealth, BusRef, KeyValue, KeyValueError, Subscription};
pub use port::{BucketSpec, Entry, EntryChange, EntryWatch, Appended, StreamSpec};
