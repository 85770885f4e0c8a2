//! Tests of the instruments for scrapers and for readers of the reference.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod bounds;
mod reference;
