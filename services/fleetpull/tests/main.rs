//! The agent in one process, and what the README promises of it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod man;
mod readme;
