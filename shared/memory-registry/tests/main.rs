//! Tests of the memory registry.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod serving;
