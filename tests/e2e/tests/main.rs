//! The program as its users and its operators use it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod accounts;
mod agent;
mod behind_cri;
mod chaos;
mod cluster;
mod command_line;
mod leaks;
mod nonsense;
mod outage;
mod traces;
mod transcripts;
