//! The sans-IO core: kubelet's image manager as a state machine, with single flight.
//!
//! The inputs of a request are `Asked -> Inspected -> BackoffChecked -> (its flight) -> Reported -> answered`, those of a flight
//! `Permitted -> Rechecked -> Pulled -> Verified`. A request's events are recorded one after the other, and its answer comes
//! after the last of them. On a node that shares, a request's target is found before the back-off check, with the inspection, and a flight
//! waits for clearance before its permit. A standing pull makes one request after another until the image is present.

mod abandoned;
mod alarms;
mod answers;
pub mod bounds;
mod checks;
mod clearance;
mod coordinator;
mod flight;
mod flight_view;
mod flights;
mod invariants;
pub mod kubelet_messages;
pub(crate) mod outcomes;
mod queries;
mod registry_feedback;
pub(crate) mod request;
mod standing_pulls;
mod step;

pub use coordinator::{Coordinator, Policy};
pub use flight_view::FlightView;
pub use step::{Effect, Failure, FlightId, ImageFacts, Input, KeptStandingPull, PulledFacts, RegistryFeedback, RequestId};
