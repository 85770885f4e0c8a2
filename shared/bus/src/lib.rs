//! The bus: how the services of a fleet talk to each other.
//!
//! A [`Bus`] is three ports over one connection: [`Messaging`], [`SharedState`] (buckets of keys and values) and [`EventLog`] (streams). It
//! has two adapters: [`memory`] (one process, no server; the embedded default) and [`nats`] (nats-server 2.11.7 or newer). One conformance
//! suite runs on both and pins the semantics that callers may rely on. [`services`] lets services on either adapter answer the services API
//! of NATS; [`socket`] carries the messages of either adapter through a unix socket.

mod caller_state;
mod error;
mod event_log;
mod health;
pub mod memory;
mod message;
mod messaging;
pub mod nats;
mod port;
mod rules;
pub mod services;
mod shared_state;
pub mod socket;

pub use caller_state::CallerState;
pub use error::BusError;
pub use event_log::{Appended, EventLog, StoredMessage, StreamPage, StreamQuery, StreamSpec, StreamStart, StreamStatus, SubjectTransform};
pub use health::{BusHealth, HealthChanges};
pub use message::{Headers, MAX_PAYLOAD_BYTES, Message};
pub use messaging::{DEADLINE_HEADER, Messaging, MessagingRef, SUBSCRIPTION_CAPACITY, Subscription};
pub use port::{Bus, BusRef};
pub use shared_state::{
    AgedEntry, BucketServers, BucketSpec, BucketStatus, Entry, KeyValue, KeyValueError, SharedState, SharedStateRef, Snapshot,
};
