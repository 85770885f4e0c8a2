//! The integration tests of this crate, as one executable.

mod outbox_walks;
mod sqlite;
