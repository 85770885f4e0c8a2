//! Writes facts to stdout, and everything else to stderr.

pub mod contact;
pub mod event;
pub mod known_failures;
pub mod layout;
pub mod listing;
pub mod live;
pub mod outcome;
pub mod progress;
pub mod quota;
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

/// The exit status that shells show for a process ended by SIGPIPE: 128 and the number of the signal.
const ENDED_BY_CLOSED_PIPE: i32 = 128 + 13;

/// Writes one line of facts without terminal control characters. On a narrower terminal it is wrapped.
pub fn fact(line: &str) {
    document(&fitted(&one_line(line), listing::terminal_width()));
}

/// Wraps a line to `width` columns. Without a width the line is unchanged.
fn fitted(line: &str, width: Option<usize>) -> String {
    width.map_or_else(|| line.to_owned(), |width| layout::folded(line, width).join("\n"))
}

/// Writes text of this program unchanged. On a closed pipe the program ends silently with the status of SIGPIPE; on other errors, such as a
/// full disk, it ends with a failure.
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

/// Writes a JSON object as a line of facts.
pub fn json<T: Serialize>(object: &T) {
    if let Some(line) = json_line(object) {
        document(&line);
    }
}

/// A JSON object as a line. If it cannot be encoded, the error is reported.
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

/// A text for JSON. None if it is empty.
#[must_use]
pub fn given(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

/// Writes a remark to stderr, in the same way as [`fact`] to stdout.
pub fn remark(line: &str) {
    let text = fitted(&one_line(line), live::width_of_terminal());
    // An error on stderr is ignored, because facts go to stdout.
    let _ = live::above(|| writeln!(io::stderr().lock(), "{text}"));
}

/// A text as one line without terminal control characters, because other nodes, registries and runtimes wrote parts of it.
#[must_use]
pub fn one_line(text: &str) -> String {
    text.chars().map(|character| if acts_on_a_terminal(character) { ' ' } else { character }).collect()
}

/// JSON with all terminal control characters escaped. The meaning is unchanged, because they occur only in strings.
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

/// An error with its causes in one line. A cause that is already part of the text is left out.
#[must_use]
pub fn error_text(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |text, cause| match text.as_str() {
        "" => cause,
        text if text.contains(&cause) => text.to_owned(),
        text => format!("{text}: {cause}"),
    })
}

/// Writes an error with its causes to stderr.
pub fn complain(error: &anyhow::Error) {
    // An error in a file shows its place in separate lines.
    format!("fleetpull: {}", error_text(error)).lines().for_each(remark);
}

/// True if stderr is a terminal on which lines can be redrawn.
#[must_use]
pub fn is_terminal() -> bool {
    io::stderr().is_terminal() && !is_dumb(std::env::var("TERM").ok().as_deref())
}

/// True if a terminal with this name does not interpret control sequences.
fn is_dumb(name: Option<&str>) -> bool {
    name == Some("dumb")
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[test]
    fn control_characters_are_not_written_to_a_terminal() {
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
    fn cause_that_is_part_of_the_text_is_not_repeated() {
        let error = anyhow!("disk full").context("cannot write: disk full; free some space").context("the store cannot be used");
        assert_eq!(error_text(&error), "the store cannot be used: cannot write: disk full; free some space");
        assert_eq!(error_text(&anyhow!("inner").context("outer")), "outer: inner");
    }
}
