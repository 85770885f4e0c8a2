//! The shell of stored events: carries out the core's effects with the store and the fleet's stream.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use actix::{ActorFutureExt as _, AsyncContext as _, Context, SpawnHandle, StreamHandler, WrapFuture as _};
use actors::{Answer, Ask};
use bus::{BusError, BusHealth, BusRef, StreamQuery, StreamSpec, StreamStart, SubjectTransform};
use clock::{Clock, Random};
use contract::messages::event_recorder::{EventRecorded, RecordEvent};
use contract::subject::Fleet;
use contract::{NodeName, PullEvent, headers};
use tokio::sync::oneshot;

use crate::actor::EventRecorder;
use crate::appends::{Answers, Appends, within};
use crate::core::{Batch, Effect, Identity, Input, Recorder, RecorderPolicy, StreamMark, StreamRead, Token, WINDOW};
use crate::store::{OpenedStore, OutboxStore, StoreError, Syncer};

/// Messages in one page that is read from the stream.
const READ_AT_ONCE: usize = 1_000;
/// The stream drops a message whose id it has stored within this time. Older duplicates are found by reading the stream.
const DUPLICATE_WINDOW: Duration = Duration::from_secs(120);
/// The shortest timer.
const ALARM_AT_LEAST: Duration = Duration::from_millis(1);

/// Where and how events are stored.
pub struct Durability {
    /// The opened store and its contents.
    pub opened: OpenedStore,
    /// The node.
    pub node: NodeName,
    /// The node's clock.
    pub clock: Clock,
    /// The most bytes that wait for the stream.
    pub max_bytes: u64,
    /// The longest time until a stored event is synced; a power failure loses events that are not.
    pub sync_every: Duration,
    /// The fleet's stream; none: there is no server, and the store is the node's history.
    pub stream: Option<StreamLimits>,
}

/// The limits of the fleet's stream if this agent creates it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamLimits {
    /// How long events are kept.
    pub max_age: Duration,
    /// The most bytes.
    pub max_bytes: u64,
}

/// The fleet's stream of events.
#[must_use]
pub fn event_stream(fleet: &Fleet, limits: StreamLimits) -> StreamSpec {
    let (source, destination) = fleet.event_transform();
    StreamSpec {
        name: fleet.event_stream(),
        subjects: fleet.stored_events(),
        max_age: Some(limits.max_age),
        max_bytes: Some(limits.max_bytes),
        duplicate_window: DUPLICATE_WINDOW,
        transform: Some(SubjectTransform { source, destination }),
    }
}

/// A pending answer.
pub(crate) enum Reply {
    Recorded(Answer<Ask<RecordEvent>>),
    Flushed(oneshot::Sender<()>),
}

/// What a recorder has besides its journal if it stores events.
pub(crate) struct Durable {
    pub(crate) core: Recorder,
    clock: Clock,
    bus: BusRef,
    fleet: Fleet,
    node: NodeName,
    incarnation: String,
    spec: Option<StreamSpec>,
    store: Arc<Mutex<Box<dyn OutboxStore>>>,
    syncer: Syncer,
    sync_every: Duration,
    /// Whether anything was written since the last sync began.
    is_unsynced: bool,
    /// Whether a sync is planned or under way.
    is_sync_planned: bool,
    /// Whether the log says that the stream takes no events.
    is_stream_failing: bool,
    replies: BTreeMap<Token, Reply>,
    last_token: u64,
    alarm: Option<(Duration, SpawnHandle)>,
    appends: Appends,
    /// The results of appends; the started actor takes the receiver.
    pub(crate) answers: Option<Answers>,
}

impl Durable {
    /// Why events cannot be stored now.
    pub(crate) fn problem(&self) -> Option<String> {
        self.core.problem(self.clock.now().monotonic).map(str::to_owned)
    }

    pub(crate) fn new(durability: Durability, bus: BusRef, fleet: Fleet) -> Self {
        let Durability { opened, node, clock, max_bytes, sync_every, stream } = durability;
        let OpenedStore { store, incarnation, recovered } = opened;
        if let Some(lost) = &recovered.lost {
            tracing::warn!(lost, "events may have been lost");
        }
        let policy = RecorderPolicy { max_bytes, has_stream: stream.is_some() };
        let identity = Identity { node: node.clone(), incarnation: incarnation.clone() };
        let core = Recorder::new(identity, policy, recovered, clock.now(), Random::from_system());
        let syncer = store.syncer();
        let spec = stream.map(|limits| event_stream(&fleet, limits));
        let (appends, answers) = Appends::begin(bus.clone(), fleet.clone());
        Self {
            appends,
            answers: Some(answers),
            core,
            clock,
            bus,
            fleet,
            node,
            incarnation,
            spec,
            store: Arc::new(Mutex::new(store)),
            syncer,
            sync_every,
            is_unsynced: false,
            is_sync_planned: false,
            is_stream_failing: false,
            replies: BTreeMap::new(),
            last_token: 0,
            alarm: None,
        }
    }

