//! A stored message, as the server returns it.

use async_nats::HeaderMap;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::Value;

/// The newest message of a key.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Stored {
    pub(super) revision: u64,
    /// None: a marker.
    pub(super) value: Option<Bytes>,
}

impl Stored {
    /// Reads a message from any server of the stream; none if it has no sequence.
    pub(super) fn of_message(message: async_nats::Message) -> Option<Self> {
        let headers = message.headers.unwrap_or_default();
        let revision = headers.get("Nats-Sequence")?.as_str().parse().ok()?;
        Some(Self { revision, value: (!is_marker(&headers)).then_some(message.payload) })
    }

    /// Reads a message from the stream's leader; none if it cannot be read.
    pub(super) fn of_leader(message: &Value) -> Option<Self> {
        let bytes = |field: &str| STANDARD.decode(message[field].as_str().unwrap_or_default()).ok();
        let (headers, value) = (bytes("hdrs")?, bytes("data")?);
        let headers = String::from_utf8_lossy(&headers);
        let mut lines = headers.lines().filter_map(|line| line.split_once(':')).map(|(name, value)| (name, value.trim()));
        let marker = lines.any(|(name, value)| is_marker_header(name, value));
        Some(Self { revision: message["seq"].as_u64()?, value: (!marker).then(|| value.into()) })
    }
}

/// Whether a message of a bucket is a marker: a deletion or purge by a client, or an expiry by the server.
pub(super) fn is_marker(headers: &HeaderMap) -> bool {
    ["KV-Operation", "Nats-Marker-Reason"].iter().any(|name| headers.get(*name).is_some_and(|value| is_marker_header(name, value.as_str())))
}

fn is_marker_header(header: &str, value: &str) -> bool {
    header == "Nats-Marker-Reason" || header == "KV-Operation" && matches!(value, "DEL" | "PURGE")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn direct_get_returns_value_or_marker() {
        let encoded = |text: &str| STANDARD.encode(text);
        let value = |text: &'static str| Some(Bytes::from_static(text.as_bytes()));
        for (headers, data, expected) in [
            ("", "1", value("1")),
            ("", "", value("")),
            ("NATS/1.0\r\nNats-TTL: 5\r\nKV-Operation: PUT\r\n\r\n", "1", value("1")),
            ("NATS/1.0\r\nKV-Operation: PURGE\r\nNats-Rollup: sub\r\n\r\n", "", None),
            ("NATS/1.0\r\nKV-Operation:DEL\r\n\r\n", "", None),
            ("NATS/1.0\r\nNats-Marker-Reason: MaxAge\r\n\r\n", "", None),
        ] {
            let message = json!({ "seq": 7, "hdrs": encoded(headers), "data": encoded(data) });
            assert_eq!(Stored::of_leader(&message), Some(Stored { revision: 7, value: expected }), "{headers:?}");
        }
        assert_eq!(Stored::of_leader(&json!({ "seq": 7 })), Some(Stored { revision: 7, value: value("") }), "empty fields are left out");
        for bad in [json!(null), json!({ "data": "" }), json!({ "seq": 7, "data": "*" })] {
            assert_eq!(Stored::of_leader(&bad), None, "{bad}");
        }
    }
}
