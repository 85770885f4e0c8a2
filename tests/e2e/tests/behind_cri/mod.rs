//! Agents that share while each pulls through CRI: on services that answer as containerd does, and on a real containerd.
//!
//! Contracts: a registry that fails is asked no more often than by embedded agents, and everybody is served after it; of limits,
//! which CRI does not show, a registry is asked by `HEAD` alone, and the fleet's budget knows them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

mod case;
mod containerd;
mod fleet;
mod limits;
mod scripted;
