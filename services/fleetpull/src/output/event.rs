//! An event as a line of text.

use contract::EventType;
use serde_json::Value;

use super::layout::folded;
use super::table::{Tone, coloured};
use super::units;

/// The length of an RFC 3339 time without its fraction and zone: `2026-01-31T12:00:00`.
const SECONDS_LENGTH: usize = 19;

/// A CloudEvent in one line: time, type, reason, node, pod, message.
#[must_use]
pub fn text(event: &Value) -> String {
    let word = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let data = &event["data"];
    let pod = data["pod"].as_str().map(|pod| format!("  {pod}")).unwrap_or_default();
    let message = super::one_line(&word(&data["message"]));
    let of_trace = |traceparent: &str| traceparent.split('-').nth(1).and_then(super::trace_link::of);
    let link = event["traceparent"].as_str().and_then(of_trace).map(|link| format!("  {link}")).unwrap_or_default();
    let time = to_milliseconds(&word(&event["time"]));
    let why = Why::of(data).in_words();
    format!("{time}  {:<7}  {:<17}  {}{pod}  {message}{why}{link}", word(&data["type"]), word(&data["reason"]), word(&data["node"]))
}

/// Why something failed or waits, as far as an event says.
struct Why {
    class: Option<String>,
    finder: Option<String>,
    next_attempt_ms: Option<u64>,
}

impl Why {
    fn of(data: &Value) -> Self {
        let word = |name: &str| data[name].as_str().map(super::one_line);
        Self { class: word("class"), finder: word("learned_by"), next_attempt_ms: data["next_attempt_ms"].as_u64() }
    }

    /// The text to append to a message.
    fn in_words(&self) -> String {
        let finder = self.finder.as_ref().map(|node| format!("found by {node}"));
        let next = self.next_attempt_ms.map(|left_ms| format!("next attempt {} later", units::age(left_ms)));
        let parts: Vec<String> = self.class.clone().into_iter().chain(finder).chain(next).collect();
        if parts.is_empty() { String::new() } else { format!("  ({})", parts.join(", ")) }
    }
}

/// The CloudEvent as JSON, with the link to its trace if that is configured.
#[must_use]
pub fn json(event: &Value) -> Value {
    let of_trace = |traceparent: &str| traceparent.split('-').nth(1).and_then(super::trace_link::of);
    let Some(link) = event["traceparent"].as_str().and_then(of_trace) else { return event.clone() };
    let mut event = event.clone();
    event["trace_link"] = link.into();
    event
}

/// A list of events: a header before the first, then a row each, wrapped to the width of the terminal. Column widths are fixed for usual
/// values, because the list may be endless.
pub struct Rows {
    has_header: bool,
    has_colour: bool,
    width: Option<usize>,
    /// True if each fact has its own column. Otherwise the message contains these facts.
    is_in_full: bool,
}

/// The width of a row with all columns, without its message.
const IN_FULL: usize = 148;
/// The type of events about problems.
const WARNING: &str = EventType::Warning.as_str();

impl Rows {
    /// Starts a list for a terminal with `width` columns, if any.
    #[must_use]
    pub fn begin(with_header: bool, width: Option<usize>, has_colour: bool) -> Self {
        Self { has_header: !with_header, has_colour, width, is_in_full: width.is_none_or(|width| width > IN_FULL) }
    }

    /// The lines for a CloudEvent, with the header if it is the first. Ages are counted from `now_ms`, in milliseconds since 1970-01-01.
    pub fn lines(&mut self, event: &Value, now_ms: u64) -> Vec<String> {
        let header = (!self.has_header).then(|| {
            let titles = ["LAST SEEN", "TYPE", "REASON", "NODE", "IMAGE", "CAUSE", "FOUND BY", "NEXT ATTEMPT", "MESSAGE"];
            self.row(titles.map(str::to_owned))
        });
        self.has_header = true;
        let row = self.row(self.cells(event, now_ms));
        let fitted = |line: String| self.width.map_or_else(|| vec![line.clone()], |width| folded(&line, width));
        let mut lines: Vec<String> = header.into_iter().chain([row]).flat_map(fitted).collect();
        if self.has_colour && event["data"]["type"] == WARNING {
            let column = format!("  {WARNING}  ");
            if let Some(line) = lines.iter_mut().find(|line| line.contains(&column)) {
                *line = line.replacen(&column, &format!("  {}  ", coloured(WARNING, Tone::Warning)), 1);
            }
        }
        lines
    }

    fn cells(&self, event: &Value, now_ms: u64) -> [String; 9] {
        let data = &event["data"];
        let (seen, why) = (last_seen(event, now_ms), Why::of(data));
        let more = if self.is_in_full { String::new() } else { why.in_words() };
        let next = next_attempt(event, why.next_attempt_ms, now_ms);
        let [kind, reason, node, image, message] =
            ["type", "reason", "node", "image", "message"].map(|name| super::one_line(data[name].as_str().unwrap_or("-")));
        let [cause, finder, next] = [why.class, why.finder, next].map(|word| word.unwrap_or_else(|| "-".to_owned()));
        [seen, kind, reason, node, image, cause, finder, next, format!("{message}{more}")]
    }

