//! Facts to stdout, everything else to stderr.

pub mod event;
pub mod outcome;
pub mod progress;
pub mod table;
pub mod units;

use std::io::{self, IsTerminal as _, Write as _};

use serde::Serialize;

/// Writes one line of facts. A closed pipe ends the program quietly, as every filter does.
pub fn fact(line: &str) {
    let mut stdout = io::stdout().lock();
    if writeln!(stdout, "{line}").and_then(|()| stdout.flush()).is_err() {
        std::process::exit(0);
    }
}

/// Writes one JSON object as a line of facts.
pub fn json<T: Serialize>(object: &T) {
    match serde_json::to_string(object) {
        Ok(line) => fact(&line),
        Err(error) => complain(&anyhow::anyhow!("a result cannot be written as JSON: {error}")),
    }
}

/// Writes a remark to stderr.
pub fn remark(line: &str) {
    // Nobody reads stderr: nothing is lost that somebody waits for.
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// Writes a warning to stderr.
pub fn warn(line: &str) {
    remark(&format!("warning: {line}"));
}

/// Writes an error with its causes to stderr.
pub fn complain(error: &anyhow::Error) {
    remark(&format!("fleetpull: {error:#}"));
}

/// Whether somebody watches stderr and wants colour and movement.
#[must_use]
pub fn is_terminal() -> bool {
    io::stderr().is_terminal()
}
