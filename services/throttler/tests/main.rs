//! The throttler: leases, shares, properties, fleets of its core.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod fleet;
mod leases;
mod properties;
mod shares;
