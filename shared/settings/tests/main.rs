//! The settings: their reference, loading, properties.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod load;
mod properties;
mod reference;
