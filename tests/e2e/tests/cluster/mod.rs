//! A registry that is down for a minute before a fleet on a cluster of three nats-servers, of which some are lost in the middle.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

mod fleet;
mod lost;
