//! Lines at the bottom of a terminal that are redrawn while a command runs.
//!
//! Other output to the terminal in that time (results, remarks and log lines) goes through [`above`], which erases the lines, writes the
//! output, and draws the lines again below it. Lines are narrower than the terminal. If the terminal becomes narrower, it wraps each line
//! by itself, and the number of rows to erase is known.

use std::io::{self, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};

use console::Term;

use super::one_line;

/// The size in rows and columns if that of the terminal is unknown.
const SIZE_USUAL: (usize, usize) = (24, 80);
/// The least width of lines, in columns.
const WIDTH_LEAST: usize = 20;
/// Moves the cursor to the start of its row and up by `rows` rows, and clears everything below.
fn erase(rows: usize) -> String {
    if rows == 0 { "\r\u{1b}[J".to_owned() } else { format!("\r\u{1b}[{rows}A\u{1b}[J") }
}

/// The lines on this process's stderr.
static LIVE: Mutex<Live> = Mutex::new(Live { lines: Vec::new() });

/// The lines on the screen.
#[derive(Debug, Default)]
struct Live {
    lines: Vec<String>,
}

impl Live {
    /// The number of rows that the lines take on a terminal of this width, which may have changed since they were drawn.
    fn rows(&self, width: usize) -> usize {
        self.lines.iter().map(|line| console::measure_text_width(line).div_ceil(width.max(1)).max(1)).sum()
    }

    fn erase_lines(&self, width: usize, out: &mut impl Write) -> io::Result<()> {
        if self.lines.is_empty() { Ok(()) } else { write!(out, "{}", erase(self.rows(width))) }
    }

    fn draw(&self, out: &mut impl Write) -> io::Result<()> {
        for line in &self.lines {
            writeln!(out, "{line}")?;
        }
        out.flush()
    }

    /// Replaces the lines, which have no control characters but those of colours.
    fn replace(&mut self, lines: &[String], width: usize, out: &mut impl Write) -> io::Result<()> {
        let lines: Vec<String> = lines.iter().map(|line| cut(line, width.saturating_sub(1)).into_owned()).collect();
        if lines == self.lines {
            return Ok(());
        }
        self.erase_lines(width, out)?;
        self.lines = lines;
        self.draw(out)
    }

    /// Writes something above the lines.
    fn above<T>(&self, width: usize, out: &mut impl Write, write: impl FnOnce() -> T) -> T {
        // An error on stderr is ignored, because facts go to stdout.
        let _ = self.erase_lines(width, out).and_then(|()| out.flush());
        let written = write();
        let _ = self.draw(out);
        written
    }
}

fn cut(line: &str, width: usize) -> std::borrow::Cow<'_, str> {
    console::truncate_str(line, width, "...")
}

fn live() -> MutexGuard<'static, Live> {
    LIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The width for lines, which excludes the last column of the terminal.
#[must_use]
pub fn width() -> usize {
    terminal_width().saturating_sub(1)
}

/// Like [`width`]. None if stderr is no terminal.
#[must_use]
pub fn width_of_terminal() -> Option<usize> {
    Term::stderr().size_checked().map(|(_, columns)| usize::from(columns).max(WIDTH_LEAST) - 1)
}

fn terminal_width() -> usize {
    size().1
}

/// The rows and columns of the terminal.
fn size() -> (usize, usize) {
    let (rows, columns) = Term::stderr().size_checked().map_or(SIZE_USUAL, |(rows, columns)| (rows.into(), columns.into()));
    (rows.max(2), columns.max(WIDTH_LEAST))
}

/// The number of lines that fit.
#[must_use]
pub fn height() -> usize {
    size().0 - 1
}

/// Draws these lines at the bottom in place of the previous ones, as many as fit.
pub fn show(lines: &[String]) {
    show_coloured(&lines.iter().map(|line| one_line(line)).collect::<Vec<String>>());
}

