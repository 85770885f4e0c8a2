//! Several trackers on one memory bus, on a paused clock: a report counts on all nodes, one node makes the attempt for all, and a bus that
//! is lost, wiped or forged makes no node worse than kubelet.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod bounds;
mod clocks;
mod entries;
mod fleet;
mod forged;
mod learning;
mod off;
mod operators;
mod storm;
mod unstored_pauses;
mod waited;
