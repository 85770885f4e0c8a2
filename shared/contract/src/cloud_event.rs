//! The external form of an event: CloudEvents 1.0, structured JSON.

use serde::Serialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::{FailureClass, NodeName, PullEvent};

/// The CloudEvents version written.
const SPEC_VERSION: &str = "1.0";
/// Bytes of an event in addition to its message; reserved, so that writing does not reallocate.
const ENVELOPE_BYTES: usize = 768;

#[derive(Serialize)]
struct CloudEvent<'a> {
    specversion: &'static str,
    id: String,
    source: String,
    r#type: String,
    // CloudEvents has no empty subject.
    #[serde(skip_serializing_if = "str::is_empty")]
    subject: &'a str,
    time: String,
    datacontenttype: &'static str,
    traceparent: String,
    // The extension "sequence". It is a text, because CloudEvents has no 64-bit number.
    #[serde(skip_serializing_if = "Option::is_none")]
    sequence: Option<String>,
    data: Data<'a>,
}

#[derive(Serialize)]
struct Data<'a> {
    reason: &'a str,
    r#type: &'static str,
    message: &'a str,
    // None if the event is about no image.
    image: Option<&'a str>,
    registry: Option<&'a str>,
    node: &'a str,
    pod: Option<String>,
    duration_ms: Option<u64>,
    waiting_ms: Option<u64>,
    size_bytes: Option<u64>,
    class: Option<FailureClass>,
    attempt: Option<String>,
    next_attempt_ms: Option<u64>,
    // Only in an event that stands for several.
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    first_at: Option<String>,
    // Only if nodes share; other events have their earlier form.
    #[serde(skip_serializing_if = "Option::is_none")]
    learned_by: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    learned_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    learned_trace_id: Option<String>,
    // Equals the attribute `fleetpull.entry.id` of spans.
    #[serde(skip_serializing_if = "Option::is_none")]
    entry_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cause: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lasted_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reporters: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    failures: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pulls_per_second: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pulls_per_second_before: Option<f64>,
}

/// Milliseconds since 1970 as RFC 3339 in UTC.
#[must_use]
pub fn rfc3339(time_ms: u64) -> String {
    OffsetDateTime::from_unix_timestamp_nanos(i128::from(time_ms) * 1_000_000)
        .ok()
        .and_then(|time| time.format(&Rfc3339).ok())
        .unwrap_or_else(|| "1970-01-01T00:00:00Z".to_owned())
}

/// The event as CloudEvents JSON: `type` is `io.fleetpull.image.<reason in lower case>`, `source` `/fleetpull/nodes/<node>`, of a stored
/// event followed by `/<incarnation>`, `subject` the image as asked for, if it is about one.
///
/// # Errors
/// None is known; serialisation of these types cannot fail.
pub fn to_json(event: &PullEvent) -> Result<Vec<u8>, serde_json::Error> {
    let details = event.details.as_ref();
    let rate = |per_1000_s: u64| per_1000_s as f64 / 1_000.0;
    let cloud_event = CloudEvent {
        specversion: SPEC_VERSION,
        id: event.id.to_string(),
        source: source(event),
        r#type: format!("io.fleetpull.image.{}", event.reason.as_str().to_ascii_lowercase()),
        subject: &event.image,
        time: rfc3339(event.time_ms),
        datacontenttype: "application/json",
        traceparent: event.trace.traceparent(),
        sequence: event.sequence.as_ref().map(|sequence| sequence.number.to_string()),
        data: Data {
            reason: event.reason.as_str(),
            r#type: event.reason.event_type().as_str(),
            message: &event.message,
            image: (!event.image.is_empty()).then_some(event.image.as_str()),
            registry: event.registry.as_deref(),
            node: event.node.as_str(),
            pod: event.pod.as_ref().map(ToString::to_string),
            duration_ms: event.duration_ms,
            waiting_ms: event.waiting_ms,
            size_bytes: event.size_bytes,
            class: event.class,
            attempt: event.attempt.map(|attempt| attempt.to_string()),
            next_attempt_ms: event.next_attempt_ms,
            count: event.repeats.map(|repeats| repeats.count),
            first_at: event.repeats.map(|repeats| rfc3339(repeats.first_ms)),
            learned_by: event.learned_by.as_ref().map(NodeName::as_str),
            learned_at: event.learned_ms_ago.map(|ago| rfc3339(event.time_ms.saturating_sub(ago))),
            learned_trace_id: event.learned_trace.map(|trace| trace.trace_id_hex()),
            entry_id: event.entry.as_deref(),
            cause: details.and_then(|details| details.cause.as_deref()),
            lasted_ms: details.and_then(|details| details.lasted_ms),
            reporters: details.and_then(|details| details.reporters),
            failures: details.and_then(|details| details.failures),
            pulls_per_second: details.and_then(|details| details.per_1000_s).map(rate),
            pulls_per_second_before: details.and_then(|details| details.per_1000_s_before).map(rate),
        },
    };
    let mut json = Vec::with_capacity(ENVELOPE_BYTES + event.message.len());
    serde_json::to_writer(&mut json, &cloud_event)?;
    Ok(json)
}

