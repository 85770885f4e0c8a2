//! The actix shell: a mailbox, the core, and the way to the bus.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use actix::{Actor, Context, Handler, Message, MessageResult, ResponseFuture};
use actors::{Ask, Gravestone, MAILBOX_CAPACITY};
use bus::BusRef;
use contract::CallError;
use contract::messages::event_recorder::{CountEvents, EventCounts, EventRecorded, ListEvents, RecordEvent};
use contract::subject::Fleet;
use tokio::sync::{Notify, mpsc, oneshot};

use crate::core::{EVENT_MAX_BYTES, Journal, text_bytes};
use crate::outbound::{OUTBOX_CAPACITY, Outgoing, Published, Publisher};

/// The actor that keeps and publishes events.
#[derive(Debug)]
pub struct EventRecorder {
    core: Journal,
    outbox: mpsc::Sender<Outgoing>,
    published: Arc<Published>,
    hurry: Arc<Notify>,
    _gravestone: Gravestone,
}

/// Answered when everything recorded before it is published, or given up.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "()")]
pub struct Flush;

impl EventRecorder {
    /// Ready to be started, inside an actix system: the publisher runs beside it.
    #[must_use]
    pub fn new(keep: usize, bus: BusRef, fleet: Fleet, gravestone: Gravestone) -> Self {
        let (outbox, waiting) = mpsc::channel(OUTBOX_CAPACITY);
        let (published, hurry) = (Arc::new(Published::default()), Arc::new(Notify::new()));
        let publisher = Publisher { bus, fleet, counts: Arc::clone(&published), hurry: Arc::clone(&hurry) };
        // Not among the actors' own tasks, which run before a caller on the same thread sees its answer.
        tasks::spawn("event-publisher", publisher.publish_all(waiting));
        Self { core: Journal::keeping(keep), outbox, published, hurry, _gravestone: gravestone }
    }
}

impl Actor for EventRecorder {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Self::Context) {
        context.set_mailbox_capacity(MAILBOX_CAPACITY);
    }
}

impl Handler<Ask<RecordEvent>> for EventRecorder {
    type Result = MessageResult<Ask<RecordEvent>>;

    fn handle(&mut self, Ask(record): Ask<RecordEvent>, _: &mut Self::Context) -> Self::Result {
        let event = record.body.event;
        let bytes = text_bytes(&event);
        if bytes > EVENT_MAX_BYTES {
            let reason = format!("an event with {bytes} bytes of text is too large: at most {EVENT_MAX_BYTES} bytes are kept");
            // Who posts an event does not read the answer.
            tracing::warn!(event = %event.id, reason, "an event was refused");
            return MessageResult(Err(CallError::Refused { reason }));
        }
        let event = Arc::new(event);
        if self.core.record(Arc::clone(&event)) && self.outbox.try_send(Outgoing::Event(event)).is_err() {
            self.published.unpublished.fetch_add(1, Ordering::Relaxed);
        }
        MessageResult(Ok(EventRecorded {}))
    }
}

impl Handler<Ask<ListEvents>> for EventRecorder {
    type Result = MessageResult<Ask<ListEvents>>;

    fn handle(&mut self, Ask(list): Ask<ListEvents>, _: &mut Self::Context) -> Self::Result {
        MessageResult(Ok(self.core.list(&list.body)))
    }
}

impl Handler<Ask<CountEvents>> for EventRecorder {
    type Result = MessageResult<Ask<CountEvents>>;

    fn handle(&mut self, _: Ask<CountEvents>, _: &mut Self::Context) -> Self::Result {
        let (recorded_total, kept) = self.core.counts();
        let published_total = self.published.published.load(Ordering::Relaxed);
        let unpublished_total = self.published.unpublished.load(Ordering::Relaxed);
        MessageResult(Ok(EventCounts { recorded_total, published_total, unpublished_total, kept }))
    }
}

impl Handler<Flush> for EventRecorder {
    type Result = ResponseFuture<()>;

    fn handle(&mut self, _: Flush, _: &mut Self::Context) -> Self::Result {
        let (outbox, hurry) = (self.outbox.clone(), Arc::clone(&self.hurry));
        Box::pin(async move {
            let (done, flushed) = oneshot::channel();
            if outbox.send(Outgoing::Flush(done)).await.is_ok() {
                hurry.notify_one();
                let _ = flushed.await;
            }
        })
    }
}
