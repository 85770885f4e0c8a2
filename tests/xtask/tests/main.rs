//! Tests of the files for deployment.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod dashboards;
mod deploy;
