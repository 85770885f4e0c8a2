//! Facts to stdout, everything else to stderr.

pub mod event;
pub mod known;
pub mod outcome;
pub mod progress;
pub mod refusal;
pub mod screen;
pub mod silent;
pub mod table;
pub mod tally;
pub mod units;
pub mod wish;

use std::io::{self, IsTerminal as _, Write as _};

use serde::Serialize;

/// Writes one line of facts. A closed pipe ends the program quietly, as every filter does; facts that are lost otherwise, as on
/// a full disk, end it with a failure.
pub fn fact(line: &str) {
    let mut stdout = io::stdout().lock();
    match writeln!(stdout, "{line}").and_then(|()| stdout.flush()) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
        Err(error) => {
            remark(&format!("fleetpull: the results cannot be written to stdout: {error}"));
            std::process::exit(1);
        }
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

/// A text of somebody else's in one line: a control character in it must not move the cursor.
#[must_use]
pub fn one_line(text: &str) -> String {
    text.chars().map(|character| if character.is_control() { ' ' } else { character }).collect()
}

/// Writes a warning to stderr.
pub fn warn(line: &str) {
    remark(&format!("warning: {line}"));
}

/// An error with its causes in one line, each cause once: some say theirs themselves.
#[must_use]
pub fn told(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |told, cause| match told.as_str() {
        "" => cause,
        told if told.contains(&cause) => told.to_owned(),
        told => format!("{told}: {cause}"),
    })
}

/// Writes an error with its causes to stderr.
pub fn complain(error: &anyhow::Error) {
    remark(&format!("fleetpull: {}", told(error)));
}

/// Whether somebody watches stderr and wants colour and movement.
#[must_use]
pub fn is_terminal() -> bool {
    io::stderr().is_terminal()
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[test]
    fn a_cause_is_told_once() {
        let error = anyhow!("disk full").context("cannot write: disk full; free some space").context("the store cannot be used");
        assert_eq!(told(&error), "the store cannot be used: cannot write: disk full; free some space");
        assert_eq!(told(&anyhow!("inner").context("outer")), "outer: inner");
    }
}
