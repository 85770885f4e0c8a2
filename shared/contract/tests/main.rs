//! The messages: what is stored and sent keeps its form.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod know;
mod messages;