    fn row(&self, cells: [String; 9]) -> String {
        let [seen, kind, reason, node, image, cause, finder, next, message] = cells;
        let begin = format!("{seen:<18}  {kind:<7}  {reason:<17}  {node:<12}");
        if self.is_in_full {
            format!("{begin}  {image:<32}  {cause:<20}  {finder:<12}  {next:<12}  {message}")
        } else {
            format!("{begin}  {message}")
        }
    }
}

/// When the next attempt is due. None if that is past, or if the event does not say.
fn next_attempt(event: &Value, left_ms: Option<u64>, now_ms: u64) -> Option<String> {
    let passed = age(&event["time"], now_ms)?;
    left_ms.filter(|left_ms| *left_ms > passed).map(|left_ms| units::due(Some(left_ms - passed)))
}

/// How long ago a time was, in milliseconds.
fn age(time: &Value, now_ms: u64) -> Option<u64> {
    let at = time.as_str().and_then(|time| humantime::parse_rfc3339(time).ok())?;
    let at = at.duration_since(std::time::UNIX_EPOCH).ok()?.as_millis();
    Some(u64::try_from(u128::from(now_ms).saturating_sub(at)).unwrap_or(u64::MAX))
}

/// How long ago the event happened, and how often since when, in kubectl's form: `4m (x7 over 31m)`.
fn last_seen(event: &Value, now_ms: u64) -> String {
    let Some(last) = age(&event["time"], now_ms) else { return "-".to_owned() };
    match (event["data"]["count"].as_u64(), age(&event["data"]["first_at"], now_ms)) {
        (Some(count), Some(first)) => format!("{} (x{count} over {})", units::age(last), units::age(first)),
        _ => units::age(last),
    }
}

/// The time with three digits after the second, so that columns line up. Other text is not changed.
fn to_milliseconds(time: &str) -> String {
    let Some((seconds, rest)) = time.split_at_checked(SECONDS_LENGTH) else { return time.to_owned() };
    match rest.strip_suffix('Z') {
        Some(fraction) => format!("{seconds}.{:0<3.3}Z", fraction.trim_start_matches('.')),
        None => time.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_has_one_header_and_shows_repeats_as_kubectl_does() {
        let event = |first_at: Value, count: Value| {
            serde_json::json!({ "time": "2026-11-21T13:40:00Z", "data": { "type": "Warning", "reason": "Failed", "node": "n1",
                "image": "app:1", "message": "404\u{1b}[2J", "first_at": first_at, "count": count } })
        };
        let at = |time: &str| {
            u64::try_from(humantime::parse_rfc3339(time).expect("a time").duration_since(std::time::UNIX_EPOCH).expect("after").as_millis())
        };
        let now_ms = at("2026-11-21T13:44:05Z").expect("fits");
        let mut rows = Rows::begin(true, None, false);
        let first = rows.lines(&event("2026-11-21T13:09:00Z".into(), 7.into()), now_ms);
        assert!(first[0].starts_with("LAST SEEN") && first[0].ends_with("MESSAGE"), "{first:?}");
        assert!(first[1].starts_with("4m5s (x7 over 35m)  Warning  Failed") && !first[1].contains('\u{1b}'), "{first:?}");
        let mut held = event(Value::Null, Value::Null);
        (held["data"]["class"], held["data"]["learned_by"], held["data"]["next_attempt_ms"]) =
            ("not_found".into(), "n2\n".into(), 286_000.into());
        let lines = rows.lines(&held, now_ms);
        assert!(lines[0].contains("app:1") && lines[0].contains("not_found             n2            in 41s        404"), "{lines:?}");
        assert!(text(&held).ends_with("404 [2J  (not_found, found by n2 , next attempt 4m46s later)"), "{}", text(&held));
        let second = rows.lines(&event(Value::Null, Value::Null), now_ms);
        assert_eq!(second.len(), 1);
        assert!(second[0].starts_with("4m5s  ") && second[0].contains("app:1"), "{second:?}");
        let mut narrow = Rows::begin(true, Some(79), true);
        let lines = narrow.lines(&held, now_ms);
        assert_eq!(lines[0], "LAST SEEN           TYPE     REASON             NODE          MESSAGE");
        assert!(
            lines[1].starts_with("4m5s                \u{1b}[33mWarning\u{1b}[0m  Failed             n1            404 [2J"),
            "{lines:?}"
        );
        assert_eq!(lines[2..], ["    (not_found, found by n2 , next attempt 4m46s later)"]);
        let mut early = Rows::begin(false, None, false);
        assert!(early.lines(&held, 0)[0].starts_with("0s  "), "a clock that goes back");
    }

    #[test]
    fn event_time_has_milliseconds() {
        let table = [
            ("2026-11-21T13:40:04.63Z", "2026-11-21T13:40:04.630Z"),
            ("2026-11-21T13:40:04Z", "2026-11-21T13:40:04.000Z"),
            ("2026-11-21T13:40:04.123456Z", "2026-11-21T13:40:04.123Z"),
            ("2026-11-21T13:40:04+01:00", "2026-11-21T13:40:04+01:00"),
            ("-", "-"),
        ];
        for (time, shown) in table {
            assert_eq!(to_milliseconds(time), shown);
        }
    }
}
