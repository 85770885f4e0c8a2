//! Helpers of whole-system tests: the built program run as a user runs it, and the servers around it.
//!
//! - [`binary`]: the program, built from the present sources.
//! - [`Workplace`]: a temporary folder from which the program is run, with nothing of this host's user in its environment.
//! - [`Registry`]: a memory registry for a test that blocks; [`skopeo`]: reads registries and layouts.
//! - [`Agent`]: a running agent, started as systemd starts it.
//! - [`Terminal`]: a program on a terminal of its own, and the screen that a person sees.
//! - [`http_get`]: an agent's answers over HTTP.
//! - [`spans`]: receives the spans of a test, in this process or in a real Jaeger.
//! - [`until`]: waits for a condition, with a limit.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "only tests use it: what fails here fails the test")]

mod agent;
mod binary;
mod http;
mod json_rule;
mod process;
mod registry;
mod skopeo;
pub mod spans;
mod terminal;
mod until;
mod workplace;

pub use agent::{Agent, ask_once};
pub use binary::binary;
pub use http::{HttpAnswer, http_get, http_send};
pub use process::{Signal, Started};
pub use registry::Registry;
pub use skopeo::skopeo;
pub use terminal::{Size, Terminal};
pub use until::{Watch, found_within, until, until_or, until_within};
pub use workplace::{Finished, Workplace};
