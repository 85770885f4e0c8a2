//! The sans-IO core: kubelet's image manager as a state machine, with single flight.
//!
//! Each request goes `Asked -> Inspected -> BackoffChecked -> (its flight) -> Reported -> answered`; each flight goes
//! `Permitted -> Rechecked -> Pulled -> Verified`. A request's events are recorded one after the other, and its answer comes
//! after the last of them.

pub mod bounds;
mod coordinator;
mod flight;
mod request;
mod step;
pub mod words;

pub use coordinator::{Coordinator, FlightView};
pub use step::{Effect, Failure, FlightId, ImageFacts, Input, PulledFacts, RequestId};
