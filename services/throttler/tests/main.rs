//! The throttler: leases, shares, the fleet policy, properties, and simulated fleets of its core.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod fleet;
mod leases;
mod policy;
mod properties;
mod shares;
