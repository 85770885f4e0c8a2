//! The fields of an event that a report reads.

use std::time::UNIX_EPOCH;

use contract::EventReason;
use serde_json::Value;

/// An event of the stream. Absent fields are None.
#[derive(Clone, Debug)]
pub(super) struct EventFields {
    pub(super) reason: EventReason,
    /// The time in milliseconds since 1970-01-01. For repeated events the last.
    pub(super) at_ms: u64,
    /// The time of the first of repeated events, in milliseconds since 1970-01-01.
    pub(super) first_ms: u64,
    /// How often the event happened.
    pub(super) count: u64,
    pub(super) node: String,
    pub(super) pod: Option<String>,
    pub(super) image: Option<String>,
    pub(super) registry: Option<String>,
    pub(super) class: Option<String>,
    pub(super) cause: Option<String>,
    pub(super) entry: Option<String>,
    pub(super) attempt: Option<String>,
    pub(super) duration_ms: Option<u64>,
    pub(super) waiting_ms: Option<u64>,
    pub(super) next_attempt_ms: Option<u64>,
    pub(super) size_bytes: Option<u64>,
    pub(super) reporters: Option<u64>,
}

impl EventFields {
    /// Reads a CloudEvent. None if it is no event of an agent, or if its reason is unknown.
    pub(super) fn of(event: &Value) -> Option<Self> {
        let data = &event["data"];
        let text = |name: &str| data[name].as_str().map(str::to_owned);
        let at_ms = milliseconds(&event["time"])?;
        let first_ms = milliseconds(&data["first_at"]).unwrap_or(at_ms).min(at_ms);
        Some(Self {
            reason: data["reason"].as_str()?.parse().ok()?,
            at_ms,
            first_ms,
            count: data["count"].as_u64().unwrap_or(1).max(1),
            node: text("node")?,
            pod: text("pod"),
            image: text("image"),
            registry: text("registry"),
            class: text("class"),
            cause: text("cause"),
            entry: text("entry_id"),
            attempt: text("attempt"),
            duration_ms: data["duration_ms"].as_u64(),
            waiting_ms: data["waiting_ms"].as_u64(),
            next_attempt_ms: data["next_attempt_ms"].as_u64(),
            size_bytes: data["size_bytes"].as_u64(),
            reporters: data["reporters"].as_u64(),
        })
    }

    /// The times of the repeats, assumed to be evenly spread, each with the number of repeats that it stands for. At most [`TIMES_MOST`].
    pub(super) fn times(&self) -> impl Iterator<Item = (u64, u64)> {
        let (first, count, span) = (self.first_ms, self.count, self.at_ms - self.first_ms);
        let times = count.min(TIMES_MOST);
        (0..times).map(move |index| {
            let part = u128::from(span) * u128::from(index) / u128::from((times - 1).max(1));
            let stands_for = count / times + u64::from(index < count % times);
            (if times == 1 { first + span } else { first + u64::try_from(part).unwrap_or(span) }, stands_for)
        })
    }
}

/// The most times that stand for the repeats of an event.
const TIMES_MOST: u64 = 1_000;

fn milliseconds(time: &Value) -> Option<u64> {
    let time = humantime::parse_rfc3339(time.as_str()?).ok()?;
    u64::try_from(time.duration_since(UNIX_EPOCH).ok()?.as_millis()).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn repeats_of_an_event_are_spread_evenly_over_its_time() {
        let of = |count: Value, first_at: Value| {
            let event = json!({ "time": "1970-01-01T00:00:10Z",
                "data": { "reason": "Failed", "node": "n1", "count": count, "first_at": first_at } });
            EventFields::of(&event).expect("an event").times().collect::<Vec<_>>()
        };
        assert_eq!(of(Value::Null, Value::Null), [(10_000, 1)]);
        assert_eq!(of(1.into(), "1970-01-01T00:00:04Z".into()), [(10_000, 1)]);
        assert_eq!(of(3.into(), "1970-01-01T00:00:04Z".into()), [(4_000, 1), (7_000, 1), (10_000, 1)]);
        assert_eq!(of(2.into(), "1970-01-01T00:01:00Z".into()), [(10_000, 1), (10_000, 1)], "it began after its end");
        let many = of(2_500.into(), "1970-01-01T00:00:00Z".into());
        assert_eq!((many.len(), many.iter().map(|(_, times)| times).sum::<u64>()), (1_000, 2_500));
    }

    #[test]
    fn unreadable_event_is_skipped() {
        let table = [
            json!(null),
            json!({ "time": "today", "data": { "reason": "Failed", "node": "n1" } }),
            json!({ "time": "1970-01-01T00:00:10Z", "data": { "reason": "Failed", "node": 7 } }),
            json!({ "time": "1970-01-01T00:00:10Z", "data": { "reason": "OfTomorrow", "node": "n1" } }),
        ];
        assert!(table.iter().all(|event| EventFields::of(event).is_none()));
    }
}
