//! A cell of a table.

use std::cmp::Ordering;

use console::{Style, measure_text_width};

use crate::output::{one_line, units};

/// What stands where nothing is known.
const NOTHING: &str = "-";

/// Text in a table, in one line whatever wrote it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    text: String,
    /// By which it is sorted; none: by its text.
    figure: Option<u64>,
    tone: Tone,
}

/// How a cell is to be taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tone {
    /// As it is.
    #[default]
    Plain,
    /// All is well.
    Good,
    /// Somebody may want to look.
    Warning,
    /// Something is wrong.
    Bad,
}

impl Cell {
    /// Nothing is known.
    #[must_use]
    pub fn nothing() -> Self {
        Self::from(NOTHING)
    }

    /// A text as it is, which this program wrote itself.
    pub(super) fn verbatim(text: &str) -> Self {
        Self { text: text.to_owned(), ..Self::default() }
    }

    /// A number.
    #[must_use]
    pub fn count(count: u64) -> Self {
        Self { text: count.to_string(), figure: Some(count), tone: Tone::Plain }
    }

    /// How long ago something was, or how long it lasts.
    #[must_use]
    pub fn age(ms: u64) -> Self {
        Self { text: units::age(ms), figure: Some(ms), tone: Tone::Plain }
    }

    /// The same, if it is known.
    #[must_use]
    pub fn age_if(ms: Option<u64>) -> Self {
        ms.map_or_else(Self::nothing, Self::age)
    }

    /// A text that is sorted by a figure.
    #[must_use]
    pub fn sorted_by(self, figure: u64) -> Self {
        Self { figure: Some(figure), ..self }
    }

    /// In a tone.
    #[must_use]
    pub fn toned(self, tone: Tone) -> Self {
        Self { tone, ..self }
    }

    pub(super) fn width(&self) -> usize {
        measure_text_width(&self.text)
    }

    pub(super) fn shortened(self, shorten: impl FnOnce(&str) -> String) -> Self {
        Self { text: shorten(&self.text), ..self }
    }

    /// As it is written to a terminal that shows colours, or to one that does not.
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
