//! Limits the pulls of this node, by rate and by number at once, and takes part in the fleet's budget for each registry.
//!
//! [`core`] decides. The shell is an actor that handles the commands of [`contract::messages::throttler`] (see `inbound`): permits and
//! counts for its own node, and requests of other nodes for the budgets that this node leads.

pub mod core;

#[cfg(feature = "shell")]
mod actor;
#[cfg(feature = "shell")]
mod counting;
#[cfg(feature = "shell")]
mod forgetting;
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
