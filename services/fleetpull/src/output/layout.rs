//! Lays out lines that fit a terminal: names are shortened first, and figures never.

use console::{measure_text_width, truncate_str};

use super::units;

/// The width of a bar in characters, if it fits.
const BAR_SIGNS: usize = 20;
/// The least of a name that is shown, in columns.
const NAME_LEAST: usize = 8;
/// The indent of a continued line.
const GOES_ON: &str = "    ";

/// Names, a bar if there is room, and figures. `done` and `total` are in bytes; there is no bar if `total` is 0.
#[must_use]
pub fn with_figures(names: &[&str], done: u64, total: u64, figures: &str, width: usize) -> String {
    let room = width.saturating_sub(2 + measure_text_width(figures) + 2);
    let names_width = names.iter().map(|name| measure_text_width(name) + 2).sum::<usize>().saturating_sub(2);
    let bar = if total > 0 && names_width + BAR_SIGNS + 4 <= room { format!("{}  ", bar(done, total)) } else { String::new() };
    format!("  {}  {bar}{figures}", shortened(names, room))
}

fn bar(done: u64, total: u64) -> String {
    let full = units::share(done, total, BAR_SIGNS);
    let signs: String = (0..BAR_SIGNS).map(|sign| if sign < full { '#' } else { '-' }).collect();
    format!("[{signs}]")
}

/// Shortens the names to `room` columns. The longest is cut first, at its beginning, because the end of an image's name distinguishes it.
fn shortened(names: &[&str], room: usize) -> String {
    let mut names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    loop {
        let all = names.iter().map(|name| measure_text_width(name)).sum::<usize>() + 2 * names.len().saturating_sub(1);
        let over = all.saturating_sub(room);
        let Some(longest) = names.iter_mut().max_by_key(|name| measure_text_width(name)) else { return String::new() };
        let width = measure_text_width(longest);
        if over == 0 || width <= NAME_LEAST {
            return names.join("  ");
        }
        *longest = end_of(longest, width.saturating_sub(over).max(NAME_LEAST));
    }
}

/// The end of a text in `width` columns, with a mark of the cut.
fn end_of(text: &str, width: usize) -> String {
    let mut kept = String::new();
    for character in text.trim_start_matches('.').chars().rev() {
        let more = format!("{character}{kept}");
        if measure_text_width(&more) + 3 > width {
            break;
        }
        kept = more;
    }
    format!("...{kept}")
}

/// The text in `width` columns, cut in its middle: the beginning of an image's name shows its source, and the end identifies it.
#[must_use]
pub fn without_middle(text: &str, width: usize) -> String {
    if measure_text_width(text) <= width {
        return text.to_owned();
    }
    let begin = truncate_str(text, width.saturating_sub(3) / 2, "");
    let end = end_of(text, width.saturating_sub(measure_text_width(&begin)));
    format!("{begin}{end}")
}

/// Wraps a sentence into lines of `width` columns after commas, and between the words of a part that is wider. A wider word is cut.
#[must_use]
pub fn wrapped(sentence: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for part in sentence.split_inclusive(", ") {
        match lines.last_mut() {
            Some(line) if measure_text_width(line) + measure_text_width(part.trim_end()) <= width => line.push_str(part),
            Some(_) => lines.push(format!("{GOES_ON}{part}")),
            None => lines.push(part.to_owned()),
        }
        // The next part continues the last line of a part that is wider than a line.
        if let Some(wide) = lines.pop_if(|line| measure_text_width(line.trim_end()) > width) {
            lines.extend(folded_at(wide.trim_end(), GOES_ON.len(), width));
            if let Some(line) = lines.last_mut() {
                line.push(' ');
            }
        }
    }
    lines.iter().map(|line| truncate_str(line.trim_end(), width, "...").into_owned()).collect()
}

/// Wraps a line into lines of `width` columns between words, and indents the continued lines. A wider word stays whole, so that it can be
/// copied.
#[must_use]
pub fn folded(line: &str, width: usize) -> Vec<String> {
    folded_at(line, line.len() - line.trim_start().len() + GOES_ON.len(), width)
}

