//! The actix shell: takes commands, feeds the core, and publishes events.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use actix::{Actor, ActorFutureExt as _, AsyncContext as _, Context, Handler, Message, MessageResult, ResponseFuture, WrapFuture as _};
use actors::{Ask, DeferredReply, MAILBOX_CAPACITY, PanicGuard, deferred_reply};
use bus::BusRef;
use contract::messages::event_recorder::{CountEvents, EventCounts, EventRecorded, ListEvents, RecordEvent};
use contract::subject::Fleet;
use contract::{CallError, PullEvent};
use futures::future::OptionFuture;
use tokio::sync::{Notify, mpsc, oneshot};

use crate::core::{EVENT_MAX_BYTES, Input, Journal, RecorderCounts, page_events, text_bytes};
use crate::durable::{Durability, Durable, Reply};
use crate::outbound::{OUTBOX_CAPACITY, Outgoing, Published, Publisher};

/// The actor that lists, stores and publishes events.
pub struct EventRecorder {
    pub(crate) journal: Journal,
    keep: usize,
    bus: BusRef,
    fleet: Fleet,
    /// None: events are published and not stored.
    pub(crate) durable: Option<Durable>,
    outbox: mpsc::Sender<Outgoing>,
    published: Arc<Published>,
    flush_requested: Arc<Notify>,
    _panic_guard: PanicGuard,
}

/// Answered when every event recorded before it is published and stored, or cannot be.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "()")]
pub struct Flush;

impl EventRecorder {
    /// A recorder that publishes; starts the publisher, so it needs an actix system.
    #[must_use]
    pub fn new(keep: usize, bus: BusRef, fleet: Fleet, panic_guard: PanicGuard) -> Self {
        let (outbox, waiting) = mpsc::channel(OUTBOX_CAPACITY);
        let (published, flush_requested) = (Arc::new(Published::default()), Arc::new(Notify::new()));
        let publisher = Publisher {
            bus: bus.clone(),
            fleet: fleet.clone(),
            counts: Arc::clone(&published),
            flush_requested: Arc::clone(&flush_requested),
        };
        // Not as a task of the actor: those run before a caller on the same thread sees its answer.
        tasks::spawn("event-publisher", publisher.publish_all(waiting));
        Self {
            journal: Journal::keeping(keep),
            keep,
            bus,
            fleet,
            durable: None,
            outbox,
            published,
            flush_requested,
            _panic_guard: panic_guard,
        }
    }

    /// Stores events until the fleet's stream has them. Call it before the actor is started.
    #[must_use]
    pub fn storing(mut self, durability: Durability) -> Self {
        let durable = Durable::new(durability, self.bus.clone(), self.fleet.clone());
        match durable.newest(self.keep) {
            Ok(events) => {
                for event in events {
                    self.journal.record(event);
                }
            }
            Err(error) => tracing::warn!(%error, "events of earlier runs cannot be listed"),
        }
        self.durable = Some(durable);
        self
    }

