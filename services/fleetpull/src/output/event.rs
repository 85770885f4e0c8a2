//! An event as a line of text.

use serde_json::Value;

/// Of a time of RFC 3339, what stands before the fraction and the zone: `2026-01-31T12:00:00`.
const SECONDS_LENGTH: usize = 19;

/// One line of a CloudEvent: when, type, reason, node, pod, message.
#[must_use]
pub fn text(event: &Value) -> String {
    let word = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let data = &event["data"];
    let pod = data["pod"].as_str().map(|pod| format!("  {pod}")).unwrap_or_default();
    let message = super::one_line(&word(&data["message"]));
    let of_trace = |traceparent: &str| traceparent.split('-').nth(1).and_then(super::trace_link::of);
    let link = event["traceparent"].as_str().and_then(of_trace).map(|link| format!("  {link}")).unwrap_or_default();
    let time = to_milliseconds(&word(&event["time"]));
    format!("{time}  {:<7}  {:<17}  {}{pod}  {message}{link}", word(&data["type"]), word(&data["reason"]), word(&data["node"]))
}

/// The same time with three digits behind the second, so that columns line up. What is no such time stays as it is.
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
    fn times_line_up() {
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
