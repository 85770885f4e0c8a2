//! Nonsense in the fleet's bucket of reports, on a real server: its harm is bounded, logged and counted, and the fleet is never stuck.
//!
//! Contracts: an agent logs malformed reports once a minute for each writer, and pulls go on; a million well-formed reports of one writer
//! leave the other nodes pulling, each by its own rule if the bucket has no room, with bounded memory; as soon as there is room again, all
//! nodes know what one node has learned meanwhile.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

mod fleet;
mod flood;
mod rogue;
mod rubbish;
