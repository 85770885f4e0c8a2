//! The facts of a node: kept for who asks, and published for who subscribes.
//!
//! [`core`] decides; the shell around it is an actor that takes `record`, `list` and `count` and publishes CloudEvents.

pub mod core;

#[cfg(feature = "shell")]
mod actor;
#[cfg(feature = "shell")]
mod inbound;
#[cfg(feature = "shell")]
mod outbound;

#[cfg(feature = "shell")]
pub use actor::{EventRecorder, Flush};
#[cfg(feature = "shell")]
pub use inbound::serve;
#[cfg(feature = "shell")]
pub use outbound::OUTBOX_CAPACITY;
