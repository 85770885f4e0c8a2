//! Helpers of tests with several services: a node of the four actors on any bus with any runtime, and systems to run it in.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "only tests use it: what fails here fails the test")]

mod node;
mod system;

pub use node::{Plan, TestNode, UNLIMITED, ask, pod};
pub use system::{paused, real, until};
