//! The back-off tracker: rules and properties of its core, and actors that share.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod knowledge_histories;
mod knowledge_leases;
mod knowledge_properties;
mod knowledge_rules;
mod sharing;
