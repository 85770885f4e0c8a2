//! The node's share of pulls: how many begin in a second and how many run at once.
//!
//! [`core`] decides; the shell around it is an actor that takes `acquire`, `release` and `count`.

pub mod core;

#[cfg(feature = "shell")]
mod actor;
#[cfg(feature = "shell")]
mod inbound;

#[cfg(feature = "shell")]
pub use actor::Throttler;
#[cfg(feature = "shell")]
pub use inbound::serve;
