//! Membership: which nodes are alive, and the registrar that knows them.
//!
//! Every agent reports to the registrar that it is alive. The registrar is the agent that holds a lease; any agent can get it. It answers
//! with the agent's place, and publishes a digest by which every agent sees whether it has missed reports. Nothing is lost with a
//! registrar: the next one knows all nodes after one round of reports.
//!
//! [`core`] decides; the shell around it is an actor of each agent. It serves `alive` and `nodes` while the agent is the registrar, and
//! tells the node's other services the fleet's state.

pub mod core;

#[cfg(feature = "shell")]
mod actor;
#[cfg(feature = "shell")]
mod inbound;
#[cfg(feature = "shell")]
mod lease;
#[cfg(feature = "shell")]
mod outbound;

#[cfg(feature = "shell")]
pub use actor::{CountRegistrar, Leave, Registrar, RegistrarCounts, RegistrarParts};
#[cfg(feature = "shell")]
pub use outbound::Neighbours;
