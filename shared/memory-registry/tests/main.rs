//! The registry for demo and tests.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod serving;
