//! The screens of an engineer on call in five incidents, at 80 and at 140 columns, in golden files.
//!
//! Contract: the first five lines of `status` and of `explain IMAGE` name the cause, since when, the nodes that wait, and the next attempt.
//! No terminal has to break a line. Screens are taken from a pseudo-terminal once the incident has settled; times, ids and ports are
//! placeholders of the same width.

mod golden;
mod incident;
mod incidents;
mod placeholders;

use std::time::Duration;

use e2e::{Terminal, found_within};
use regex::Regex;

use golden::Golden;
use incident::Incident;
use placeholders::{events, folded_anew, is_settled, lines_of_text, with_placeholders};

/// A width at which tables are shortened, and one at which hardly anything is.
const WIDTHS: [u16; 2] = [80, 140];
/// A width that is narrower than a usual terminal.
const NARROWEST: u16 = 20;
/// A height at which no answer scrolls.
const LIST_ROWS: u16 = 120;
/// The same at [`NARROWEST`], where a line takes several times as many rows as at the first of [`WIDTHS`].
const NARROWEST_ROWS: u16 = LIST_ROWS * 6;
/// The height of a usual terminal.
const LIVE_ROWS: u16 = 24;
/// The longest time until an incident has settled; its screens are read again until then.
const SETTLES_WITHIN: Duration = Duration::from_secs(100);
/// How many lines an engineer reads first.
const FIRST: usize = 5;

/// Patterns for what the first lines of a screen must name.
#[derive(Clone, Copy)]
struct Names {
    cause: &'static str,
    since: &'static str,
    affected: &'static str,
    next: &'static str,
}

impl Names {
    /// Asserts that the first lines of a screen match each pattern.
    fn assert_in(&self, command: &str, rows: &[String]) {
        let first = rows.iter().take(FIRST).map(|row| row.trim_start()).collect::<Vec<_>>().join(" ");
        for (what, pattern) in [("cause", self.cause), ("since", self.since), ("affected", self.affected), ("next", self.next)] {
            let is_named = Regex::new(pattern).unwrap().is_match(&first);
            assert!(is_named, "{what} ({pattern}) in the first {FIRST} lines of `{command}`:\n{}", rows.join("\n"));
        }
    }
}

/// The form of a command's output, which determines when a screen is taken and how it is compared.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Columns, and sentences that fit the terminal: taken when all ages have two digits, and compared as they are.
    Screen,
    /// A block that is drawn again and again, and the results above it.
    Live,
    /// Lines of text. They are joined and folded again, because the lengths of ages vary. A word may be wider than the terminal.
    Text,
    /// As `Text`, with each line once and in the order of nodes, because the order of nodes in time varies.
    Events,
}

impl Kind {
    fn of(command: &str) -> Self {
        match command {
            "explain" => Self::Text,
            "events" => Self::Events,
            _ => Self::Screen,
        }
    }
}

/// A screen as read once.
struct Look {
    rows: Vec<String>,
    text: String,
    /// Lines that the terminal broke because they are wider than the terminal.
    broken: Vec<String>,
    is_settled: bool,
}

impl Look {
    fn at(terminal: &Terminal, kind: Kind, columns: u16) -> Self {
        let (rows, lines) = (terminal.rows(), terminal.lines());
        let is_settled = match kind {
            Kind::Screen => is_settled(&rows),
            Kind::Live => lines.last().is_some_and(|line| !line.ends_with(" due")),
            Kind::Text | Kind::Events => true,
        };
        let has_screen = matches!(kind, Kind::Screen | Kind::Live);
        let broken = lines.iter().filter(|line| has_screen && line.chars().count() > columns.into()).cloned().collect();
        let text = match kind {
            Kind::Screen | Kind::Live => with_placeholders(&lines),
            Kind::Text => folded_anew(lines_of_text(&lines), columns),
            Kind::Events => folded_anew(events(lines_of_text(&lines)), columns),
        };
        Self { rows, text, broken, is_settled }
    }

    fn is_as_known(&self, golden: &Golden, prompt: &str) -> bool {
        self.broken.is_empty() && self.is_settled && golden.takes(prompt, &self.text)
    }
}

/// Reads the screen until it equals the golden file, and adds it to the output.
fn look_until_known(golden: &mut Golden, prompt: &str, mut look: impl FnMut() -> Look) -> Vec<String> {
    let mut last = None;
    let found = found_within(SETTLES_WITHIN, || {
        let now = last.insert(look());
        now.is_as_known(golden, prompt).then_some(())
    });
    let Look { rows, broken, text, .. } = last.expect("it was looked at");
    assert!(found.is_some(), "lines that the terminal broke: {broken:#?}\n{}", golden.difference(prompt, &text));
    golden.add(prompt, &text);
    rows
}

/// Takes all screens of an incident, and compares them with its golden files.
fn take(name: &str, incident: &Incident<'_>, status: &Names, explain: &Names) {
    let mut goldens = WIDTHS.map(|columns| (columns, Golden::of(&format!("{name}-{columns}"))));
    for arguments in incident.commands() {
        let (command, kind) = (arguments.join(" "), Kind::of(arguments[0]));
        for (columns, golden) in &mut goldens {
            let rows = look_until_known(golden, &incident.prompt(&command), || {
                let mut terminal = incident.start(&arguments, (LIST_ROWS, *columns));
                let status = terminal.wait();
                assert_eq!(status, 0, "`{command}`: {:#?}", terminal.rows());
                Look::at(&terminal, kind, *columns)
            });
            match arguments[0] {
                "status" => status.assert_in(&command, &rows),
                "explain" => explain.assert_in(&command, &rows),
                _ => {}
            }
        }
    }
    for (columns, golden) in &mut goldens {
        incident.live.resize((LIVE_ROWS, *columns));
        let _ = look_until_known(golden, &incident.live_prompt(), || Look::at(&incident.live, Kind::Live, *columns));
        golden.end();
    }
    // At this width the output is hard to read, but no line may be broken except within a word that is wider, such as a URL.
    for arguments in incident.commands() {
        let mut terminal = incident.start(&arguments, (NARROWEST_ROWS, NARROWEST));
        let status = terminal.wait();
        let broken: Vec<String> = terminal.broken_rows().into_iter().filter(|row| row.trim().contains(' ')).collect();
        assert_eq!((status, broken), (0, Vec::new()), "{arguments:?}: {:#?}", terminal.rows());
    }
}
