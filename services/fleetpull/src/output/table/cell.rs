//! A cell of a table.

use std::cmp::Ordering;

use console::{Style, measure_text_width};

use crate::output::{one_line, units};

/// The text for an unknown value.
const NOTHING: &str = "-";

/// A text in a table, as one line without terminal control characters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    text: String,
    /// The text in a column that is too narrow for all of it, so that a figure is left out and not cut.
    short: Option<String>,
    /// The figure for sorting. None if the text is used.
    figure: Option<u64>,
    tone: Tone,
}

/// The meaning of a cell, shown as a colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tone {
    /// No meaning.
    #[default]
    Plain,
    /// No problem.
    Good,
    /// A possible problem.
    Warning,
    /// A problem.
    Bad,
}

impl Cell {
    /// An unknown value.
    #[must_use]
    pub fn nothing() -> Self {
        Self::from(NOTHING)
    }

    /// A text of this program, unchanged.
    pub(super) fn verbatim(text: &str) -> Self {
        Self { text: text.to_owned(), ..Self::default() }
    }

    /// A number.
    #[must_use]
    pub fn count(count: u64) -> Self {
        Self { text: count.to_string(), figure: Some(count), ..Self::default() }
    }

    /// The time since something happened, or a duration.
    #[must_use]
    pub fn age(ms: u64) -> Self {
        Self { text: units::age(ms), figure: Some(ms), ..Self::default() }
    }

    /// The same, or an unknown value.
    #[must_use]
    pub fn age_if(ms: Option<u64>) -> Self {
        ms.map_or_else(Self::nothing, Self::age)
    }

    /// Sorts the cell by a figure.
    #[must_use]
    pub fn sorted_by(self, figure: u64) -> Self {
        Self { figure: Some(figure), ..self }
    }

    /// Sets the text for a narrow column.
    #[must_use]
    pub fn or_in_short(self, short: &str) -> Self {
        Self { short: Some(one_line(short)), ..self }
    }

    /// Sets the tone.
    #[must_use]
    pub fn toned(self, tone: Tone) -> Self {
        Self { tone, ..self }
    }

    pub(super) fn is_nothing(&self) -> bool {
        self.text == NOTHING
    }

    pub(super) fn width(&self) -> usize {
        measure_text_width(&self.text)
    }

    /// The cell for a column of this width: the short text, if there is one and the whole one is too wide.
    pub(super) fn within(mut self, width: usize) -> Self {
        if self.width() > width
            && let Some(short) = self.short.take()
        {
            self.text = short;
        }
        self
    }

    pub(super) fn shortened(self, shorten: impl FnOnce(&str) -> String) -> Self {
        Self { text: shorten(&self.text), ..self }
    }

    /// The text for a terminal, with or without colours.
    pub(super) fn written(&self, has_colour: bool) -> String {
        let style = match self.tone {
            _ if !has_colour => return self.text.clone(),
            Tone::Plain => return self.text.clone(),
            Tone::Good => Style::new().green(),
            Tone::Warning => Style::new().yellow(),
            Tone::Bad => Style::new().red(),
        };
        style.force_styling(true).apply_to(&self.text).to_string()
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        let text = one_line(text);
        Self { text: if text.is_empty() { NOTHING.to_owned() } else { text }, ..Self::default() }
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::from(text.as_str())
    }
}

impl Ord for Cell {
    fn cmp(&self, other: &Self) -> Ordering {
        let key = |cell: &Self| (cell.text == NOTHING, cell.figure.is_none(), cell.figure);
        key(self).cmp(&key(other)).then_with(|| self.text.cmp(&other.text))
    }
}

impl PartialOrd for Cell {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
