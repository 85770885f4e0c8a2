//! Agents that share while each pulls through CRI: on services that answer as containerd does, and on a real containerd.
//!
//! Contracts: a registry that fails gets no more requests than from embedded agents, and all nodes are served afterwards; CRI does not show
//! limits, so agents read them with `HEAD` requests alone, and the fleet's budget has them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

mod case;
mod containerd;
mod fleet;
mod limits;
mod scripted;
