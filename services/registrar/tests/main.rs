//! The registrar: its core among many agents, and as actors.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod actors;
mod membership;
