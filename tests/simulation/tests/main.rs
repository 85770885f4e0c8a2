//! The storm command, its figures, and the simulated bus.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod bars;
mod command;
mod evidence;
mod faulty_bus;
