//! A list in the requested form: a table with remarks, JSON, YAML or names alone.

use std::io::{self, IsTerminal as _};

use console::Term;

use super::table::{Look, Table};
use super::{document, fact, remark, yaml};
use crate::cli::{ColourChoice, ListFormat, OutputArgs, TableArgs};

/// The least width of lines, in columns.
const WIDTH_LEAST: usize = 20;

/// The content of a list.
#[derive(Clone, Debug)]
pub struct Listing {
    /// The rows.
    pub table: Table,
    /// Lines below the table.
    pub facts: Vec<String>,
    /// The rows as JSON objects.
    pub objects: Vec<String>,
    /// Nodes that did not answer. Written to stderr even with `--quiet`.
    pub unanswered: Vec<String>,
    /// Remarks. Written to stderr without `--quiet`.
    pub remarks: Vec<String>,
    /// The sentence for a list without rows and facts.
    pub empty: &'static str,
}

impl Listing {
    /// A list without rows.
    #[must_use]
    pub const fn new(table: Table, empty: &'static str) -> Self {
        Self { table, facts: Vec::new(), objects: Vec::new(), unanswered: Vec::new(), remarks: Vec::new(), empty }
    }

    /// The sentence for an empty list. None if a node did not answer, because it might have rows.
    fn sentence(&self) -> Option<&str> {
        let is_blank = self.table.is_empty() && self.facts.is_empty() && self.unanswered.is_empty();
        (is_blank && !self.empty.is_empty()).then_some(self.empty)
    }

    /// Writes the list in the requested form.
    pub fn write(&self, manner: &Manner) {
        match manner.format {
            ListFormat::Json | ListFormat::Yaml => self.objects.iter().for_each(|object| manner.write_object(object)),
            ListFormat::Name => self.table.names().for_each(fact),
            ListFormat::Text | ListFormat::Wide => {
                if !self.table.is_empty() {
                    self.table.lines(&manner.look()).iter().for_each(|line| document(line));
                }
                self.facts.iter().for_each(|line| fact(line));
            }
        }
        self.unanswered.iter().for_each(|line| remark(line));
        if manner.is_table() && !manner.is_quiet {
            self.remarks.iter().map(String::as_str).chain(self.sentence()).for_each(remark);
        }
    }

    /// The whole list in lines for a screen, without terminal control characters but those of colours.
    #[must_use]
    pub fn screen(&self, manner: &Manner) -> Vec<String> {
        let table = if self.table.is_empty() { Vec::new() } else { self.table.lines(&manner.look()) };
        let remarks = self.remarks.iter().filter(|_| !manner.is_quiet);
        let notes = self.facts.iter().chain(&self.unanswered).chain(remarks).map(String::as_str).chain(self.sentence());
        table.into_iter().chain(notes.map(super::one_line)).collect()
    }
}

/// The requested form of a list.
#[derive(Clone, Copy, Debug)]
pub struct Manner {
    format: ListFormat,
    is_quiet: bool,
    has_header: bool,
    colour: ColourChoice,
}

impl Manner {
    /// The form that the command line requests.
    #[must_use]
    pub fn of(output: OutputArgs<ListFormat>, list: &TableArgs) -> Self {
        Self { format: output.format, is_quiet: output.quiet, has_header: !list.no_headers, colour: list.color }
    }

    /// True if a table is shown.
    #[must_use]
    pub fn is_table(&self) -> bool {
        matches!(self.format, ListFormat::Text | ListFormat::Wide)
    }

    /// True if JSON objects are written. They need not be made otherwise.
    #[must_use]
    pub fn has_objects(&self) -> bool {
        matches!(self.format, ListFormat::Json | ListFormat::Yaml)
    }

    /// True if nothing is shortened.
    #[must_use]
    pub fn is_wide(&self) -> bool {
        self.format == ListFormat::Wide
    }

    /// Writes a row that is a line of JSON. A long list is written as its rows come.
    pub fn write_object(&self, object: &str) {
        if self.format == ListFormat::Yaml { yaml::write_json(object) } else { document(object) }
    }

    fn look(&self) -> Look {
        let is_wide = self.is_wide();
        // The reader of a pipe gets the full width.
        let width = if is_wide { None } else { terminal_width() };
        Look { width, is_wide, has_header: self.has_header, has_colour: has_colour(self.colour) }
    }
}

/// The usable width of the terminal on stdout, which excludes its last column. None if stdout is no terminal.
#[must_use]
pub fn terminal_width() -> Option<usize> {
    Term::stdout().size_checked().map(|(_, columns)| usize::from(columns).max(WIDTH_LEAST) - 1)
}

/// True if colours are written to stdout.
#[must_use]
pub fn has_colour(choice: ColourChoice) -> bool {
    choice.is_wanted(io::stdout().is_terminal(), &variable)
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

#[cfg(test)]
mod tests {
    use super::super::table::{Cell, Column, Tone};
    use super::*;

    const COLUMNS: [Column; 1] = [Column::new("NAME")];

    #[test]
    fn empty_list_is_a_sentence_unless_a_node_did_not_answer() {
        let mut listing = Listing::new(Table::new(&COLUMNS), "nothing is held back");
        assert_eq!(listing.sentence(), Some("nothing is held back"));
        listing.unanswered.push("n1: silent".to_owned());
        assert_eq!(listing.sentence(), None);
        let mut listing = Listing::new(Table::new(&COLUMNS), "nothing is held back");
        listing.table.add("n1", vec![Cell::from("n1")]);
        assert_eq!(listing.sentence(), None);
    }

    #[test]
    fn screen_has_the_table_and_all_notes_in_whole_lines() {
        let mut listing = Listing::new(Table::new(&COLUMNS), "nothing");
        listing.table.add("n1", vec![Cell::from("n1")]);
        listing.facts.push("paused: sharing\u{1b}[2J".to_owned());
        listing.unanswered.push("n2: silent\nforged".to_owned());
        listing.remarks.push("n3: observes".to_owned());
        let output = OutputArgs { format: ListFormat::Wide, quiet: false };
        let screen = listing.screen(&Manner::of(output, &TableArgs::default()));
        assert_eq!(screen, ["NAME", "n1", "paused: sharing [2J", "n2: silent forged", "n3: observes"]);
        let mut coloured = listing.clone();
        coloured.table = Table::new(&COLUMNS);
        coloured.table.add("n1", vec![Cell::from("n1").toned(Tone::Bad)]);
        let always = TableArgs { color: ColourChoice::Always, ..TableArgs::default() };
        assert!(coloured.screen(&Manner::of(output, &always))[1].contains("\u{1b}["), "a watched list has the colours of a list");
        let quiet = OutputArgs { quiet: true, ..output };
        let list = TableArgs { no_headers: true, ..TableArgs::default() };
        assert_eq!(listing.screen(&Manner::of(quiet, &list)), ["n1", "paused: sharing [2J", "n2: silent forged"]);
    }
}
