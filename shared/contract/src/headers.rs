//! The headers that services and their senders set and read. Names are case-sensitive on NATS. What the bus alone sets and reads (how long
//! a caller waits, whether it answers probes) is spelled in `bus`.

/// W3C trace context of the sender.
pub const TRACEPARENT: &str = "traceparent";
/// W3C trace state, passed on as it came.
pub const TRACESTATE: &str = "tracestate";
/// W3C baggage, passed on as it came.
pub const BAGGAGE: &str = "baggage";
/// What the payload is.
pub const CONTENT_TYPE: &str = "Content-Type";
/// The major version of the message.
pub const VERSION: &str = "fleetpull-version";
/// The id of the message; the same for a message that is sent again.
pub const MESSAGE_ID: &str = "fleetpull-message-id";
/// Set on an answer that is a refusal: the words (NATS services API).
pub const SERVICE_ERROR: &str = "Nats-Service-Error";
/// Set on an answer that is a refusal: the code (NATS services API).
pub const SERVICE_ERROR_CODE: &str = "Nats-Service-Error-Code";

/// The content type of messages between services.
pub const MESSAGE_PACK: &str = "application/msgpack";
/// The content type of events.
pub const CLOUD_EVENT_JSON: &str = "application/cloudevents+json";
/// The id by which a stream of NATS stores a message once within its window, however it was published.
pub const STREAM_MESSAGE_ID: &str = "Nats-Msg-Id";
/// Of a stored event: `<incarnation>/<number>`, its place among the events of its node.
pub const EVENT_SEQUENCE: &str = "fleetpull-event-sequence";
