//! Go's way to print values, byte for byte, for messages that must read as kubelet's do.

mod case;
mod duration;
mod printable;
mod quote;

pub(crate) use case::{lower_case, lower_case_changes};
pub use duration::duration;
pub use quote::quote;
