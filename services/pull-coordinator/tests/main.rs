//! The pull coordinator: walks and properties of its core, and its store.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod core_properties;
mod core_walks;
mod fleet_properties;
mod leave_walks;
mod wish_store;
mod wish_walks;
mod world;
