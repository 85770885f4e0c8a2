//! What each command does.

mod completions;
mod pull;

use anyhow::Result;

use crate::cli::{Cli, Command};
use crate::exit::Exit;

/// Carries out what the command line asks for.
///
/// # Errors
/// Whatever ended the command before it could say how it went.
pub fn carry_out(cli: Cli) -> Result<Exit> {
    match cli.command {
        Command::Pull(args) => pull::carry_out(args),
        Command::Completions(args) => completions::carry_out(&args),
        _ => anyhow::bail!("not there yet"),
    }
}
