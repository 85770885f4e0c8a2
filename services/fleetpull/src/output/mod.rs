//! Facts to stdout, everything else to stderr.

pub mod contact;
pub mod event;
pub mod known_failures;
pub mod layout;
pub mod listing;
pub mod live;
pub mod outcome;
pub mod progress;
pub mod refusal;
pub mod screen;
pub mod silent;
pub mod standing_pull;
pub mod table;
pub mod tally;
pub mod trace_link;
pub mod units;
pub mod yaml;

use std::io::{self, IsTerminal as _, Write as _};

use serde::Serialize;

/// What a shell shows of a program that writes where nobody reads any more: 128 and the number of SIGPIPE.
const ENDED_BY_CLOSED_PIPE: i32 = 128 + 13;

/// Writes one line of facts, without what a terminal would act on; a terminal that is narrower gets it in several.
pub fn fact(line: &str) {
    document(&fitted(&one_line(line), listing::terminal_width()));
}

/// A line as a terminal of so many columns shows it whole; none: no terminal does.
fn fitted(line: &str, width: Option<usize>) -> String {
    width.map_or_else(|| line.to_owned(), |width| layout::folded(line, width).join("\n"))
}

/// Writes lines of this program's own, as they are. A closed pipe ends the program quietly, with the status that SIGPIPE gives to other
/// programs; facts that are lost otherwise, as on a full disk, end it with a failure.
pub fn document(text: &str) {
    let written = live::above(|| {
        let mut stdout = io::stdout().lock();
        writeln!(stdout, "{text}").and_then(|()| stdout.flush())
    });
    match written {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(ENDED_BY_CLOSED_PIPE),
        Err(error) => {
            remark(&format!("fleetpull: the results cannot be written to stdout: {error}"));
            std::process::exit(1);
        }
    }
}

/// Writes one JSON object as a line of facts.
pub fn json<T: Serialize>(object: &T) {
    if let Some(line) = json_line(object) {
        document(&line);
    }
}

/// One JSON object as a line of facts; what cannot be written so is told.
#[must_use]
pub fn json_line<T: Serialize>(object: &T) -> Option<String> {
    match serde_json::to_string(object) {
        Ok(line) => Some(escaped(&line)),
        Err(error) => {
            complain(&anyhow::anyhow!("a result cannot be written as JSON: {error}"));
            None
        }
    }
}

/// A text in JSON, where what is absent is null.
#[must_use]
pub fn given(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

/// Writes a remark to stderr, as [`fact`] does to stdout.
pub fn remark(line: &str) {
    let text = fitted(&one_line(line), live::width_of_terminal());
    // Nobody reads stderr: nothing is lost that somebody waits for.
    let _ = live::above(|| writeln!(io::stderr().lock(), "{text}"));
}

/// A text in one line in which a terminal shows every character and acts on none: other nodes, registries and runtimes wrote parts
/// of it.
#[must_use]
pub fn one_line(text: &str) -> String {
    text.chars().map(|character| if acts_on_a_terminal(character) { ' ' } else { character }).collect()
}

/// JSON with every character escaped that a terminal would act on. It reads the same: such characters stand inside strings alone.
fn escaped(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for character in json.chars() {
        if acts_on_a_terminal(character) {
            escaped.push_str(&format!("\\u{:04x}", u32::from(character)));
        } else {
            escaped.push(character);
        }
    }
    escaped
}

/// Control characters (C0, DEL and C1), separators of lines and paragraphs, and the marks that change the direction of text.
fn acts_on_a_terminal(character: char) -> bool {
    character.is_control() || matches!(character, '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
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
    // An error in a file shows the place in lines of its own.
    format!("fleetpull: {}", told(error)).lines().for_each(remark);
}

/// Whether stderr is a terminal on which lines can be taken off and drawn again.
#[must_use]
pub fn is_terminal() -> bool {
    io::stderr().is_terminal() && !is_dumb(std::env::var("TERM").ok().as_deref())
}

/// A terminal of this name takes text and nothing else: what would move its cursor is shown as it is.
fn is_dumb(name: Option<&str>) -> bool {
    name == Some("dumb")
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[test]
    fn nothing_that_a_terminal_acts_on_is_written() {
        let table = [
            ("red \u{1b}[31m", "red  [31m", r"red \u001b[31m"),
            ("C1 \u{9b}2J \u{7f}", "C1  2J  ", r"C1 \u009b2J \u007f"),
            ("a\nb\tc\rd", "a b c d", r"a\nb\tc\rd"),
            ("a\u{2028}b\u{202e}c\u{2066}d", "a b c d", r"a\u2028b\u202ec\u2066d"),
            ("caf\u{e9} \u{65e5}\u{672c}", "caf\u{e9} \u{65e5}\u{672c}", "caf\u{e9} \u{65e5}\u{672c}"),
        ];
        for (text, line, in_json) in table {
            assert_eq!(one_line(text), line, "{text:?}");
            let written = escaped(&serde_json::to_string(text).expect("a text is JSON"));
            assert_eq!(written, format!("\"{in_json}\""), "{text:?}");
            assert_eq!(serde_json::from_str::<String>(&written).ok().as_deref(), Some(text), "it reads as it was");
        }
    }

    #[test]
    fn a_cause_is_told_once() {
        let error = anyhow!("disk full").context("cannot write: disk full; free some space").context("the store cannot be used");
        assert_eq!(told(&error), "the store cannot be used: cannot write: disk full; free some space");
        assert_eq!(told(&anyhow!("inner").context("outer")), "outer: inner");
    }
}
