//! The sans-IO core: kubelet's image manager as a state machine, with single flight.
//!
//! Each request goes `Asked -> Inspected -> BackoffChecked -> (its flight) -> Reported -> answered`; each flight goes
//! `Permitted -> Rechecked -> Pulled -> Verified`. A request's events are recorded one after the other, and its answer comes
//! after the last of them. On a node that shares, a request is looked around for before the back-off is checked, and a flight waits for
//! clearance before its permit. A standing pull is a request after another, until the image is there.

mod abandoned;
mod alarms;
pub mod bounds;
mod clearance;
mod coordinator;
mod flight;
mod flights;
mod invariants;
pub mod kubelet_messages;
mod outcomes;
mod registry_word;
mod request;
mod standing_pulls;
mod step;

pub use coordinator::{Coordinator, FlightView, Policy};
pub use registry_word::RegistryWord;
pub use step::{Effect, Failure, FlightId, ImageFacts, Input, KeptStandingPull, PulledFacts, RequestId};
