//! Columns of text.

/// Lays rows out under a header, columns apart by two spaces, as kubectl does. The last column is not padded.
#[must_use]
pub fn columns(header: &[&str], rows: &[Vec<String>]) -> Vec<String> {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain(header.get(column).map(|title| title.chars().count())).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    let line = |cells: Vec<&str>| {
        let padded: Vec<String> = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        padded.join("  ").trim_end().to_owned()
    };
    let mut lines = vec![line(header.to_vec())];
    lines.extend(rows.iter().map(|row| line(row.iter().map(String::as_str).collect())));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let rows = [vec!["n1".to_owned(), "ok".to_owned()], vec!["node-22".to_owned(), "degraded: no bus".to_owned()]];
        assert_eq!(columns(&["NODE", "STATE"], &rows), ["NODE     STATE", "n1       ok", "node-22  degraded: no bus"]);
    }
}
