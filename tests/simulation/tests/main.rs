//! The storm command, its figures, and the simulated bus.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod bars;
mod command;
mod faulty_bus;

/// Nodes allocate and free millions of small objects: with the system's allocator a run takes longer.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
