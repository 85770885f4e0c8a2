//! A registry fails for a minute, with a fleet on a cluster of three nats-servers, some of which are lost in the middle.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

mod fleet;
mod lost;
