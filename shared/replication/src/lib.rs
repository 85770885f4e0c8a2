//! Replication of a bucket without a consumer on the server.
//!
//! The server republishes each stored change once, and a message may be lost. [`Follower`] detects gaps, decides when to read a snapshot,
//! and knows how late messages are by the server's time. It is sans-IO: `step(now, chance, input) -> effects`.
//!
//! Changes and snapshots are applied in the order in which they arrive: the later value of a key counts. Keys expire by age, so missed
//! deletions are not searched for.

mod follower;
mod server_time;
mod step;

pub use follower::{Counts, Follower};
pub use step::{Effect, Input, Position, Reading};
