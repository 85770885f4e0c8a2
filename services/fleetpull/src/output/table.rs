//! Columns of text, in kubectl's layout.

mod cell;

use std::collections::BTreeSet;

use console::{measure_text_width, truncate_str};

use super::layout::without_middle;
pub use cell::{Cell, Tone};

/// The spaces between two columns.
const GAP: usize = 2;
/// The mark of a cut text.
const CUT: &str = "...";

/// A column of a table.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    title: &'static str,
    /// True if the column is shown only in the wide form.
    is_wide: bool,
    gives_way: Option<GivesWay>,
}

/// How a column becomes narrower if there is not enough room. Columns of figures never do.
#[derive(Clone, Copy, Debug)]
struct GivesWay {
    /// The least width that is kept.
    least: usize,
    /// True if the middle is cut, false if the end is.
    by_middle: bool,
}

impl Column {
    /// A column that keeps its width.
    #[must_use]
    pub const fn new(title: &'static str) -> Self {
        Self { title, is_wide: false, gives_way: None }
    }

    /// A column that is shown only in the wide form.
    #[must_use]
    pub const fn wide(title: &'static str) -> Self {
        Self { title, is_wide: true, gives_way: None }
    }

    /// A column of names, which are cut in the middle.
    #[must_use]
    pub const fn name(title: &'static str, least: usize) -> Self {
        Self { title, is_wide: false, gives_way: Some(GivesWay { least, by_middle: true }) }
    }

    /// A column of sentences, which are cut at the end.
    #[must_use]
    pub const fn sentence(title: &'static str, least: usize) -> Self {
        Self { title, is_wide: false, gives_way: Some(GivesWay { least, by_middle: false }) }
    }
}

/// The look of a table.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    /// The width of lines. None for no limit.
    pub width: Option<usize>,
    /// True to show the columns of the wide form.
    pub is_wide: bool,
    /// True to show the titles.
    pub has_header: bool,
    /// True to use colours.
    pub has_colour: bool,
}

impl Look {
    /// Lines of this width, with titles and without colours.
    #[must_use]
    pub const fn of_width(width: Option<usize>) -> Self {
        Self { width, is_wide: false, has_header: true, has_colour: false }
    }
}

/// Rows with titles.
#[derive(Clone, Debug)]
pub struct Table {
    columns: &'static [Column],
    rows: Vec<Row>,
}

/// A row, and the name that represents it in a list of names.
#[derive(Clone, Debug)]
struct Row {
    name: String,
    cells: Vec<Cell>,
}

impl Table {
    /// A table without rows.
    #[must_use]
    pub const fn new(columns: &'static [Column]) -> Self {
        Self { columns, rows: Vec::new() }
    }

    /// Adds a row with a cell for each column.
    pub fn add(&mut self, name: &str, cells: Vec<Cell>) {
        self.rows.push(Row { name: super::one_line(name), cells });
    }

