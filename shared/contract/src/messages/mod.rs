//! The commands, a file for each service.

pub mod agent;
pub mod backoff_tracker;
pub mod event_recorder;
pub mod pull_coordinator;
pub mod registrar;
pub mod throttler;
