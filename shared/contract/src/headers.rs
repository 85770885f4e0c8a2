//! The headers that services and their senders set and read. Names are case-sensitive on NATS. Headers that only the bus sets and reads
//! (how long a caller waits, whether it answers probes) are defined in `bus`.

/// W3C trace context of the sender.
pub const TRACEPARENT: &str = "traceparent";
/// W3C trace state, passed on unchanged.
pub const TRACESTATE: &str = "tracestate";
/// W3C baggage, passed on unchanged.
pub const BAGGAGE: &str = "baggage";
/// The content type of the payload.
pub const CONTENT_TYPE: &str = "Content-Type";
/// The major version of the message.
pub const VERSION: &str = "fleetpull-version";
/// The id of the message; a repeated message has the same one.
pub const MESSAGE_ID: &str = "fleetpull-message-id";
/// Set on a refusal: the reason (NATS services API).
pub const SERVICE_ERROR: &str = "Nats-Service-Error";
/// Set on a refusal: the code (NATS services API).
pub const SERVICE_ERROR_CODE: &str = "Nats-Service-Error-Code";

/// The content type of messages between services.
pub const MESSAGE_PACK: &str = "application/msgpack";
/// The content type of events.
pub const CLOUD_EVENT_JSON: &str = "application/cloudevents+json";
/// The id by which a stream of NATS stores a message once within its window.
pub const STREAM_MESSAGE_ID: &str = "Nats-Msg-Id";
/// In a stored event: `<incarnation>/<number>`, its place among the events of its node.
pub const EVENT_SEQUENCE: &str = "fleetpull-event-sequence";
