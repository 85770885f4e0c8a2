//! Who is in the fleet, and how it stands.
//!
//! Every agent tells the registrar that it is alive; the registrar is the agent that holds a lease, and any agent can be it. It
//! answers with the agent's place, and publishes a digest by which every agent sees whether it has missed something. Nothing is
//! lost with a registrar: the next one hears everybody within one round.
//!
//! [`core`] decides; the shell around it is an actor that each agent has. It takes `alive` and `nodes` while the agent is the registrar, and
//! tells the node's other services how the fleet stands.

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
