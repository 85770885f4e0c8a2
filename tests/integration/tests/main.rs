//! Several services together, over real buses and runtimes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod budgets;
mod conformance;
mod explain;
mod fail_open;
mod golden;
mod shared_backoff;
mod sharing;
mod single_flight;
mod wire;
