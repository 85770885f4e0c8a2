//! The contract between services: ids, versioned messages and subjects.
//!
//! A service knows the others only by what is defined here. Subjects are spelled only in [`subject`]. Within version 1 fields are only
//! added: unknown fields are ignored and an unknown class reads as `unknown`.

mod budget_owner;
pub mod cloud_event;
mod command;
pub mod deadlines;
mod event;
mod failure;
pub mod headers;
mod hex;
mod human_duration;
mod ids;
pub mod know;
pub mod list_bounds;
pub mod messages;
mod open;
pub mod policy;
pub mod subject;
mod target;
mod trace;
pub mod version;

pub use budget_owner::{BudgetOwner, budget_in_words, registry_of_budget};
pub use command::{CallError, Command, Envelope, Meta, Service};
pub use deadlines::DEADLINES;
pub use event::{EventDetails, EventReason, EventSequence, EventType, PullEvent, Repeats, bounded_name};
pub use failure::{ClassCounts, FailureClass, RETRY_AFTER_MAX, Reason, Stage};
pub use human_duration::human_duration;
pub use ids::{AttemptId, ClearanceId, MessageId, NodeName, NodeNameError, PermitId, PodRef, StandingPullId};
pub use open::UnknownText;
pub use target::{Target, View};
pub use trace::{Carried, TraceContext};

/// The major version in every subject and in the header `fleetpull-version`.
pub const VERSION: u32 = 1;
/// [`VERSION`] as text.
pub const VERSION_TEXT: &str = "1";
