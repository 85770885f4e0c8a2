//! A lease: the right to act for all, with an end.
//!
//! Four things in a fleet are done by one node for all, each with leases, which are keys with a TTL in a bucket:
//! - The registrar's: one, for 10 s, renewed every 3 s. A node requests it when no digest comes, and releases it at a stop. It ends on the
//!   node before it ends on the server.
//! - A budget leader's: one for each owner, for 3 s, renewed every second. Clients learn which node leads. Epochs rise even if the
//!   bucket is lost. A second process with the node's name is a different holder. A lease taken without an answer begins a new term.
//! - A lead's or a slot's: up to three for each image or endpoint, for 15 s, never renewed. It takes one round trip to win, and is released
//!   0.1 s after the result is reported. Its holder is known from what the bucket republishes.
//! - A probe's: one for each failure that opened an entry, for 15 s, never renewed. It is won and released like a lead's; results decide
//!   how long others wait for it.
//!
//! They have in common:
//! - [`Lease`], the state machine of one lease that is acquired, renewed, released and lost: sans-IO, `step(now, input) -> effects`. The
//!   registrar and budget leaders use it. Terms are counted from before the request, so they end on the node before they end on the server.
//! - [`LeaseStore`] (feature `store`), the keys: create, create over what has outlived its term, renew and delete by revision, and find out
//!   the result of a write whose answer was lost. A key that shows no sign of a holder for two terms was written without a TTL. All four
//!   leases use it, and one kind of value ([`contract::know::StoredLease`]).
//!
//! Leads and probes have a state of their own in the tracker's core instead of a [`Lease`]: a node knows thousands of them, most of them
//! other nodes'. It asks for one only after those of others have been over for a while, never renews it, and abandons a request after
//! 250 ms, on a slow bus after 750 ms, because it can do without.

mod machine;
#[cfg(feature = "store")]
mod outlived;
#[cfg(feature = "store")]
mod store;

pub use machine::{Answer, Effect, Input, Lease, Terms};
#[cfg(feature = "store")]
pub use store::{Held, LeaseParts, LeaseStore, Looked, Owned, Taken};
