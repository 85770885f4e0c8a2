//! Tests of the settings: reference file, loading, properties.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod load;
mod properties;
mod reference;
