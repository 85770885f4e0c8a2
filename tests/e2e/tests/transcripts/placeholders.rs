//! Placeholders for values that differ from run to run: times, ids and ports. They have the width of the value, so that a screen keeps its
//! columns.

use std::sync::LazyLock;

use regex::{Captures, Regex};

const ADDRESS: &str = "127.0.0.1";
/// Patterns of values, and the sign that replaces each letter and digit of a value.
const REPLACED: [(&str, char); 12] = [
    // A time of RFC 3339, and a time of day.
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", '#'),
    (r"\b\d\d:\d\d:\d\dZ", '#'),
    // Boot ids of hosts; digests, keys, traces, spans and routes, whole or shortened; the id of a row.
    (r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", 'x'),
    (r"\b([0-9a-f]{64}|[0-9a-f]{32}|[0-9a-f]{16}|[0-9a-f]{12}|[0-9a-f]{8})\b", 'x'),
    (r"(?m)^[0-9a-f]{4,6}  ", 'x'),
    (r"127\.0\.0\.1:\d+", 'p'),
    // The end of a port in a name whose middle was cut out.
    (r"\.\.\.\d+/", '#'),
    // Durations as kubectl, Go and people write them.
    (r"\b(\d+h)?(\d+m)?\d+(\.\d+)?(ms|s|m)\b", '#'),
    (r"\b\d+(\.\d+)? (ms|s)\b", '#'),
    // The rate of a transfer, and a budget's rate that rises while the screens are taken.
    (r"\b\d+(\.\d+)? (B|KiB|MiB)/s\b", '#'),
    (r"\b\d\d/s\b", '#'),
    (r"\b\d+ of 200 pulls a second, rising as pulls are served", '#'),
];
/// Ages that do not have two digits. A screen with two-digit ages has the same column widths in every run.
static UNSETTLED: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"\b\ds\b|\b\d{3,}s\b|\b\d+m(\d+s)?\b|\bdue\b|\bnow by |\bnow  ").expect("a pattern"));
static REPLACED_PATTERNS: LazyLock<Vec<(Regex, char)>> =
    LazyLock::new(|| REPLACED.iter().map(|(pattern, sign)| (Regex::new(pattern).expect("a pattern"), *sign)).collect());
static FIGURES: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"#+(\.#+)? ?(ms|s|B/s|KiB/s|MiB/s)\b|#+ of ### pulls").expect("a pattern"));

/// Whether all ages and waits of a screen have two digits.
pub(crate) fn is_settled(rows: &[String]) -> bool {
    !rows.iter().any(|row| UNSETTLED.is_match(row))
}

/// A screen with placeholders.
pub(crate) fn with_placeholders(rows: &[String]) -> String {
    let text = rows.join("\n");
    let text = REPLACED_PATTERNS
        .iter()
        .fold(text, |text, (pattern, sign)| pattern.replace_all(&text, |found: &Captures<'_>| masked(&found[0], *sign)).into_owned());
    // The number of digits before and after a decimal point differs from run to run; such figures are in no column.
    FIGURES.replace_all(&text, |found: &Captures<'_>| in_short(&found[0])).into_owned()
}

/// Replaces digits by the sign, for `x` also hexadecimal letters; in an address only the port.
fn masked(text: &str, sign: char) -> String {
    let (kept, rest) = text.split_at(if sign == 'p' { ADDRESS.len() } else { 0 });
    let is_replaced = |character: char| character.is_ascii_digit() || (sign == 'x' && character.is_ascii_hexdigit());
    format!("{kept}{}", rest.replace(is_replaced, &sign.to_string()))
}

/// Keeps `##s`; shortens the digits of `#.#s`, `### ms` and the like to one sign.
fn in_short(figure: &str) -> String {
    let is_age = figure == "##s";
    let unit = figure.trim_start_matches(['#', '.']);
    if is_age { figure.to_owned() } else { format!("#{unit}") }
}

/// The continuation of a line of text is indented by at least this, which is more than any line itself.
const GOES_ON: &str = "    ";
static DURATIONS: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"(#+h)?(#+m)?#+[ms]\b").expect("a pattern"));
/// Events that may or may not have come when events are listed: those of a budget, of refusals and of waits.
static OF_CHANCE: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"  (RateLowered|RateRaised|BackOff|Throttled)  ").expect("a pattern"));