    /// Publishes an event to the present subscribers.
    pub(crate) fn publish(&self, event: Arc<PullEvent>) {
        if self.outbox.try_send(Outgoing::Event(event)).is_err() {
            self.published.unpublished.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Actor for EventRecorder {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Self::Context) {
        context.set_mailbox_capacity(MAILBOX_CAPACITY);
        if let Some(answers) = self.durable.as_mut().and_then(|durable| durable.answers.take()) {
            self.take_appended(answers, context);
            context.add_stream(self.bus.health_changes());
        }
        self.feed(Input::Tick, context);
    }
}

impl Handler<Ask<RecordEvent>> for EventRecorder {
    type Result = DeferredReply<Ask<RecordEvent>>;

    fn handle(&mut self, Ask(record): Ask<RecordEvent>, context: &mut Self::Context) -> Self::Result {
        let (answer, answered) = deferred_reply();
        // Only the recorder numbers events.
        let event = PullEvent { sequence: None, ..record.body.event };
        let bytes = text_bytes(&event);
        if bytes > EVENT_MAX_BYTES {
            let reason = format!("an event with {bytes} bytes of text is too large: at most {EVENT_MAX_BYTES} bytes are kept");
            // Logged, because a caller that posts an event reads no answer.
            tracing::warn!(event = %event.id, reason, "an event was refused");
            answer.give(Err(CallError::Refused { reason }));
            return answered;
        }
        match &mut self.durable {
            Some(_) if event.reason.is_noted() && self.journal.is_new(event.id) => {
                answer.give(Ok(EventRecorded {}));
                self.feed(Input::Note { event: Box::new(event) }, context);
            }
            Some(durable) if event.is_durable() && self.journal.is_new(event.id) => {
                let token = durable.token(Reply::Recorded(answer));
                self.feed(Input::Record { token, event: Box::new(event) }, context);
            }
            _ => {
                let event = Arc::new(event);
                if self.journal.record(Arc::clone(&event)) {
                    self.publish(event);
                }
                answer.give(Ok(EventRecorded {}));
            }
        }
        answered
    }
}

impl Handler<Ask<ListEvents>> for EventRecorder {
    type Result = DeferredReply<Ask<ListEvents>>;

    fn handle(&mut self, Ask(list): Ask<ListEvents>, context: &mut Self::Context) -> Self::Result {
        let (answer, answered) = deferred_reply();
        let wanted = list.body;
        match (&self.durable, wanted.stored_after) {
            (Some(durable), Some(after)) => {
                let limit = page_events(&wanted);
                let load = durable.load(after, limit);
                context.spawn(load.into_actor(self).map(move |loaded, recorder, _| {
                    let listed = loaded.map(|events| {
                        let is_all = events.len() < limit;
                        recorder.journal.list_stored(&wanted, events, is_all)
                    });
                    answer.give(listed.map_err(|reason| CallError::Refused { reason }));
                }));
            }
            _ => answer.give(Ok(self.journal.list(&wanted))),
        }
        answered
    }
}

impl Handler<Ask<CountEvents>> for EventRecorder {
    type Result = MessageResult<Ask<CountEvents>>;

    fn handle(&mut self, _: Ask<CountEvents>, _: &mut Self::Context) -> Self::Result {
        let (recorded_total, kept) = self.journal.counts();
        let unpublished_total = self.published.unpublished.load(Ordering::Relaxed);
        let stored = self.durable.as_ref().map(|durable| durable.core.counts()).unwrap_or_default();
        let RecorderCounts { appended_total, folded_total, dropped_total, write_failures_total, stream_failures_total, .. } = stored;
        MessageResult(Ok(EventCounts {
            recorded_total,
            published_total: self.published.published.load(Ordering::Relaxed) + appended_total,
            unpublished_total,
            kept,
            appended_total,
            folded_total,
            dropped_total,
            write_failures_total,
            stream_failures_total,
            waiting: stored.waiting,
            waiting_bytes: stored.waiting_bytes,
            oldest_age_ms: self.durable.as_ref().map_or(0, |durable| durable.age_ms(stored.oldest_ms)),
            is_delivering: stored.is_delivering,
        }))
    }
}

impl Handler<Flush> for EventRecorder {
    type Result = DeferredReply<Flush>;

    fn handle(&mut self, _: Flush, context: &mut Self::Context) -> Self::Result {
        let (answer, answered) = deferred_reply();
        let (outbox, flush_requested) = (self.outbox.clone(), Arc::clone(&self.flush_requested));
        // The stored events first: the publisher may wait for the bus for ever.
        let stored = self.flush_stored(context);
        let flushed = async move {
            // Without an answer, the recorder has ended.
            let _ = OptionFuture::from(stored).await;
            let (done, published) = oneshot::channel();
            if outbox.send(Outgoing::Flush(done)).await.is_ok() {
                flush_requested.notify_one();
                let _ = published.await;
            }
        };
        context.spawn(flushed.into_actor(self).map(move |(), _, _| answer.give(())));
        answered
    }
}

/// Asks why events cannot be stored. None if the last write succeeded and none hangs, or if events are not stored.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "Option<String>")]
pub struct ReadStoreProblem;

impl Handler<ReadStoreProblem> for EventRecorder {
    type Result = MessageResult<ReadStoreProblem>;

    fn handle(&mut self, _: ReadStoreProblem, _: &mut Self::Context) -> Self::Result {
        MessageResult(self.durable.as_ref().and_then(Durable::problem))
    }
}

/// Answered when every event is on the disk. Nothing may be recorded after it.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "()")]
pub struct Close;

impl Handler<Close> for EventRecorder {
    type Result = ResponseFuture<()>;

    fn handle(&mut self, _: Close, _: &mut Self::Context) -> Self::Result {
        let close = self.durable.as_ref().map(Durable::close);
        Box::pin(async move {
            if let Some(Err(error)) = OptionFuture::from(close).await {
                tracing::warn!(%error, "stored events are not on the disk");
            }
        })
    }
}

impl EventRecorder {
    /// Ready when all events are stored, and are in the stream or it cannot be reached; none: events are not stored.
    fn flush_stored(&mut self, context: &mut Context<Self>) -> Option<oneshot::Receiver<()>> {
        let (flushed, stored) = oneshot::channel();
        let token = self.durable.as_mut()?.token(Reply::Flushed(flushed));
        self.feed(Input::Flush { token }, context);
        Some(stored)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, mpsc};
    use std::time::Duration;

    use actix::Addr;
    use bus::memory::MemoryBus;
    use clock::{Clock, Random};
    use contract::{Envelope, EventReason, Meta};
    use support::counted_log::CountedLog;

    use super::*;
    use crate::core::{Batch, test_event};
    use crate::durable::StreamLimits;
    use crate::store::memory::MemoryStore;
    use crate::store::{OpenedStore, OutboxStore, StoreError, Syncer};

    fn recorder(opened: OpenedStore) -> Addr<EventRecorder> {
        let clock = Clock::host();
        recorder_on(MemoryBus::new(clock.clone()), opened, clock, None)
    }

    fn recorder_on(bus: MemoryBus, opened: OpenedStore, clock: Clock, stream: Option<StreamLimits>) -> Addr<EventRecorder> {
        let durability = Durability {
            opened,
            node: "n1".parse().expect("a name"),
            clock,
            max_bytes: 1 << 20,
            sync_every: Duration::from_millis(100),
            stream,
        };
        EventRecorder::new(10, Arc::new(bus), Fleet::default(), PanicGuard::of("event-recorder")).storing(durability).start()
    }

    async fn record(recorder: &Addr<EventRecorder>, random: &mut Random, reason: EventReason) {
        let body = RecordEvent { event: test_event(random, "a", reason, 0) };
        let answer = recorder.send(Ask(Envelope { meta: Meta::root(random), body })).await.expect("it runs");
        assert_eq!(answer, Ok(EventRecorded {}));
    }

    #[actix::test]
    async fn recording_is_answered_once_the_event_is_stored_or_at_once_if_no_answer_depends_on_it() {
        tokio::time::pause();
        let mut random = Random::seeded(1);
        let table = [
            (EventReason::Pulling, false),
            (EventReason::Throttled, false),
            (EventReason::BackoffOpened, false),
            (EventReason::RateLowered, false),
            (EventReason::Failed, true),
            (EventReason::SharingPaused, true),
            (EventReason::BackoffCleared, true),
        ];
        for (reason, is_awaited) in table {
            let store = MemoryStore::default();
            let recorder = recorder(store.open("first"));
            let stored = || store.open("first").recovered.slots.len();
            record(&recorder, &mut random, reason).await;
            assert_eq!(stored(), usize::from(is_awaited), "{reason:?}");
            recorder.send(Flush).await.expect("it runs");
            assert_eq!(stored(), 1, "{reason:?}");
        }
    }

    #[actix::test]
    async fn log_says_why_events_wait_for_the_stream() {
        tokio::time::pause();
        let log = CountedLog::down_to(tracing::Level::WARN);
        let _logging = tracing::subscriber::set_default(log.clone());
        let (mut random, clock) = (Random::seeded(1), Clock::host());
        let bus = MemoryBus::new(clock.clone());
        let limits = StreamLimits { max_age: Duration::from_secs(3_600), max_bytes: 1 << 20 };
        let recorder = recorder_on(bus.clone(), MemoryStore::default().open("first"), clock, Some(limits));
        record(&recorder, &mut random, EventReason::Failed).await;
        recorder.send(Flush).await.expect("it runs");
        assert_eq!(log.lines(), 0);
        bus.lose_stream(&Fleet::default().event_stream());
        for reason in [EventReason::InspectFailed, EventReason::SharingPaused] {
            record(&recorder, &mut random, reason).await;
            recorder.send(Flush).await.expect("it runs");
        }
        assert_eq!(log.lines(), 1);
    }

    /// A store whose syncs say that they have begun, and end when the test says so.
    struct SlowDisk {
        store: Box<dyn OutboxStore>,
        begun: tokio::sync::mpsc::UnboundedSender<()>,
        end: Arc<Mutex<mpsc::Receiver<()>>>,
    }

    impl OutboxStore for SlowDisk {
        fn write(&mut self, batch: &Batch) -> Result<(), StoreError> {
            self.store.write(batch)
        }

        fn load(&mut self, after: u64, limit: usize) -> Result<Vec<Arc<PullEvent>>, StoreError> {
            self.store.load(after, limit)
        }

        fn newest(&mut self, limit: usize) -> Result<Vec<Arc<PullEvent>>, StoreError> {
            self.store.newest(limit)
        }

        fn syncer(&self) -> Syncer {
            let (begun, end) = (self.begun.clone(), Arc::clone(&self.end));
            Arc::new(move || {
                let _ = begun.send(());
                end.lock().expect("no panic").recv().map_err(std::io::Error::other)
            })
        }

        fn close(&mut self) -> Result<(), StoreError> {
            self.store.close()
        }
    }

    #[actix::test]
    async fn event_that_is_stored_during_a_sync_is_synced_by_another() {
        tokio::time::pause();
        let mut random = Random::seeded(1);
        let (begun, mut syncs) = tokio::sync::mpsc::unbounded_channel();
        let (end, ended) = mpsc::channel();
        let opened = MemoryStore::default().open("first");
        let disk = SlowDisk { store: opened.store, begun, end: Arc::new(Mutex::new(ended)) };
        let recorder = recorder(OpenedStore { store: Box::new(disk), ..opened });
        record(&recorder, &mut random, EventReason::Failed).await;
        syncs.recv().await.expect("the event is synced");
        record(&recorder, &mut random, EventReason::InspectFailed).await;
        end.send(()).expect("the sync waits");
        let again = tokio::time::timeout(Duration::from_secs(10), syncs.recv()).await;
        end.send(()).expect("the store lives");
        assert_eq!(again, Ok(Some(())));
    }
}
