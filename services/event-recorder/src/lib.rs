//! Records a node's events: stores them until the fleet's stream has them, lists the newest, and publishes them to subscribers.
//!
//! [`core`] decides; the shell around it is an actor that takes `record`, `list` and `count`, writes to the [`store`], and offers
//! CloudEvents to the stream.

pub mod core;

#[cfg(feature = "shell")]
mod actor;
#[cfg(feature = "shell")]
mod appends;
#[cfg(feature = "shell")]
mod durable;
#[cfg(feature = "shell")]
mod inbound;
#[cfg(feature = "shell")]
mod outbound;
#[cfg(feature = "shell")]
pub mod store;

#[cfg(feature = "shell")]
pub use actor::{Close, EventRecorder, Flush, ReadStoreProblem};
#[cfg(feature = "shell")]
pub use durable::{Durability, StreamLimits, event_stream};
#[cfg(feature = "shell")]
pub use inbound::serve;
