//! Writes figures to stdout, as a table or as one JSON object for each line.

use std::io::{self, Write as _};

use clap::ValueEnum;
use serde::Serialize;

use crate::figure::{Bar, Figure};
use crate::propagation::Propagation;

/// How figures are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// A table at the end.
    #[default]
    Text,
    /// One object a line, when known.
    Json,
}

/// The output of figures.
pub(crate) struct Report {
    format: Format,
    rows: Vec<Vec<String>>,
    missed: usize,
}

#[derive(Serialize)]
struct Line<'a> {
    bench: &'a str,
    what: &'a str,
    unit: &'static str,
    ours: f64,
    reference: Option<f64>,
    reference_is: Option<&'a str>,
    ratio: Option<f64>,
    bar: Option<f64>,
    bar_is: Option<&'static str>,
    met: Option<bool>,
}

impl Report {
    pub(crate) fn new(format: Format) -> Self {
        Self { format, rows: Vec::new(), missed: 0 }
    }

    /// Adds the figures of a benchmark.
    pub(crate) fn add(&mut self, bench: &str, figures: Vec<Figure>) {
        for figure in figures {
            self.judge(&figure);
            match self.format {
                Format::Text => self.rows.push(row(bench, &figure)),
                Format::Json => {
                    // Serialising numbers and texts cannot fail.
                    write_line(&serde_json::to_string(&line(bench, &figure)).unwrap_or_default());
                }
            }
        }
    }

    /// Adds the result of `propagation`: in JSON an object of its own form.
    pub(crate) fn add_propagation(&mut self, bench: &str, propagation: &Propagation) {
        match self.format {
            Format::Text => self.add(bench, vec![propagation.figure()]),
            Format::Json => {
                self.judge(&propagation.figure());
                write_line(&serde_json::to_string(propagation).unwrap_or_default());
            }
        }
    }

    fn judge(&mut self, figure: &Figure) {
        self.missed += usize::from(figure.met() == Some(false));
    }

    /// Writes the table; returns how many bars were missed.
    pub(crate) fn finish(self) -> usize {
        if !self.rows.is_empty() {
            let header = ["BENCH", "WHAT", "OURS", "REFERENCE", "RATIO", "BAR", "MET"];
            for line in fleetpull::output::table::columns(&header, &self.rows) {
                write_line(&line);
            }
        }
        self.missed
    }
}

fn line<'a>(bench: &'a str, figure: &'a Figure) -> Line<'a> {
    let (bar, bar_is) = match figure.bar {
        None => (None, None),
        Some(Bar::Ratio(most)) => (Some(most), Some("ratio")),
        Some(Bar::Value(most)) => (Some(most), Some("ours")),
    };
    Line {
        bench,
        what: &figure.what,
        unit: figure.unit.symbol(),
        ours: figure.ours,
        reference: figure.reference.as_ref().map(|reference| reference.value),
        reference_is: figure.reference.as_ref().map(|reference| reference.what.as_str()),
        ratio: figure.ratio(),
        bar,
        bar_is,
        met: figure.met(),
    }
}

fn row(bench: &str, figure: &Figure) -> Vec<String> {
    let reference = figure.reference.as_ref().map(|reference| format!("{} {}", reference.what, figure.unit.shown(reference.value)));
    let bar = match figure.bar {
        None => String::new(),
        Some(Bar::Ratio(most)) => format!("{most:.2}x"),
        Some(Bar::Value(most)) => figure.unit.shown(most),
    };
    let met = match figure.met() {
        None => "",
        Some(true) => "yes",
        Some(false) => "NO",
    };
    vec![
        bench.to_owned(),
        figure.what.clone(),
        figure.unit.shown(figure.ours),
        reference.unwrap_or_default(),
        figure.ratio().map(|ratio| format!("{ratio:.3}x")).unwrap_or_default(),
        bar,
        met.to_owned(),
    ]
}

/// Writes a line to stdout. If the reader has closed it, the output is dropped.
fn write_line(line: &str) {
    let mut stdout = io::stdout().lock();
    if writeln!(stdout, "{line}").and_then(|()| stdout.flush()).is_err() {
        std::process::exit(0);
    }
}

/// Writes a remark to stderr.
pub(crate) fn remark(line: &str) {
    // If stderr is closed, the remark is dropped.
    let _ = writeln!(io::stderr().lock(), "bench: {line}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::Unit;

    #[test]
    fn bars_that_are_missed_are_counted() {
        let figure = |ours| Figure::new("x", Unit::Seconds, ours).with_bar(Bar::Value(1.0));
        let mut report = Report { format: Format::Text, rows: Vec::new(), missed: 0 };
        report.add("a", vec![figure(1.0), figure(1.1), Figure::new("no bar", Unit::Seconds, 9.0)]);
        report.add("b", vec![figure(2.0)]);
        assert_eq!((report.rows.len(), report.missed), (4, 2));
    }
}
