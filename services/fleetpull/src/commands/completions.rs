//! `fleetpull completions`

use anyhow::{Context as _, Result};
use clap::CommandFactory as _;

use crate::cli::{Cli, CompletionsArgs};
use crate::exit::Exit;
use crate::output;

/// Prints the completions for one shell.
pub(super) fn carry_out(args: &CompletionsArgs) -> Result<Exit> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "fleetpull", &mut script);
    match &args.to {
        Some(path) => std::fs::write(path, script).with_context(|| format!("the completions cannot be written to {}", path.display()))?,
        None => output::document(String::from_utf8_lossy(&script).trim_end()),
    }
    Ok(Exit::Success)
}
