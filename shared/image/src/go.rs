//! Go's way to print values, byte for byte, for messages that must read as kubelet's do.

mod duration;
mod printable;
mod quote;

pub use duration::duration;
pub(crate) use quote::is_printable;
pub use quote::quote;
