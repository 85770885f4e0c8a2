//! The back-off tracker: which pulls failed, why, and when the next attempt is due.
//!
//! [`core`] decides; the shell around it is an actor that takes commands and publishes reports on the fleet's bus.

pub mod core;

#[cfg(feature = "shell")]
mod actor;
#[cfg(feature = "shell")]
mod dating;
#[cfg(feature = "shell")]
mod inbound;
#[cfg(feature = "shell")]
mod outbound;
#[cfg(feature = "shell")]
mod shell;
#[cfg(feature = "shell")]
mod stored;

#[cfg(feature = "shell")]
pub use actor::{BackoffTracker, Share, TrackerParts};
#[cfg(feature = "shell")]
pub use inbound::serve;
#[cfg(feature = "shell")]
pub use shell::{CountEntries, OpenEntries, SharedBus};
#[cfg(feature = "shell")]
pub use stored::{KnownKeys, ReadReport, ReadsReports, read_report};
