//! The program as its users run it: from a folder with a home of its own, against registries, runtimes and servers that are real or count
//! their requests.
//!
//! Each module tests one promise to users: the output, the stored files, the text of a failure, or that nothing leaks.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;
mod three_agents;

mod completions;
mod compose;
mod demo;
mod explain;
mod fleet;
mod fleet_backoff;
mod fleet_members;
mod fleet_policy;
mod fleet_pull;
mod fleet_standing_pulls;
mod fleet_status;
mod help;
mod hostile_agent;
mod lists;
mod nats_setup;
mod pods;
mod pull_cri;
mod pull_exit_status;
mod pull_faults;
mod pull_interrupted;
mod pull_into_layout;
mod pull_logins;
mod pull_mirrors;
mod pull_rows;
mod pull_usage;
mod report;
mod secrets;
mod settings;
mod status_of_many;
mod store;
mod terminals;
