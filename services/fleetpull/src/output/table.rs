//! Columns of text, as kubectl lays them out.

mod cell;

use console::{measure_text_width, truncate_str};

use super::layout::without_middle;
pub use cell::{Cell, Tone};

/// Between two columns.
const GAP: usize = 2;
/// What marks that a text was cut.
const CUT: &str = "...";

/// A column of a table.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    title: &'static str,
    /// Whether it is shown in the wide form alone.
    is_wide: bool,
    gives_way: Option<GivesWay>,
}

/// How a column becomes narrower where there is little room. Figures never do.
#[derive(Clone, Copy, Debug)]
struct GivesWay {
    /// As much of it is kept.
    least: usize,
    /// Its middle goes, else its end.
    by_middle: bool,
}

impl Column {
    /// One that keeps its width.
    #[must_use]
    pub const fn new(title: &'static str) -> Self {
        Self { title, is_wide: false, gives_way: None }
    }

    /// One that is shown in the wide form alone.
    #[must_use]
    pub const fn wide(title: &'static str) -> Self {
        Self { title, is_wide: true, gives_way: None }
    }

    /// Of names: their middle gives way.
    #[must_use]
    pub const fn name(title: &'static str, least: usize) -> Self {
        Self { title, is_wide: false, gives_way: Some(GivesWay { least, by_middle: true }) }
    }

    /// Of sentences: their end gives way.
    #[must_use]
    pub const fn sentence(title: &'static str, least: usize) -> Self {
        Self { title, is_wide: false, gives_way: Some(GivesWay { least, by_middle: false }) }
    }
}

/// How a table is to look.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    /// How wide lines may be; none: as wide as they are, and nothing is shortened.
    pub width: Option<usize>,
    /// With the columns of the wide form.
    pub is_wide: bool,
    /// With a line of titles.
    pub has_header: bool,
    /// With colours.
    pub has_colour: bool,
}

impl Look {
    /// In lines of so many columns, with titles and without colours.
    #[must_use]
    pub const fn of_width(width: Option<usize>) -> Self {
        Self { width, is_wide: false, has_header: true, has_colour: false }
    }
}

/// Rows below titles.
#[derive(Clone, Debug)]
pub struct Table {
    columns: &'static [Column],
    rows: Vec<Row>,
}

/// A row, and what it is called where nothing else is shown of it.
#[derive(Clone, Debug)]
struct Row {
    name: String,
    cells: Vec<Cell>,
}

impl Table {
    /// Without rows.
    #[must_use]
    pub const fn new(columns: &'static [Column]) -> Self {
        Self { columns, rows: Vec::new() }
    }

    /// Adds a row with a cell for each column.
    pub fn add(&mut self, name: &str, cells: Vec<Cell>) {
        self.rows.push(Row { name: super::one_line(name), cells });
    }

    /// Whether it has no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// What the rows are called.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.rows.iter().map(|row| row.name.as_str())
    }

    /// Orders the rows by a column: figures by size, texts by the alphabet, what is not known last. Equal rows keep their order.
    pub fn sort_by(&mut self, column: usize) {
        self.rows.sort_by(|one, other| one.cells.get(column).cmp(&other.cells.get(column)));
    }

    /// As lines.
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

    /// Whether its lines fit without a figure being cut.
    #[must_use]
    pub fn fits(&self, look: &Look) -> bool {
        let shown = self.shown(look);
        let natural = shown.iter().map(|column| self.width_of(*column, look)).collect();
        look.width.is_none_or(|width| whole(&self.narrowed(&shown, natural, width)) <= width)
    }

    /// The places of the columns that are shown.
    fn shown(&self, look: &Look) -> Vec<usize> {
        (0..self.columns.len()).filter(|column| look.is_wide || !self.columns[*column].is_wide).collect()
    }

    fn width_of(&self, column: usize, look: &Look) -> usize {
        let cells = self.rows.iter().filter_map(|row| row.cells.get(column)).map(Cell::width);
        cells.chain(look.has_header.then(|| measure_text_width(self.columns[column].title))).max().unwrap_or_default()
    }

    /// The widths with which lines fit: of the columns that may, the widest gives way first.
    fn narrowed(&self, shown: &[usize], mut widths: Vec<usize>, width: usize) -> Vec<usize> {
        let least = |place: usize| self.columns[shown[place]].gives_way.map(|gives_way| gives_way.least);
        let mut over = whole(&widths).saturating_sub(width);
        while over > 0 {
            let may = (0..widths.len()).filter(|place| least(*place).is_some_and(|least| widths[*place] > least));
            let Some(widest) = may.max_by_key(|place| widths[*place]) else { break };
            let second = (0..widths.len()).filter(|place| *place != widest && least(*place).is_some()).map(|place| widths[place]).max();
            // Down to the next widest at once, then one by one: names have thousands of characters.
            let floor = second.unwrap_or_default().max(least(widest).unwrap_or_default()).min(widths[widest] - 1);
            let by = over.min(widths[widest] - floor);
            widths[widest] -= by;
            over -= by;
        }
        widths
    }

    fn fitted(&self, row: &Row, column: usize, width: usize) -> Cell {
        let cell = row.cells.get(column).cloned().unwrap_or_default();
        match self.columns[column].gives_way {
            Some(GivesWay { by_middle: true, .. }) => cell.shortened(|text| without_middle(text, width)),
            Some(_) => cell.shortened(|text| truncate_str(text, width, CUT).into_owned()),
            None => cell,
        }
    }
}

/// How wide lines are whose columns are so wide.
fn whole(widths: &[usize]) -> usize {
    widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1)
}

/// The place of a column by its title, in any case and with `-` or `_` for a space.
#[must_use]
pub fn place_of(columns: &[Column], title: &str) -> Option<usize> {
    let title = title.replace(['-', '_'], " ");
    columns.iter().position(|column| column.title.eq_ignore_ascii_case(&title))
}

/// The titles of columns as a flag takes them.
#[must_use]
pub fn titles(columns: &[Column]) -> String {
    columns.iter().map(|column| column.title.to_ascii_lowercase().replace(' ', "-")).collect::<Vec<_>>().join(", ")
}

/// Cells in their widths; the last is not padded.
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

/// Lays rows out under a header, columns apart by two spaces. The last column is not padded.
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
