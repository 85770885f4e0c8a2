//! Following a bucket without a consumer of its own on the server.
//!
//! The server republishes each stored change once, and a message may be lost. [`Follower`] finds that something is missing, says when to read a
//! snapshot, and knows how late messages are by the server's time. It is sans-IO: `step(now, chance, input) -> effects`.
//!
//! Changes and snapshots are taken in as they come, in any order: of a key the later value counts. Keys end by their age, so a deletion that was
//! missed is not looked for.

mod follower;
mod server_time;

pub use follower::{Counts, Effect, Follower, Input, Position, Reading};
pub use server_time::ServerTime;
