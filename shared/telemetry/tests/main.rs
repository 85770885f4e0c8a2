//! The integration tests of this crate, as one executable.

mod otlp;
