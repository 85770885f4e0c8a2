//! The health of a bus.

use futures::stream::BoxStream;

/// The changes of a bus's health. The stream ends with the bus.
pub type HealthChanges = BoxStream<'static, BusHealth>;

/// The health of a bus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BusHealth {
    /// Everything works.
    Connected,
    /// Messages flow, but state and streams do not work, or only some of them: no JetStream, server too old, no room.
    Degraded {
        /// The reason, in words that say what to do.
        reason: String,
        /// Whether it may end by itself within seconds, such as the election of a leader; else an operator has to change something.
        transient: bool,
    },
    /// No server is reached; the bus keeps trying.
    Disconnected {
        /// The reason, in words that say what to do.
        reason: String,
    },
}
