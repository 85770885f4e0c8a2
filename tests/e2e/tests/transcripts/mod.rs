//! What an engineer on call sees in five incidents, at 80 and at 140 columns, in golden files.
//!
//! Contract: the first five lines of `status` and of `explain IMAGE` name the cause, since when, whom it holds, and what comes next. No
//! terminal has to break a line. Screens are taken from a pseudo-terminal once the incident has settled; times, ids and ports are
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

/// So narrow that tables are shortened, and so wide that hardly anything is.
const WIDTHS: [u16; 2] = [80, 140];
/// As narrow as no terminal should be.
const NARROWEST: u16 = 20;
/// So high that no answer scrolls away.
const LIST_ROWS: u16 = 120;
/// As terminals usually are.
const LIVE_ROWS: u16 = 24;
/// An incident is looked at again until it has settled.
const SETTLES_WITHIN: Duration = Duration::from_secs(100);
/// The lines that an engineer reads first.
const FIRST: usize = 5;

/// What the first lines of a screen name; each is a pattern.
#[derive(Clone, Copy)]
struct Names {
    cause: &'static str,
    since: &'static str,
    whom: &'static str,
    next: &'static str,
}

impl Names {
    /// Asserts it of a screen.
    fn assert_in(&self, command: &str, rows: &[String]) {
        let first = rows.iter().take(FIRST).map(|row| row.trim_start()).collect::<Vec<_>>().join(" ");
        for (what, pattern) in [("cause", self.cause), ("since", self.since), ("whom", self.whom), ("next", self.next)] {
            let is_named = Regex::new(pattern).unwrap().is_match(&first);
            assert!(is_named, "{what} ({pattern}) in the first {FIRST} lines of `{command}`:\n{}", rows.join("\n"));
        }
    }
}

/// What a command shows, by which it is decided when a screen is taken and how it is compared.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Columns, and sentences that fit the terminal: they are taken when all ages have two digits, and compared as they stand.
    Screen,
    /// What is drawn again and again, and the results above it.
    Live,
    /// Lines of text, which are folded anew, as their ages are of any length. A word may be wider than the terminal.
    Text,
    /// The same, each once and in the order of nodes: which node is the first by milliseconds is chance.
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

/// A screen that was looked at.
struct Look {
    rows: Vec<String>,
    text: String,
    /// Lines that are wider than the terminal, which had to break them.
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

/// Looks until the screen is as the golden file has it, and adds it to what was shown.
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
    // Nobody reads much there, but what stands there is whole.
    for arguments in incident.commands().iter().filter(|arguments| !["explain", "events"].contains(&arguments[0])) {
        let mut terminal = incident.start(arguments, (LIST_ROWS, NARROWEST));
        assert_eq!((terminal.wait(), terminal.broken_rows()), (0, Vec::new()), "{arguments:?}: {:#?}", terminal.rows());
    }
}
