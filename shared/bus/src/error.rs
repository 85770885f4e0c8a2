//! Errors of the bus.

use std::time::Duration;

/// An error of the bus.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BusError {
    /// Nobody subscribes to that subject.
    #[error("nobody answers on {subject}")]
    NoResponders {
        /// The subject of the request.
        subject: String,
    },
    /// No answer came within the time-out.
    #[error("no answer on {subject} within {timeout:?}")]
    TimedOut {
        /// The subject of the request.
        subject: String,
        /// The time-out.
        timeout: Duration,
    },
    /// The server does not let this login publish there.
    #[error(
        "this login may not publish to {subject}: allow it in the server's permissions (subjects of agents: `$JS.API.>`, `$KV.>` and the fleet's own)"
    )]
    Forbidden {
        /// The subject of the message.
        subject: String,
    },
    /// Headers and payload together are larger than [`crate::MAX_PAYLOAD_BYTES`], or than the server allows.
    #[error("a message of {bytes} bytes for {subject} is over the limit of {limit} bytes")]
    TooLarge {
        /// The subject of the message.
        subject: String,
        /// Its size.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The subject is not valid: empty tokens, spaces, control characters, misplaced wildcards.
    #[error("{subject:?} is not a valid subject")]
    BadSubject {
        /// The subject as given.
        subject: String,
    },
    /// The header cannot be sent: the name is empty, not printable or `traceparent` in capitals, or the value holds a line break.
    #[error("the header {name:?} cannot be sent: names are printable ASCII without colons, traceparent is lower case, values are one line")]
    BadHeader {
        /// The name as given.
        name: String,
    },
    /// The server cannot be reached now.
    #[error("the bus is not connected: {reason}")]
    Disconnected {
        /// The reason in words.
        reason: String,
    },
    /// The bus was drained.
    #[error("the bus is closed")]
    Closed,
    /// The server does not support it: no JetStream, or too old.
    #[error("the server cannot do this: {reason}")]
    Unsupported {
        /// The reason, in words that say what to do.
        reason: String,
    },
    /// Any other error that the server reported.
    #[error("the bus failed: {reason}")]
    Other {
        /// The error in words.
        reason: String,
    },
}
