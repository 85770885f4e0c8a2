//! Records what happens to an agent as events of its node.

use std::time::Duration;

use actix::Addr;
use actors::Ask;
use clock::{Clock, Random};
use contract::messages::event_recorder::RecordEvent;
use contract::{Envelope, EventDetails, EventReason, MessageId, Meta, NodeName, PullEvent};
use event_recorder::EventRecorder;

use super::identity::Identity;

/// Sends events to the node's own recorder.
#[derive(Clone)]
pub(super) struct AgentEvents {
    node: NodeName,
    recorder: Addr<EventRecorder>,
    clock: Clock,
    started: Duration,
}

impl AgentEvents {
    pub(super) fn new(identity: &Identity, recorder: Addr<EventRecorder>, clock: Clock) -> Self {
        Self { node: identity.node.clone(), recorder, clock, started: identity.started.monotonic }
    }

    /// How long the agent has run.
    pub(super) fn age(&self) -> Duration {
        self.clock.now().monotonic.saturating_sub(self.started)
    }

    /// Records the event in a new trace, without waiting for the result.
    pub(super) fn record(&self, reason: EventReason, message: String, cause: Option<&str>, lasted: Option<Duration>) {
        let mut random = Random::from_system();
        let fresh = Meta::root(&mut random);
        let meta = Meta { trace: fresh.trace.child(&mut random), ..fresh };
        let lasted_ms = lasted.map(|lasted| u64::try_from(lasted.as_millis()).unwrap_or(u64::MAX));
        let details = EventDetails { cause: cause.map(str::to_owned), lasted_ms, ..EventDetails::default() };
        let (id, time_ms) = (MessageId::random(&mut random), self.clock.now().wall_ms());
        let blank = PullEvent::new(id, time_ms, self.node.clone(), reason, message, meta.trace);
        let event = PullEvent { details: (details != EventDetails::default()).then_some(details), ..blank };
        if self.recorder.try_send(Ask(Envelope { meta, body: RecordEvent { event } })).is_err() {
            tracing::warn!(reason = reason.as_str(), "an event of the agent was not recorded: the event recorder's mailbox is full");
        }
    }
}