fn source(event: &PullEvent) -> String {
    let node = event.node.as_str();
    match &event.sequence {
        Some(sequence) => format!("/fleetpull/nodes/{node}/{}", sequence.incarnation),
        None => format!("/fleetpull/nodes/{node}"),
    }
}

#[cfg(test)]
mod tests {
    use clock::Random;

    use super::*;
    use crate::{EventDetails, EventReason, EventSequence, MessageId, PodRef, Repeats, TraceContext};

    #[test]
    fn an_event_reads_as_promised() {
        let mut random = Random::seeded(5);
        let trace = TraceContext::root(&mut random);
        let message = "Back-off pulling image \"busybox\"".to_owned();
        let node = "n1".parse().expect("a name");
        let event = PullEvent {
            pod: Some(PodRef { namespace: "shop".to_owned(), name: "web-0".to_owned(), uid: String::new() }),
            image: "busybox".to_owned(),
            registry: Some("docker.io".to_owned()),
            class: Some(FailureClass::NotFound),
            next_attempt_ms: Some(9_000),
            learned_by: Some("n2".parse().expect("a name")),
            learned_ms_ago: Some(1_000),
            learned_trace: Some(TraceContext::root(&mut random)),
            entry: Some("0a".to_owned()),
            details: Some(EventDetails { per_1000_s: Some(2_500), ..EventDetails::default() }),
            repeats: Some(Repeats { count: 3, first_ms: 1_700_000_000_000 }),
            sequence: Some(EventSequence { incarnation: "0a1b".to_owned(), number: 7 }),
            ..PullEvent::new(MessageId::random(&mut random), 1_700_000_000_123, node, EventReason::BackOff, message, trace)
        };
        let json: serde_json::Value = serde_json::from_slice(&to_json(&event).expect("serialises")).expect("is JSON");
        assert_eq!(json["specversion"], "1.0");
        assert_eq!(json["type"], "io.fleetpull.image.backoff");
        assert_eq!(json["source"], "/fleetpull/nodes/n1/0a1b");
        assert_eq!(json["sequence"], "7");
        assert_eq!((&json["data"]["count"], &json["data"]["first_at"]), (&3.into(), &"2023-11-14T22:13:20Z".into()));
        assert_eq!(json["subject"], "busybox");
        assert_eq!(json["time"], "2023-11-14T22:13:20.123Z");
        assert_eq!(json["traceparent"], event.trace.traceparent());
        assert_eq!(json["data"]["reason"], "BackOff");
        assert_eq!(json["data"]["type"], "Normal");
        assert_eq!(json["data"]["pod"], "shop/web-0");
        assert_eq!(json["data"]["class"], "not_found");
        assert_eq!(json["data"]["learned_by"], "n2");
        assert_eq!(json["data"]["learned_at"], "2023-11-14T22:13:19.123Z");
        assert_eq!(json["data"]["learned_trace_id"], event.learned_trace.expect("was given").trace_id_hex());
        assert_eq!(json["data"]["size_bytes"], serde_json::Value::Null);
        assert_eq!((&json["data"]["entry_id"], &json["data"]["pulls_per_second"]), (&"0a".into(), &2.5.into()));
        let paused = PullEvent { image: String::new(), registry: None, reason: EventReason::SharingPaused, sequence: None, ..event };
        let json: serde_json::Value = serde_json::from_slice(&to_json(&paused).expect("serialises")).expect("is JSON");
        assert_eq!((json.get("subject"), &json["type"]), (None, &"io.fleetpull.image.sharingpaused".into()));
        assert_eq!((json.get("sequence"), &json["source"]), (None, &"/fleetpull/nodes/n1".into()));
        assert_eq!((&json["data"]["type"], &json["data"]["image"]), (&"Normal".into(), &serde_json::Value::Null));
    }
}
