//! Fleets on simulated time: the real cores of thousands of nodes around a simulated bus and a simulated registry.
//!
//! A run is a queue of events in virtual time and one seeded source of chance, on one thread: the same seed gives the same run,
//! to the last bit of its hash. [`kubelet`] and [`fleet`] put the same question to the same registry, one by kubelet's rule, one
//! by what the cores decide.

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
