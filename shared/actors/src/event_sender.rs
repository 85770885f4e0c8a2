//! Records what happens to a service as events of its node.

use std::time::Duration;

use clock::Random;
use contract::messages::event_recorder::RecordEvent;
use contract::{Envelope, EventReason, MessageId, Meta, NodeName, PullEvent, TraceContext};
use futures::FutureExt as _;
use futures::future::LocalBoxFuture;

use crate::sender::Sender;

/// How long the recorder may take before an event is given up.
const RECORD_LIMIT: Duration = Duration::from_secs(5);

/// Sends events to the recorder of a node.
#[derive(Debug)]
pub struct EventSender {
    node: NodeName,
    record: Sender<RecordEvent>,
    random: Random,
}

impl EventSender {
    /// Sends events of `node`.
    #[must_use]
    pub fn new(node: NodeName, record: Sender<RecordEvent>) -> Self {
        Self { node, record, random: Random::from_system() }
    }

    /// Records the event that `fill` makes of an empty one, within a span; without a span, in a trace of its own. The future ends when the
    /// recorder has answered. A failure is only logged.
    pub fn record(
        &mut self,
        within: Option<TraceContext>,
        time_ms: u64,
        reason: EventReason,
        fill: impl FnOnce(PullEvent) -> PullEvent,
    ) -> LocalBoxFuture<'static, ()> {
        let within = within.unwrap_or_else(|| TraceContext::fresh(&mut self.random));
        let meta = Meta::within(within, &mut self.random);
        let id = MessageId::random(&mut self.random);
        let event = fill(PullEvent::new(id, time_ms, self.node.clone(), reason, String::new(), meta.trace));
        let recorded = self.record.call(Envelope { meta, body: RecordEvent { event } }, RECORD_LIMIT);
        let logged = recorded.map(|recorded| {
            if let Err(error) = recorded {
                tracing::warn!(%error, "an event was not recorded");
            }
        });
        logged.boxed_local()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;
    use std::sync::Arc;

    use actix::{Actor, Context, Handler, MessageResult};
    use bus::memory::MemoryBus;
    use clock::Clock;
    use contract::messages::event_recorder::EventRecorded;
    use contract::subject::Fleet;

    use super::*;
    use crate::{Ask, Delivery, Wiring};

    /// An event recorder that keeps what it receives.
    struct Recorder(Rc<RefCell<Vec<Envelope<RecordEvent>>>>);

    impl Actor for Recorder {
        type Context = Context<Self>;
    }

    impl Handler<Ask<RecordEvent>> for Recorder {
        type Result = MessageResult<Ask<RecordEvent>>;

        fn handle(&mut self, Ask(record): Ask<RecordEvent>, _: &mut Context<Self>) -> Self::Result {
            self.0.borrow_mut().push(record);
            MessageResult(Ok(EventRecorded {}))
        }
    }

    #[actix::test]
    async fn event_is_recorded_within_its_span_or_in_a_trace_of_its_own() {
        let (received, node): (_, NodeName) = (Rc::new(RefCell::new(Vec::new())), "n1".parse().expect("a name"));
        let bus = Arc::new(MemoryBus::new(Clock::host()));
        let wiring = Wiring { bus, fleet: Fleet::default(), node: node.clone(), delivery: Delivery::Local };
        let mut events = EventSender::new(node, Sender::local(wiring, Recorder(Rc::clone(&received)).start().recipient()));
        let span = TraceContext::root(&mut Random::seeded(1));
        for within in [Some(span), None] {
            events.record(within, 7, EventReason::SharingPaused, |event| PullEvent { message: "paused".to_owned(), ..event }).await;
        }
        let received = received.borrow();
        for Envelope { meta, body: RecordEvent { event } } in received.iter() {
            assert_eq!((event.reason, event.message.as_str(), event.time_ms), (EventReason::SharingPaused, "paused", 7));
            assert!(event.trace == meta.trace && event.trace.has_span() && event.trace.span_id != span.span_id, "{event:?}");
        }
        let is_in_trace: Vec<bool> = received.iter().map(|record| record.meta.trace.trace_id == span.trace_id).collect();
        assert_eq!(is_in_trace, [true, false]);
    }
}
