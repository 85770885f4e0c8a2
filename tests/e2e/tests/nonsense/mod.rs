//! Nonsense in the fleet's bucket of reports, on a real server: bounded harm, logged, counted, never a stuck fleet.
//!
//! Contracts: reports that are none are told of in an agent's log once a minute for each writer, and pulls go on; a million
//! well-formed ones of one writer leave the others pulling, each by its own rule where the bucket has no room left, with memory that is
//! bounded, and as soon as there is room again all know what one has learned meanwhile.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

mod fleet;
mod flood;
mod rogue;
mod rubbish;
