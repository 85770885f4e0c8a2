//! The integration tests of this crate, as one executable.

mod deliveries;
mod outbox_walks;
mod sqlite;
