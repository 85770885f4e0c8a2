//! Who failed, why, and when to try again.
//!
//! [`core`] decides; the shell around it is an actor that takes `check`, `report` and `count`.

pub mod core;

#[cfg(feature = "shell")]
mod actor;
#[cfg(feature = "shell")]
mod inbound;

#[cfg(feature = "shell")]
pub use actor::BackoffTracker;
#[cfg(feature = "shell")]
pub use inbound::serve;
