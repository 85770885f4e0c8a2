//! How one node handles reports: each rule of shared back-off, seen through the core's inputs and effects.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod clears;
mod lapsing_clearance;
mod named;
mod next_attempt;
mod node;
mod own_rule;
mod published;
mod replies;
mod results;
mod rules;
mod stages;
mod successes;
mod turns;
mod unpublished;
mod without_a_bus;