    /// True if the table has no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The names of the rows, each once: rows of several nodes may have one name.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let mut seen = BTreeSet::new();
        self.rows.iter().map(|row| row.name.as_str()).filter(move |name| seen.insert(*name))
    }

    /// Sorts the rows by a column: figures by size, texts alphabetically, unknown values last. Equal rows keep their order.
    pub fn sort_by(&mut self, column: usize) {
        self.rows.sort_by(|one, other| one.cells.get(column).cmp(&other.cells.get(column)));
    }

    /// The table as lines.
    #[must_use]
    pub fn lines(&self, look: &Look) -> Vec<String> {
        let shown = self.shown(look);
        let natural: Vec<usize> = shown.iter().map(|column| self.width_of(*column, look)).collect();
        let widths = match look.width {
            Some(width) => self.narrowed(&shown, natural, width),
            None => natural,
        };
        let header =
            look.has_header.then(|| line(shown.iter().map(|column| Cell::from(self.columns[*column].title)).zip(widths.clone()), false));
        let rows = self.rows.iter().map(|row| {
            let cells = shown.iter().zip(&widths).map(|(column, width)| (self.fitted(row, *column, *width), *width));
            line(cells, look.has_colour)
        });
        let lines = header.into_iter().chain(rows);
        match look.width {
            Some(width) => lines.map(|line| truncate_str(&line, width, CUT).into_owned()).collect(),
            None => lines.collect(),
        }
    }

    /// The rows as lines of a title and a value. Unknown values are left out.
    #[must_use]
    pub fn record(&self) -> Vec<String> {
        let cells = self.rows.iter().flat_map(|row| self.columns.iter().zip(&row.cells));
        let known = cells.filter(|(_, cell)| !cell.is_nothing());
        known.map(|(column, cell)| format!("  {:<13} {}", format!("{}:", column.title.to_lowercase()), cell.written(false))).collect()
    }

    /// True if the lines fit without a cut figure.
    #[must_use]
    pub fn fits(&self, look: &Look) -> bool {
        let shown = self.shown(look);
        let natural = shown.iter().map(|column| self.width_of(*column, look)).collect();
        look.width.is_none_or(|width| whole(&self.narrowed(&shown, natural, width)) <= width)
    }

    /// The indices of the shown columns.
    fn shown(&self, look: &Look) -> Vec<usize> {
        (0..self.columns.len()).filter(|column| look.is_wide || !self.columns[*column].is_wide).collect()
    }

    fn width_of(&self, column: usize, look: &Look) -> usize {
        let cells = self.rows.iter().filter_map(|row| row.cells.get(column)).map(Cell::width);
        cells.chain(look.has_header.then(|| measure_text_width(self.columns[column].title))).max().unwrap_or_default()
    }

    /// The widths at which the lines fit: of the columns that may be cut, the widest is cut first.
    fn narrowed(&self, shown: &[usize], mut widths: Vec<usize>, width: usize) -> Vec<usize> {
        let least = |place: usize| self.columns[shown[place]].gives_way.map(|gives_way| gives_way.least);
        let mut over = whole(&widths).saturating_sub(width);
        while over > 0 {
            let may = (0..widths.len()).filter(|place| least(*place).is_some_and(|least| widths[*place] > least));
            let Some(widest) = may.max_by_key(|place| widths[*place]) else { break };
            let second = (0..widths.len()).filter(|place| *place != widest && least(*place).is_some()).map(|place| widths[place]).max();
            // The width is reduced to that of the second widest column in one step, because names may have thousands of characters.
            let floor = second.unwrap_or_default().max(least(widest).unwrap_or_default()).min(widths[widest] - 1);
            let by = over.min(widths[widest] - floor);
            widths[widest] -= by;
            over -= by;
        }
        widths
    }

    fn fitted(&self, row: &Row, column: usize, width: usize) -> Cell {
        let cell = row.cells.get(column).cloned().unwrap_or_default().within(width);
        match self.columns[column].gives_way {
            Some(GivesWay { by_middle: true, .. }) => cell.shortened(|text| without_middle(text, width)),
            Some(_) => cell.shortened(|text| truncate_str(text, width, CUT).into_owned()),
            None => cell,
        }
    }
}

/// The width of a line with columns of these widths.
fn whole(widths: &[usize]) -> usize {
    widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1)
}

/// The index of a column by its title, in upper or lower case and with `-` or `_` for a space.
#[must_use]
pub fn place_of(columns: &[Column], title: &str) -> Option<usize> {
    let title = title.replace(['-', '_'], " ");
    columns.iter().position(|column| column.title.eq_ignore_ascii_case(&title))
}

/// The titles of columns in the form of a flag.
#[must_use]
pub fn titles(columns: &[Column]) -> String {
    columns.iter().map(|column| column.title.to_ascii_lowercase().replace(' ', "-")).collect::<Vec<_>>().join(", ")
}

/// A line of padded cells; the last is not padded.
fn line(cells: impl Iterator<Item = (Cell, usize)>, has_colour: bool) -> String {
    let mut line = String::new();
    let mut owed = 0;
    for (cell, width) in cells {
        line.extend(std::iter::repeat_n(' ', owed));
        owed = (width + GAP).saturating_sub(cell.width());
        line.push_str(&cell.written(has_colour));
    }
    line.truncate(line.trim_end().len());
    line
}

/// A text of this program outside a table, in the colour of its meaning.
#[must_use]
pub fn coloured(text: &str, tone: Tone) -> String {
    Cell::verbatim(text).toned(tone).written(true)
}

/// Lays out rows under a header, with two spaces between columns. The last column is not padded.
#[must_use]
pub fn columns(header: &[&str], rows: &[Vec<String>]) -> Vec<String> {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| measure_text_width(cell));
        cells.chain(header.get(column).map(|title| measure_text_width(title))).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    let of = |cells: Vec<&str>| line(cells.into_iter().map(Cell::verbatim).zip(widths.iter().copied()), false);
    let mut lines = vec![of(header.to_vec())];
    lines.extend(rows.iter().map(|row| of(row.iter().map(String::as_str).collect())));
    lines
}

#[cfg(test)]
#[path = "table/table_tests.rs"]
mod tests;
