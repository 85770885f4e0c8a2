use super::*;

const COLUMNS: [Column; 5] =
    [Column::name("IMAGE", 12), Column::new("NODE"), Column::sentence("CAUSE", 8), Column::new("NEXT ATTEMPT"), Column::wide("VIEW")];

const IMAGE: &str = "registry.example/team/platform/application:v2.14.0";

fn table(rows: &[[&str; 5]]) -> Table {
    let mut table = Table::new(&COLUMNS);
    for row in rows {
        table.add(row[0], row.iter().map(|text| Cell::from(*text)).collect());
    }
    table
}

fn sample() -> Table {
    table(&[
        [IMAGE, "n1", "503 Service Unavailable from a proxy", "in 41s", "default/registry.example@01234567"],
        ["busybox", "n22", "not found", "due", ""],
    ])
}

#[test]
fn columns_are_padded_to_their_widest_cell() {
    let rows = [vec!["n1".to_owned(), "ok".to_owned()], vec!["node-22".to_owned(), "degraded: no bus".to_owned()]];
    assert_eq!(columns(&["NODE", "STATE"], &rows), ["NODE     STATE", "n1       ok", "node-22  degraded: no bus"]);
    let wide = [vec!["\u{65e5}\u{672c}".to_owned(), "a".to_owned()], vec!["b".to_owned(), "c".to_owned()]];
    assert_eq!(columns(&["X", "Y"], &wide), ["X     Y", "\u{65e5}\u{672c}  a", "b     c"], "a wide character takes two columns");
}

#[test]
fn narrow_table_shortens_texts_and_keeps_figures() {
    let whole = sample().lines(&Look::of_width(None));
    assert!(whole[1].contains(IMAGE) && whole[1].contains("from a proxy"), "{whole:#?}");
    let narrow = sample().lines(&Look::of_width(Some(60)));
    assert_eq!(
        narrow,
        [
            "IMAGE                NODE  CAUSE                NEXT ATTEMPT",
            "registry...:v2.14.0  n1    503 Service Unav...  in 41s",
            "busybox              n22   not found            due",
        ],
        "{narrow:#?}"
    );
}

#[test]
fn narrow_column_shows_the_short_text_of_a_cell_and_cuts_no_figure() {
    let mut table = Table::new(&COLUMNS);
    let cause = Cell::from("503 (node-0007 +123)").or_in_short("503");
    table.add("a", vec![Cell::from("a"), Cell::from("n1"), cause, Cell::from("due"), Cell::nothing()]);
    let row = |width| table.lines(&Look { has_header: false, ..Look::of_width(width) }).remove(0);
    assert_eq!(row(None), "a  n1  503 (node-0007 +123)  due");
    assert_eq!(row(Some(20)), "a  n1  503       due");
}

#[test]
fn a_wide_table_has_more_columns_and_shortens_nothing() {
    let look = Look { is_wide: true, ..Look::of_width(None) };
    let lines = sample().lines(&look);
    assert!(lines[0].ends_with("NEXT ATTEMPT  VIEW") && lines[1].ends_with("default/registry.example@01234567"), "{lines:#?}");
    assert!(lines[2].ends_with("due           -"), "{lines:#?}");
}

#[test]
fn a_record_has_a_line_for_each_known_value() {
    let record = table(&[["a", "b", "", "in 41s", "v"]]).record();
    assert_eq!(record, ["  image:        a", "  node:         b", "  next attempt: in 41s", "  view:         v"]);
}

#[test]
fn without_a_header_columns_are_as_wide_as_their_cells() {
    let look = Look { has_header: false, ..Look::of_width(None) };
    assert_eq!(table(&[["a", "b", "c", "d", "e"]]).lines(&look), ["a  b  c  d"]);
}

