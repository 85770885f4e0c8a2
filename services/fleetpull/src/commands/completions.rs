//! `fleetpull completions`

use anyhow::{Context as _, Result};
use clap_complete::env::Shells;

use crate::cli::CompletionsArgs;
use crate::completion;
use crate::exit::Exit;
use crate::output;

/// The program that the script runs for each word, found through the shell's path.
const PROGRAM: &str = "fleetpull";

/// Prints the completions for one shell.
pub(super) fn carry_out(args: &CompletionsArgs) -> Result<Exit> {
    let mut script = Vec::new();
    let (shells, shell) = (Shells::builtins(), args.shell.to_string());
    let completer = shells.completer(&shell).with_context(|| format!("there are no completions for {shell}"))?;
    completer.write_registration(completion::VARIABLE, PROGRAM, PROGRAM, PROGRAM, &mut script)?;
    match &args.to {
        Some(path) => std::fs::write(path, script).with_context(|| format!("the completions cannot be written to {}", path.display()))?,
        None => output::document(String::from_utf8_lossy(&script).trim_end()),
    }
    Ok(Exit::Success)
}
