//! Presence: a node is known to its fleet, and knows how the fleet stands.
//!
//! Every agent tells the registrar that it is alive; the registrar is the agent that holds a lease, and any agent can be it. It
//! answers with the agent's place, and publishes a digest by which every agent sees whether it has missed something. Nothing is
//! lost with a registrar: the next one hears everybody within one round.
//!
//! - `core` decides when to report, to ask for the lease, to renew it and to give it up; `roster` knows who is there.
//! - `actor` is the actix shell, `lease` the bucket behind it, `outbound` the other messages.

mod actor;
mod core;
mod lease;
mod outbound;
mod roster;

pub use actor::{CountPresence, Leave, Listener, Presence, PresenceCounts, PresenceParts};
