//! The node's share of pulls: how many begin in a second and how many run at once; and the fleet's budget for each registry.
//!
//! [`core`] decides; the shell around it is an actor that takes the commands of
//! [`contract::messages::throttler`] (served in `inbound`): permits and counts from its own node, and, for a budget that the node leads,
//! what other nodes ask.

pub mod core;

#[cfg(feature = "shell")]
mod actor;
#[cfg(feature = "shell")]
mod counting;
#[cfg(feature = "shell")]
mod inbound;
#[cfg(feature = "shell")]
mod lease;
#[cfg(feature = "shell")]
mod policy;
#[cfg(feature = "shell")]
mod recording;
#[cfg(feature = "shell")]
mod sharing;

#[cfg(feature = "shell")]
pub use actor::{Throttler, Watch};
#[cfg(feature = "shell")]
pub use inbound::serve;
#[cfg(feature = "shell")]
pub use recording::Recording;
#[cfg(feature = "shell")]
pub use sharing::FleetParts;
