//! The bus: semantics on every adapter, connections, clusters, sockets.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod cluster;
mod conformance;
mod connection;
mod services;
mod socket;
