//! Several trackers on one bus in memory, on a paused clock: what one finds out all go by, one asks for all, and a bus that is
//! gone, wiped or forged on makes no node worse than kubelet.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod bounds;
mod clocks;
mod entries;
mod fleet;
mod forged;
mod learning;
mod operators;
mod storm;
mod waited;