/// As [`folded`], with the continued lines indented by this many columns.
fn folded_at(line: &str, indent: usize, width: usize) -> Vec<String> {
    let own = line.len() - line.trim_start().len();
    let set_in = " ".repeat(indent.min(width / 4));
    let (mut lines, mut last) = (Vec::new(), line[..own].to_owned());
    for word in line[own..].split_inclusive(' ') {
        if !last.trim_start().is_empty() && measure_text_width(&last) + measure_text_width(word.trim_end()) > width {
            lines.push(last.trim_end().to_owned());
            last.clone_from(&set_in);
        }
        last.push_str(word);
    }
    lines.push(last.trim_end().to_owned());
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn narrow_line_shortens_names_and_keeps_figures() {
        let names = ["node-0002.rack-7", "registry.example/team/platform/application:v2.14.0"];
        let figures = "2.0 MiB of 4.0 MiB, 1.0 MiB/s, for 2s";
        for width in [50, 60, 79, 80, 100, 130, 200] {
            let line = with_figures(&names, 1, 2, figures, width);
            assert!(line.chars().count() <= width.max(2 + 2 * NAME_LEAST + 2 + 2 + figures.len()), "{width}: {line}");
            assert!(line.ends_with(figures) && (width < 79 || line.contains(":v2.14.0")), "{width}: {line}");
        }
        assert!(with_figures(&names, 1, 2, figures, 200).contains("[##########----------]"));
        assert!(!with_figures(&names, 0, 0, figures, 200).contains('['));
        assert_eq!(with_figures(&["n1", "a:1"], 0, 0, "asks the registry, for 2s", 80), "  n1  a:1  asks the registry, for 2s");
    }

    #[test]
    fn a_long_name_keeps_its_beginning_and_its_end() {
        let image = "registry.example/team/platform/application:v2.14.0";
        for (width, text) in [(60, image), (30, "registry.exam...cation:v2.14.0"), (10, "reg...14.0"), (4, "...0"), (0, "...")] {
            assert_eq!(without_middle(image, width), text, "{width}");
        }
    }

    #[test]
    fn texts_break_between_words_and_words_stay_whole() {
        let line = "  n3: it waits for  two columns";
        assert_eq!(folded(line, 80), [line]);
        assert_eq!(folded(line, 20), ["  n3: it waits for", "     two columns"]);
        assert_eq!(folded("a registry.example/team/app:v2 b", 10), ["a", "  registry.example/team/app:v2", "  b"]);
        for empty in ["", "   "] {
            assert_eq!(folded(empty, 10), [""]);
        }
        let wide = "\u{65e5}\u{672c} \u{65e5}\u{672c} \u{65e5}\u{672c}";
        assert_eq!(folded(wide, 9), ["\u{65e5}\u{672c} \u{65e5}\u{672c}", "  \u{65e5}\u{672c}"], "a sign may take two columns");
        for width in [0, 1, 3] {
            assert_eq!(folded("a b", width).concat().replace(' ', ""), "ab", "{width}");
        }
    }

    #[test]
    fn sentences_break_behind_their_commas() {
        let sentence = "1 of 3 there, 1 pulling, 1 held back, 2.0 MiB of 8.0 MiB, 1.0 MiB/s";
        assert_eq!(wrapped(sentence, 80), [sentence]);
        assert_eq!(wrapped(sentence, 40), ["1 of 3 there, 1 pulling, 1 held back,", "    2.0 MiB of 8.0 MiB, 1.0 MiB/s"]);
        assert_eq!(wrapped("without any comma at all", 10), ["without", "  any", "  comma at", "  all"]);
        assert_eq!(wrapped("one, unreasonably, two", 10), ["one,", "    unr...", "    two"]);
        assert_eq!(wrapped("one, a much wider part, two, three", 14), ["one,", "    a much", "   wider part,", "    two, three"]);
        let wide = "one, a part that is much wider than a whole line, two";
        assert_eq!(wrapped(wide, 32), ["one,", "    a part that is much wider", "    than a whole line, two"]);
        assert_eq!(wrapped("no server is reached at all, it waits, ok", 24), ["no server is reached at", "    all, it waits, ok"]);
        assert_eq!(wrapped("", 10), Vec::<String>::new());
    }
}