    /// Logs why the stream takes no events, and that it takes them again. If the bus is not connected or degraded, its health says why.
    fn log_delivery(&mut self, input: &Input) {
        match input {
            Input::Opened(Err(error)) | Input::Read(Err(error)) | Input::Appended { result: Err(error), .. }
                if !self.is_stream_failing && self.bus.health() == BusHealth::Connected =>
            {
                self.is_stream_failing = true;
                tracing::warn!(error, "events wait in the outbox, because the stream does not take them");
            }
            Input::Appended { result: Ok(_), .. } if self.is_stream_failing => {
                self.is_stream_failing = false;
                tracing::info!("the stream takes events again");
            }
            _ => {}
        }
    }

    pub(crate) fn token(&mut self, reply: Reply) -> Token {
        self.last_token += 1;
        self.replies.insert(Token(self.last_token), reply);
        Token(self.last_token)
    }

    /// The age of a time in milliseconds; 0 for no time (0).
    pub(crate) fn age_ms(&self, time_ms: u64) -> u64 {
        if time_ms == 0 { 0 } else { self.clock.now().wall_ms().saturating_sub(time_ms) }
    }

    /// The newest stored events.
    pub(crate) fn newest(&self, limit: usize) -> Result<Vec<Arc<PullEvent>>, StoreError> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner).newest(limit)
    }

    /// Syncs everything to the disk, so that the next start goes on numbering without a gap.
    pub(crate) fn close(&self) -> impl Future<Output = Result<(), StoreError>> + use<> {
        let store = Arc::clone(&self.store);
        tasks::blocking("outbox-close", move || store.lock().unwrap_or_else(PoisonError::into_inner).close())
    }

    /// Runs `work` with the store on a thread that may block.
    fn with_store<T: Send + 'static, W: FnOnce(&mut dyn OutboxStore) -> Result<T, StoreError> + Send + 'static>(
        &self,
        name: &'static str,
        work: W,
    ) -> impl Future<Output = Result<T, String>> + use<T, W> {
        let store = Arc::clone(&self.store);
        let work = tasks::blocking(name, move || work(&mut **store.lock().unwrap_or_else(PoisonError::into_inner)));
        async move { work.await.map_err(|error| error.to_string()) }
    }

    /// Stored events after a number.
    pub(crate) fn load(&self, after: u64, limit: usize) -> impl Future<Output = Result<Vec<Arc<PullEvent>>, String>> + use<> {
        self.with_store("outbox-load", move |store| store.load(after, limit))
    }

    fn write(&self, batch: Batch) -> impl Future<Output = Result<(), String>> + use<> {
        self.with_store("outbox-write", move |store| store.write(&batch))
    }

    fn open_stream(&self) -> impl Future<Output = Result<StreamMark, BusError>> + use<> {
        let (bus, spec) = (self.bus.clone(), self.spec.clone());
        within(async move {
            let Some(spec) = spec else { return Err(BusError::Unsupported { reason: "there is no stream".to_owned() }) };
            bus.stream(&spec).await.map(|status| StreamMark { created: status.created, sequence: status.last_sequence })
        })
    }

    fn read_stream(&self, after: u64) -> impl Future<Output = Result<StreamRead, BusError>> + use<> {
        let query = StreamQuery {
            stream: self.fleet.event_stream(),
            subjects: self.fleet.stored_events_of(None, &self.node),
            from: StreamStart::Sequence(after + 1),
            limit: READ_AT_ONCE,
        };
        let (bus, incarnation) = (self.bus.clone(), self.incarnation.clone());
        within(async move {
            let page = bus.read(&query).await?;
            let number = |stored: &bus::StoredMessage| {
                let (of, number) = stored.message.headers.get(headers::EVENT_SEQUENCE)?.rsplit_once('/')?;
                (of == incarnation).then(|| number.parse().ok()).flatten()
            };
            Ok(StreamRead { numbers: page.messages.iter().filter_map(number).collect(), next: page.next })
        })
    }
}

impl EventRecorder {
    /// Feeds the core of stored events and carries out its effects.
    pub(crate) fn feed(&mut self, input: Input, context: &mut Context<Self>) {
        let Some(durable) = &mut self.durable else { return };
        let now = durable.clock.now();
        durable.log_delivery(&input);
        let effects = durable.core.step(now, input);
        for effect in effects {
            self.carry_out(effect, context);
        }
        self.set_alarm(now.monotonic, context);
    }

