//! Messages and stored values keep their form.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod know;
mod messages;
