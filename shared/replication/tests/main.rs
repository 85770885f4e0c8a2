//! The tests of this crate, in one executable.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod losses;
