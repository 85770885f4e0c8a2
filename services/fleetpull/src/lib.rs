//! The `fleetpull` program: its command line, and the composition of services on a node.
//!
//! - [`cli`] defines the command line; [`commands`] implements it, with a file for each command.
//! - `completion` completes names for a shell.
//! - [`agent`] runs the agent of a node.
//! - [`node`] composes the services of one node on any bus with any runtime.
//! - [`tracing_of_command`] makes the span of a command and the trace context of its requests.
//! - [`output`] writes facts to stdout, as text or as JSON, and progress to stderr.

pub mod agent;
pub mod cli;
pub mod commands;
mod completion;
pub mod configuration;
pub mod exit;
pub mod fleet;
pub mod node;
pub mod output;
mod process_attributes;
pub mod tracing_of_command;

use std::process::ExitCode;
use std::time::Duration;

/// How long the end of the program waits for the export of the last spans.
pub(crate) const FLUSH_WITHIN: Duration = Duration::from_secs(2);

/// Runs the program with this process's arguments.
#[must_use]
pub fn run() -> ExitCode {
    // TLS needs one provider for the process; a second call has no effect.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let cli = cli::Cli::of_process();
    let exit = commands::carry_out(cli);
    telemetry::end(FLUSH_WITHIN);
    match exit {
        Ok(exit) => exit.into(),
        Err(error) => {
            output::complain(&error);
            exit::Exit::of_error(&error).into()
        }
    }
}
