//! Why the bus did not do what was asked.

use std::time::Duration;

/// Why the bus did not do what was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BusError {
    /// Nobody subscribes to that subject.
    #[error("nobody answers on {subject}")]
    NoResponders {
        /// The subject asked on.
        subject: String,
    },
    /// No answer within the time given.
    #[error("no answer on {subject} within {timeout:?}")]
    TimedOut {
        /// The subject asked on.
        subject: String,
        /// How long was waited.
        timeout: Duration,
    },
    /// The server does not let this login publish there.
    #[error(
        "this login may not publish to {subject}: allow it in the server's permissions (subjects of agents: `$JS.API.>`, `$KV.>` and the fleet's own)"
    )]
    Forbidden {
        /// Where it was to go.
        subject: String,
    },
    /// Headers and payload together are larger than [`crate::MAX_PAYLOAD_BYTES`], or than the server allows.
    #[error("a message of {bytes} bytes for {subject} is over the limit of {limit} bytes")]
    TooLarge {
        /// Where it was to go.
        subject: String,
        /// Its size.
        bytes: usize,
        /// The most allowed.
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
    /// The server is not reached now.
    #[error("the bus is not connected: {reason}")]
    Disconnected {
        /// In words.
        reason: String,
    },
    /// The bus was drained.
    #[error("the bus is closed")]
    Closed,
    /// The server cannot do it: no JetStream, or too old.
    #[error("the server cannot do this: {reason}")]
    Unsupported {
        /// In words that say what to do.
        reason: String,
    },
    /// Anything else that the server said.
    #[error("the bus failed: {reason}")]
    Other {
        /// In words.
        reason: String,
    },
}
