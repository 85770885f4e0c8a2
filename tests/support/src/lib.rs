//! Real and scripted servers on free ports, shared by several test crates.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "only tests use it: what fails here fails the test")]

pub mod containerd;
pub mod counted_log;
pub mod docker_registry;
pub mod faulty_link;
pub mod held_port;
pub mod nats;
pub mod otlp;
pub mod requirement;
pub mod scripted_cri;
pub mod small_disk;