/// Joins folded lines of text, with placeholders: each duration of any length is one sign.
pub(crate) fn lines_of_text(rows: &[String]) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for row in rows {
        match (row.strip_prefix(GOES_ON), lines.last_mut()) {
            (Some(more), Some(line)) => {
                line.push(' ');
                line.push_str(more.trim_start());
            }
            _ => lines.push(row.clone()),
        }
    }
    with_placeholders(&lines).lines().map(|line| DURATIONS.replace_all(line, "#s").into_owned()).collect()
}

/// The column LAST SEEN of an event, whose width varies with the placeholder of its age.
static LAST_SEEN: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"^#s( \(x\d+ over #s\))? +").expect("a pattern"));

/// Each event once, in the order of nodes, without the events that may be missing.
pub(crate) fn events(lines: Vec<String>) -> Vec<String> {
    let lines = lines.into_iter().filter(|line| !OF_CHANCE.is_match(line));
    let mut lines: Vec<String> = lines.map(|line| LAST_SEEN.replace(&line, format!("{:<20}", "#s")).into_owned()).collect();
    let node = |line: &String| ["  n1  ", "  n2  ", "  n3  "].into_iter().position(|node| line.contains(node));
    lines.sort_by_key(|line| (node(line), line.clone()));
    lines.dedup();
    lines
}

/// Folds lines of text for a terminal with this many columns.
pub(crate) fn folded_anew(lines: Vec<String>, columns: u16) -> String {
    let width = usize::from(columns) - 1;
    let fold = |line: String| {
        let set_in = line.len() - line.trim_start().len() + GOES_ON.len();
        let mut rows = vec![String::new()];
        for word in line.split_inclusive(' ') {
            let last = rows.last_mut().expect("there is one");
            if !last.trim().is_empty() && last.len() + word.trim_end().len() > width {
                rows.push(format!("{:set_in$}{word}", ""));
            } else {
                last.push_str(word);
            }
        }
        rows.iter().map(|row| row.trim_end().to_owned()).collect::<Vec<_>>().join("\n")
    };
    lines.into_iter().map(fold).collect::<Vec<_>>().join("\n")
}

#[test]
fn varying_values_are_replaced_by_placeholders_of_equal_width() {
    let rows = |text: &str| vec![text.to_owned()];
    for (text, shown) in [
        ("7f3a  127.0.0.1:43210  503 (n1)  42s  in 13s", "xxxx  127.0.0.1:ppppp  503 (n1)  ##s  in ##s"),
        ("2026-01-31T12:00:00.123Z  n1 got 503 at 12:00:03Z", "####-##-##T##:##:##.###Z  n1 got 503 at ##:##:##Z"),
        ("key 316e2d029ab1c464307b9b74a4007f6a (trace 4bf92f35...)", "key xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx (trace xxxxxxxx...)"),
        ("booted as 70c1f574-3f1e-4e40-8d4c-5707dc852db9", "booted as xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx"),
        ("127.0.0.1:...5/shop/web", "127.0.0.1:...#/shop/web"),
        ("answers in 12 ms, for 5.3 s, took 1.25s", "answers in # ms, for # s, took #s"),
        ("1 of 3 there, 4.3 KiB of 4.3 KiB, 361 B/s, 1.2 KiB/s", "1 of 3 there, 4.3 KiB of 4.3 KiB, # B/s, # KiB/s"),
        ("none   10/s  200/s", "none   ##/s  200/s"),
        ("20 of 200 pulls a second, rising as pulls are served", "# of ### pulls a second, rising as pulls are served"),
        ("3 nodes wait for 1 image", "3 nodes wait for 1 image"),
    ] {
        assert_eq!(with_placeholders(&rows(text)), shown);
    }
    for (text, settled) in
        [("42s  in 13s", true), ("took 16ms", true), ("9s", false), ("100s", false), ("2m5s", false), ("due", false), ("now by n1", false)]
    {
        assert_eq!(is_settled(&rows(text)), settled, "{text}");
    }
}

#[test]
fn text_is_folded_anew_whatever_the_length_of_its_durations() {
    let rows = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    for text in ["  since: 1m38s ago, the\n      last 12.3 s ago", "  since: 9s ago, the last 2.0 s ago"] {
        assert_eq!(folded_anew(lines_of_text(&rows(text)), 24), "  since: #s ago, the\n      last # s ago");
    }
    let lines =
        ["a  n2  two", "#s  n1  one", "#s (x3 over #s)  n1  one", "LAST SEEN", "a  n2  two", "a  RateLowered  n1  x", "a  BackOff  n3  x"]
            .map(str::to_owned)
            .to_vec();
    assert_eq!(events(lines), ["LAST SEEN", "#s                  n1  one", "a  n2  two"]);
}