    fn carry_out(&mut self, effect: Effect, context: &mut Context<Self>) {
        let Some(durable) = &self.durable else { return };
        match effect {
            Effect::Write(batch) => {
                let events = batch.put.clone();
                let write = durable.write(batch);
                let written = move |result: Result<(), String>, recorder: &mut Self, context: &mut Context<Self>| {
                    recorder.written(&events, &result, context);
                    recorder.feed(Input::Written(result), context);
                };
                context.spawn(write.into_actor(self).map(written));
            }
            Effect::Load { after, limit } => {
                self.then(durable.load(after, limit), context, Input::Loaded);
            }
            Effect::OpenStream => self.then(durable.open_stream(), context, |opened| Input::Opened(in_words(opened))),
            Effect::ReadStream { after } => self.then(durable.read_stream(after), context, |read| Input::Read(in_words(read))),
            Effect::Append(event) => durable.appends.offer(event),
            // Without a connection there are no subscribers; the stream gets the event later.
            Effect::Publish(event) if !matches!(durable.bus.health(), BusHealth::Disconnected { .. }) => self.publish(event),
            Effect::Publish(_) => {}
            Effect::Answer(token) => self.answer(token),
        }
    }

    fn answer(&mut self, token: Token) {
        match self.durable.as_mut().and_then(|durable| durable.replies.remove(&token)) {
            Some(Reply::Recorded(answer)) => answer.give(Ok(EventRecorded {})),
            Some(Reply::Flushed(flushed)) => {
                // There is no receiver if the caller is abandoned.
                let _ = flushed.send(());
            }
            None => {}
        }
    }

    fn then<T: 'static>(
        &self,
        work: impl Future<Output = T> + 'static,
        context: &mut Context<Self>,
        input: impl FnOnce(T) -> Input + 'static,
    ) {
        context.spawn(work.into_actor(self).map(move |result, recorder, context| recorder.feed(input(result), context)));
    }

    /// Feeds the results of appends, as many as are ready at a time.
    pub(crate) fn take_appended(&self, mut answers: Answers, context: &mut Context<Self>) {
        let taken = async move {
            let mut inputs = Vec::new();
            answers.recv_many(&mut inputs, WINDOW).await;
            (answers, inputs)
        };
        context.spawn(taken.into_actor(self).map(|(answers, inputs), recorder, context| {
            // Empty: the sender is dropped, so no append is under way.
            if !inputs.is_empty() {
                inputs.into_iter().for_each(|input| recorder.feed(input, context));
                recorder.take_appended(answers, context);
            }
        }));
    }

    /// Adds events to the journal, also those that could not be stored, and plans a sync after a successful write.
    fn written(&mut self, events: &[Arc<PullEvent>], result: &Result<(), String>, context: &mut Context<Self>) {
        for event in events {
            self.journal.record(Arc::clone(event));
        }
        let Some(durable) = &mut self.durable else { return };
        // The core still has the result of the write before, so a failure is logged once.
        match (result, durable.core.store_problem()) {
            (Ok(()), Some(_)) => tracing::info!("events are stored again"),
            (Err(error), None) => {
                tracing::warn!(error, "events cannot be stored: they wait in memory, and are lost if this process ends; is the disk full?");
            }
            _ => {}
        }
        durable.is_unsynced |= result.is_ok();
        self.plan_sync(context);
    }

    /// Plans a sync of what was written. While one is planned or under way, the next is planned at its end.
    fn plan_sync(&mut self, context: &mut Context<Self>) {
        let Some(durable) = &mut self.durable else { return };
        if durable.is_unsynced && !durable.is_sync_planned {
            durable.is_sync_planned = true;
            context.run_later(durable.sync_every, Self::sync);
        }
    }

    fn sync(&mut self, context: &mut Context<Self>) {
        let Some(durable) = &mut self.durable else { return };
        durable.is_unsynced = false;
        let syncer = Arc::clone(&durable.syncer);
        let sync = tasks::blocking("outbox-sync", move || syncer());
        context.spawn(sync.into_actor(self).map(|synced, recorder, context| {
            if let Err(error) = synced {
                tracing::warn!(%error, "stored events cannot be synced to the disk: a power failure would lose them");
            }
            if let Some(durable) = &mut recorder.durable {
                durable.is_sync_planned = false;
            }
            recorder.plan_sync(context);
        }));
    }

    fn set_alarm(&mut self, now: Duration, context: &mut Context<Self>) {
        let Some(durable) = &mut self.durable else { return };
        let due = durable.core.next_due();
        if due == durable.alarm.map(|(at, _)| at) {
            return;
        }
        if let Some((_, alarm)) = durable.alarm.take() {
            context.cancel_future(alarm);
        }
        if let Some(at) = due {
            let alarm = context.run_later(at.saturating_sub(now).max(ALARM_AT_LEAST), |recorder, context| {
                if let Some(durable) = &mut recorder.durable {
                    durable.alarm = None;
                }
                recorder.feed(Input::Tick, context);
            });
            durable.alarm = Some((at, alarm));
        }
    }
}

impl StreamHandler<BusHealth> for EventRecorder {
    fn handle(&mut self, health: BusHealth, context: &mut Context<Self>) {
        if health == BusHealth::Connected {
            self.feed(Input::Connected, context);
        }
    }

    /// The bus was drained. Does nothing, because the default would stop the actor.
    fn finished(&mut self, _: &mut Context<Self>) {}
}

fn in_words<T>(result: Result<T, BusError>) -> Result<T, String> {
    result.map_err(|error| error.to_string())
}
