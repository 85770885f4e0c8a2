//! The whole bus, as an agent uses it.

use std::sync::Arc;

use crate::event_log::EventLog;
use crate::messaging::Messaging;
use crate::shared_state::SharedState;

/// A shared bus of either kind.
pub type BusRef = Arc<dyn Bus>;

/// Messages, state and durable events over one connection.
pub trait Bus: Messaging + SharedState + EventLog {
    /// Sets how many nodes the fleet has. As many may reconnect at the same time as this one, and they spread it. No effect if nothing
    /// connects.
    fn set_fleet_size(&self, _nodes: u64) {}

    /// Leaves the server for this reason, and stays disconnected until called with none: messages are refused, subscriptions are kept. A
    /// bus in this process cannot be left.
    fn set_suspended(&self, _reason: Option<String>) {}
}
