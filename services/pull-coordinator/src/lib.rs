//! Handles a pull request from its first check to its outcome; callers of the same image share one flight.
//!
//! [`core`] decides; the shell around it is an actor that takes the commands of
//! [`contract::messages::pull_coordinator`] (served in `inbound`), and asks the back-off tracker, the throttler, the event recorder and the
//! runtime.

pub mod core;

#[cfg(feature = "shell")]
mod actor;
#[cfg(feature = "shell")]
mod callers;
#[cfg(feature = "shell")]
mod catch_panic;
#[cfg(feature = "shell")]
mod counters;
#[cfg(feature = "shell")]
mod effects;
#[cfg(feature = "shell")]
mod explain;
#[cfg(feature = "shell")]
mod inbound;
#[cfg(feature = "shell")]
mod locality;
#[cfg(feature = "shell")]
mod manifest_check;
#[cfg(feature = "shell")]
mod outbound;
#[cfg(feature = "shell")]
mod pulling;
#[cfg(feature = "shell")]
mod queries;
#[cfg(feature = "shell")]
mod reporting;
#[cfg(feature = "shell")]
mod request_spans;
#[cfg(feature = "shell")]
mod runtime_results;
#[cfg(feature = "shell")]
mod sharing;
#[cfg(feature = "shell")]
mod size_estimate;
#[cfg(feature = "shell")]
mod standing_pull_file;
#[cfg(feature = "shell")]
mod traces;

#[cfg(feature = "shell")]
pub use actor::PullCoordinator;
#[cfg(feature = "shell")]
pub use inbound::serve;
#[cfg(feature = "shell")]
pub use locality::Locality;
#[cfg(feature = "shell")]
pub use outbound::{FleetNeighbours, Neighbours};
#[cfg(feature = "shell")]
pub use queries::ListAllPulls;
#[cfg(feature = "shell")]
pub use sharing::{Extras, MidPullSenders, Sharing};
#[cfg(feature = "shell")]
pub use standing_pull_file::{StandingPullFile, StandingPullStore, StandingPullStoreError, StandingPullStoreRef};
