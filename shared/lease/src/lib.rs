//! A lease: the right to act for all, with an end.
//!
//! Four things in a fleet are done by one node for all, each by a key with a TTL in a bucket:
//!
//! | lease | how many, how long | what it needs |
//! |---|---|---|
//! | the registrar's | one; 10 s, renewed each 3 s | asked for when no digest comes; an end here before the end at the server; given back at a stop |
//! | a budget leader's | one for each owner; 3 s, renewed each second | who asks is told who leads; epochs that rise even if the bucket is lost; a second process of the node's name is somebody else; a taking that was not heard of is a new leadership |
//! | a lead, a gate's slot | up to three for each image or endpoint; 15 s, never renewed | one round trip to win; given back 0.1 s after the result is told; who holds it is known from what the bucket republishes |
//! | a probe | one for each failure that opened an entry; 15 s, never renewed | as a lead; the wait for it is judged by results |
//!
//! What they have in common is here:
//! - [`Lease`], the state machine of one lease that is acquired, renewed, released and lost: sans-IO, `step(now, input) -> effects`. It runs the
//!   registrar's lease and those of budget leaders. Terms are counted from before the question, so they end here before they end at the server.
//! - [`Outlived`], which finds keys that a stranger wrote without a TTL: two terms without a sign of a holder.
//! - [`LeaseStore`] (feature `store`), the keys: create, create over what has outlived its term, renew and delete by revision, and what became of
//!   a write whose answer was lost. All four leases use it, and one kind of value ([`contract::know::StoredLease`]).
//!
//! Leads and probes have a state of their own in the tracker's core instead of a [`Lease`]: a node knows thousands of them, most of other nodes,
//! asks for one only once others' have ended for a while, has no renewals, and gives up a question after 250 ms, on a slow bus after 750 ms,
//! because it may go without.

mod machine;
mod outlived;
#[cfg(feature = "store")]
mod store;

pub use machine::{Answer, Effect, Input, Lease, Terms};
pub use outlived::Outlived;
#[cfg(feature = "store")]
pub use store::{Held, LeaseParts, LeaseStore, Looked, Owned, Taken};