/// As [`show`], for lines that may have colours. They must not have other control characters.
pub fn show_coloured(lines: &[String]) {
    let (rows, columns) = size();
    let lines = lines.get(..rows - 1).unwrap_or(lines);
    let _ = live().replace(lines, columns, &mut io::stderr().lock());
}

/// Erases the lines.
pub fn clear() {
    show(&[]);
}

/// Writes to the terminal, above the lines if there are any.
pub fn above<T>(write: impl FnOnce() -> T) -> T {
    let live = live();
    if live.lines.is_empty() { write() } else { live.above(terminal_width(), &mut io::stderr(), write) }
}

/// The writer of log lines. Each write is a whole line.
#[derive(Clone, Copy, Debug, Default)]
pub struct Log;

impl Write for Log {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        above(|| io::stderr().write_all(text)).map(|()| text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A terminal of `columns` columns that wraps long lines into rows, also when it becomes narrower.
    struct Terminal {
        columns: usize,
        /// The text of each line. The cursor is on the row after the last.
        lines: Vec<String>,
    }

    impl Terminal {
        fn rows_of(&self, line: &str) -> usize {
            line.chars().count().div_ceil(self.columns).max(1)
        }

        /// Interprets the output: lines, and [`erase`].
        fn take(&mut self, written: &str) {
            let mut rest = written;
            while let Some(at) = rest.find('\r') {
                self.print(&rest[..at]);
                let (up, after) = rest[at..].split_once("\u{1b}[J").expect("erased to the end");
                let rows = up.trim_start_matches("\r\u{1b}[").trim_end_matches('A').parse().unwrap_or(0);
                let mut erased = 0;
                while erased < rows {
                    let line = self.lines.pop().expect("no more is erased than is there");
                    erased += self.rows_of(&line);
                }
                assert_eq!(erased, rows, "a line is erased in all its rows");
                rest = after;
            }
            self.print(rest);
        }

        fn print(&mut self, text: &str) {
            self.lines.extend(text.lines().map(str::to_owned));
        }
    }

    fn lines(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn narrower_terminal_or_other_output_leaves_no_old_lines() {
        let (mut live, mut terminal) = (Live::default(), Terminal { columns: 80, lines: lines(&["$ fleetpull pull"]) });
        let long = "x".repeat(200);
        let steps: [(usize, &[&str]); 5] =
            [(80, &["one", &long]), (60, &["two", &long, "three"]), (30, &["four"]), (100, &[&long]), (100, &[])];
        for (columns, drawn) in steps {
            terminal.columns = columns;
            let mut written = Vec::new();
            live.replace(&lines(drawn), columns, &mut written).expect("a list takes all");
            terminal.take(&String::from_utf8(written).expect("text"));
            assert_eq!(terminal.lines.len(), 1 + drawn.len(), "{:?}", terminal.lines);
            assert!(terminal.lines.iter().all(|line| line.chars().count() < columns), "{:?}", terminal.lines);
        }
        let mut written = Vec::new();
        live.replace(&lines(&["a", "b"]), 100, &mut written).expect("a list takes all");
        let before = live.lines.clone();
        terminal.take(&String::from_utf8(written).expect("text"));
        let mut written = Vec::new();
        live.above(40, &mut written, || ());
        let text = String::from_utf8(written).expect("text");
        terminal.take(&text.replacen("\u{1b}[J", "\u{1b}[JWARN the bus is not connected\n", 1));
        assert_eq!(terminal.lines, ["$ fleetpull pull", "WARN the bus is not connected", "a", "b"]);
        assert_eq!(live.lines, before);
    }

    #[test]
    fn the_same_lines_are_not_drawn_again() {
        let (mut live, mut written) = (Live::default(), Vec::new());
        live.replace(&lines(&["a"]), 80, &mut written).expect("a list takes all");
        let first = written.len();
        live.replace(&lines(&["a"]), 80, &mut written).expect("a list takes all");
        assert_eq!(written.len(), first);
    }
}
