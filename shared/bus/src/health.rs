//! How a bus is.

use futures::stream::BoxStream;

/// The health of a bus as it changes. It ends with the bus.
pub type HealthChanges = BoxStream<'static, BusHealth>;

/// How a bus is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BusHealth {
    /// All of it works.
    Connected,
    /// Messages flow, but state and streams do not, or not all of them: the reason in words (no JetStream, server too old, no room).
    Degraded {
        /// In words that say what to do.
        reason: String,
        /// Whether it may pass by itself within seconds, as the election of a leader; else somebody has to change something.
        transient: bool,
    },
    /// No server is reached; it is tried again all the time.
    Disconnected {
        /// In words that say what to do.
        reason: String,
    },
}
