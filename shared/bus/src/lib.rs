//! The bus: how the services of a fleet talk to each other.
//!
//! [`Bus`] is a small port with two adapters: [`memory`] (one process, no server; the embedded default) and [`nats`]
//! (nats-server 2.11.7 or newer). One conformance suite runs on both and pins the semantics that callers may rely on.
//! [`services`] lets services on either answer the services API of NATS; [`socket`] carries the messages of either through a unix socket.

mod asker;
pub mod memory;
mod message;
pub mod nats;
mod port;
mod rules;
pub mod services;
pub mod socket;

pub use asker::Asker;
pub use message::{Headers, MAX_PAYLOAD_BYTES, Message};
pub use port::{AgedEntry, BucketStatus, Snapshot};
pub use port::{
    Appended, BucketSpec, Entry, StoredMessage, StreamPage, StreamQuery, StreamSpec, StreamStart, StreamStatus, SubjectTransform,
};
pub use port::{Bus, BusError, BusHealth, BusRef, HealthChanges, KeyValue, KeyValueError, Subscription};
pub use port::{DEADLINE_HEADER, SUBSCRIPTION_CAPACITY};
