//! Messages: a subject, headers and a payload.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::messaging::DEADLINE_HEADER;

/// The most bytes that headers and payload of one message may have together, on every adapter: the default `max_payload` of
/// nats-server, which counts both.
pub const MAX_PAYLOAD_BYTES: usize = 1024 * 1024;

/// Header lines of a message. Names are case-sensitive, as on NATS; ours are in lower case. Clones share them, because the memory adapter
/// gives one message to each of a thousand subscribers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers(Arc<Vec<Line>>);

/// Name and value. Most names are constants, and so are some values.
type Line = (Cow<'static, str>, Cow<'static, str>);

/// Capacity for the headers of a usual message of ours and the deadline of a request.
const USUAL_LINES: usize = 6;

impl Headers {
    /// No headers.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets one header, replacing its previous value.
    pub fn set(&mut self, name: impl Into<Cow<'static, str>>, value: impl Into<Cow<'static, str>>) {
        let (name, lines) = (name.into(), Arc::make_mut(&mut self.0));
        match lines.binary_search_by(|(known, _)| known.cmp(&name)) {
            Ok(place) => lines[place].1 = value.into(),
            Err(place) => {
                if lines.is_empty() {
                    lines.reserve(USUAL_LINES);
                }
                lines.insert(place, (name, value.into()));
            }
        }
    }

    /// The value of a header; none if it is not set.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| &**value)
    }

    /// All headers in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (&**name, &**value))
    }

    /// The encoded bytes of the header block: a version line, `name: value` lines, an empty line.
    fn wire_bytes(&self) -> usize {
        if self.0.is_empty() {
            return 0;
        }
        let lines: usize = self.0.iter().map(|(name, value)| name.len() + value.len() + ": \r\n".len()).sum();
        "NATS/1.0\r\n".len() + lines + "\r\n".len()
    }

    /// Whether there are no headers.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<N: Into<Cow<'static, str>>, V: Into<Cow<'static, str>>> FromIterator<(N, V)> for Headers {
    fn from_iter<T: IntoIterator<Item = (N, V)>>(lines: T) -> Self {
        let mut headers = Self::new();
        lines.into_iter().for_each(|(name, value)| headers.set(name, value));
        headers
    }
}

/// One message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// The subject that it is sent to.
    pub subject: String,
    /// The subject on which answers are awaited, if any are. It is set by `request`, or by a sender that publishes a question to many and
    /// subscribes to the answers; the receiver answers on it.
    pub reply_to: Option<String>,
    /// Header lines.
    pub headers: Headers,
    /// The body.
    pub payload: Bytes,
}

impl Message {
    /// A message without headers.
    #[must_use]
    pub fn new(subject: impl Into<String>, payload: impl Into<Bytes>) -> Self {
        Self { subject: subject.into(), reply_to: None, headers: Headers::new(), payload: payload.into() }
    }

    /// The encoded bytes of headers and payload.
    #[must_use]
    pub fn wire_bytes(&self) -> usize {
        self.headers.wire_bytes() + self.payload.len()
    }

    /// How long the caller of this request was ready to wait when it was sent; none if it is not a request.
    #[must_use]
    pub fn deadline(&self) -> Option<Duration> {
        self.headers.get(DEADLINE_HEADER)?.parse().ok().map(Duration::from_millis)
    }

    /// The same message with these headers.
    #[must_use]
    pub fn with_headers(mut self, headers: Headers) -> Self {
        self.headers = headers;
        self
    }
}
