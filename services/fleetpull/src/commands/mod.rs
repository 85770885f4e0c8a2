//! The implementation of each command.

mod backoff;
mod budget;
mod cancel;
mod completions;
mod config;
mod demo;
mod events;
mod explain;
mod history;
mod holds;
mod images;
mod nats_accounts;
mod nats_auth;
mod nats_setup;
mod nodes;
mod outboxes;
mod policy;
mod prune;
mod pull;
mod pulls;
mod report;
mod rm;
mod run;
mod status;
pub(crate) mod store;
mod user_at_host;
mod watch;

use anyhow::Result;

use crate::cli::{Cli, Command};
use crate::exit::Exit;

/// Runs the command of the command line.
///
/// # Errors
/// The error that ended the command before it could report a result.
pub fn carry_out(cli: Cli) -> Result<Exit> {
    match cli.command {
        Command::Pull(args) => pull::carry_out(args),
        Command::Images(args) => images::carry_out(&args),
        Command::Rm(args) => rm::carry_out(&args),
        Command::Prune(args) => prune::carry_out(&args),
        Command::Completions(args) => completions::carry_out(&args),
        Command::Run(args) => run::carry_out(&args),
        Command::Events(args) => events::carry_out(&args),
        Command::Report(args) => report::carry_out(&args),
        Command::Status(args) => status::carry_out(&args),
        Command::Explain(args) => explain::carry_out(&args),
        Command::Nodes(args) => nodes::carry_out(&args),
        Command::Pulls(args) => pulls::carry_out(&args),
        Command::Cancel(args) => cancel::carry_out(&args),
        Command::Backoff(args) => backoff::carry_out(&args),
        Command::Budget(args) => budget::carry_out(&args),
        Command::Policy(args) => policy::carry_out(&args),
        Command::NatsSetup(args) => nats_setup::carry_out(&args),
        Command::NatsAuth(args) => nats_auth::carry_out(&args),
        Command::Config(args) => config::carry_out(&args),
        Command::Demo(args) => demo::carry_out(&args),
    }
}
