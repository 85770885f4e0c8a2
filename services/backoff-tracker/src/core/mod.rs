//! The sans-IO core: kubelet's back-off per (pod, image), cleared by success ([`Tracker`]), and what a fleet knows of failures
//! ([`knowledge`]), which decides if the node shares.

mod causes;
mod delays;
mod floor;
pub mod knowledge;
mod local_list;
mod tracker;

pub use delays::{BackoffPolicy, Delays, MAX_KEYS};
pub use tracker::Tracker;
