//! The instruments as a scraper and a reader of the reference meet them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod bounds;
mod reference;
