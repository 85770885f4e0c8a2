//! One pull request from first check to outcome, and single flight.
//!
//! [`core`] decides; the shell around it is an actor that takes `ensure`, `list` and `explain`, and asks the back-off tracker, the
//! throttler, the event recorder and the runtime.

pub mod core;

#[cfg(feature = "shell")]
mod actor;
#[cfg(feature = "shell")]
mod explain;
#[cfg(feature = "shell")]
mod inbound;
#[cfg(feature = "shell")]
mod outbound;

#[cfg(feature = "shell")]
pub use actor::PullCoordinator;
#[cfg(feature = "shell")]
pub use explain::verdict;
#[cfg(feature = "shell")]
pub use inbound::serve;
#[cfg(feature = "shell")]
pub use outbound::Neighbours;
