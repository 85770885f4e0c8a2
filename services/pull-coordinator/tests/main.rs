//! Tests of the coordinator's core, step by step and with random inputs, and of its store.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod clearance_walks;
mod core_properties;
mod core_walks;
mod fleet_properties;
mod standing_pull_file;
mod standing_pull_walks;
mod world;