#[test]
fn rows_are_sorted_by_figures_before_texts_and_what_is_not_known_is_last() {
    const COLUMNS: [Column; 2] = [Column::new("NAME"), Column::new("AGE")];
    let mut table = Table::new(&COLUMNS);
    for (name, age) in [("n3", Cell::nothing()), ("n2", Cell::age(600_000)), ("n1", Cell::age(90_000)), ("n10", Cell::from("soon"))] {
        table.add(name, vec![Cell::from(name), age]);
    }
    table.sort_by(1);
    assert_eq!(table.names().collect::<Vec<_>>(), ["n1", "n2", "n10", "n3"]);
    table.sort_by(0);
    assert_eq!(table.names().collect::<Vec<_>>(), ["n1", "n10", "n2", "n3"]);
    table.sort_by(7);
    assert_eq!(table.names().count(), 4, "a column that is not there changes nothing");
    table.add("n10", vec![Cell::from("n10"), Cell::nothing()]);
    assert_eq!(table.names().collect::<Vec<_>>(), ["n1", "n10", "n2", "n3"], "a name of several rows once");
}

#[test]
fn a_column_is_named_as_its_title_in_any_spelling() {
    for name in ["NEXT ATTEMPT", "next-attempt", "Next_Attempt"] {
        assert_eq!(place_of(&COLUMNS, name), Some(3), "{name}");
    }
    assert_eq!(place_of(&COLUMNS, "moon"), None);
    assert_eq!(titles(&COLUMNS), "image, node, cause, next-attempt, view");
}

#[test]
fn colours_change_no_width() {
    const COLUMNS: [Column; 2] = [Column::new("STATUS"), Column::new("AGE")];
    let mut table = Table::new(&COLUMNS);
    for (status, tone) in [("ready", Tone::Good), ("silent", Tone::Bad), ("degraded", Tone::Warning), ("new", Tone::Plain)] {
        table.add(status, vec![Cell::from(status).toned(tone), Cell::age(1_000)]);
    }
    let plain = table.lines(&Look::of_width(Some(80)));
    let coloured = table.lines(&Look { has_colour: true, ..Look::of_width(Some(80)) });
    assert_ne!(plain, coloured);
    let stripped: Vec<String> = coloured.iter().map(|line| console::strip_ansi_codes(line).into_owned()).collect();
    assert_eq!(plain, stripped);
}

/// For any text of other nodes and any width of the terminal: one whole line for each row, and no line wider than the terminal.
#[test]
fn any_text_is_one_line_of_any_width() {
    let bad = "x\u{1b}[2J\u{9b}2Jz\u{7f}\u{202e}\r\nforged\u{2028}\t";
    let (long, name) = (format!("r.example/{}:v1", "a".repeat(4_000)), "n".repeat(253));
    let wide_characters = "\u{65e5}\u{672c}".repeat(50);
    let rows = [[bad; 5], [&long, &name, &long, &name, &long], [""; 5], [wide_characters.as_str(); 5], [IMAGE, "n1", "404", "due", "v"]];
    let table = table(&rows);
    for width in
        [None, Some(0), Some(1), Some(2), Some(3), Some(20), Some(40), Some(79), Some(80), Some(140), Some(10_000), Some(usize::MAX)]
    {
        for is_wide in [false, true] {
            for has_header in [false, true] {
                let lines = table.lines(&Look { width, is_wide, has_header, has_colour: false });
                assert_eq!(lines.len(), rows.len() + usize::from(has_header));
                for line in lines {
                    assert!(!line.chars().any(|character| character.is_control() || character == '\u{202e}'), "{line:?}");
                    let limit = width.unwrap_or(usize::MAX).max(3);
                    assert!(measure_text_width(&line) <= limit, "{width:?}: {line}");
                }
            }
        }
    }
}

#[test]
fn a_hundred_thousand_rows_are_a_line_each() {
    const COLUMNS: [Column; 2] = [Column::name("NODE", 6), Column::new("WAITING")];
    const ROWS: u64 = 100_000;
    let mut table = Table::new(&COLUMNS);
    for number in (0..ROWS).rev() {
        table.add("n", vec![Cell::from(format!("n{number}")), Cell::count(number)]);
    }
    table.sort_by(1);
    let lines = table.lines(&Look::of_width(None));
    assert_eq!(lines.len() as u64, ROWS + 1);
    assert_eq!([lines[0].as_str(), lines[1].as_str(), lines[100_000].as_str()], ["NODE    WAITING", "n0      0", "n99999  99999"]);
}
