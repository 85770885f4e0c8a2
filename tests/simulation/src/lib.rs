//! Fleets on simulated time: the real cores of thousands of nodes around a simulated bus and a simulated registry.
//!
//! A run is a queue of events in virtual time and one seeded random generator, on one thread: the same seed gives the same run,
//! with the same hash. [`kubelet`] and [`fleet`] run the same scenario against the same registry, the first by kubelet's rule, the
//! second by the decisions of the cores.

mod bus;
pub mod figures;
pub mod fleet;
pub mod kubelet;
pub mod plot;
pub mod policy;
mod queue;
pub mod registry;
pub mod scenario;
pub mod storm;
