//! Prints values exactly as Go does, for messages that must equal kubelet's.

mod case;
mod duration;
mod printable;
mod quote;

pub(crate) use case::{lower_case, lower_case_changes};
pub use duration::duration;
pub use quote::quote;
