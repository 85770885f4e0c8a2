//! The course of a stored event: numbered, folded, written, offered to the stream until the stream has it, and deleted then.
//!
//! A recording is answered once the store has handed the event to the operating system or has failed to, so that no pull waits for a full
//! disk; while a write hangs, a bounded number of recordings wait for it. An event that could not be stored stays in memory, and is
//! published to the present subscribers. The stream is read whenever its contents are unknown: after each start, and after each append
//! without an answer.

mod delivering;
mod loading;
mod recording;
mod writing;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use clock::{Now, Random};
use contract::{EventReason, EventSequence, MessageId, NodeName, PullEvent, TraceContext};

use super::folding::Folds;
use super::journal::EVENT_OVERHEAD_BYTES;
use super::outbox::Outbox;
use super::step::{Batch, Effect, Input, Slot, StreamMark, Token};

/// The most appends under way.
pub const WINDOW: usize = 256;
/// The most events in memory that wait to be offered; the others are loaded from the store later.
const QUEUE_MOST: usize = 1_024;
/// The pause after a failure of the store, and the longest pause after the first failure of the stream.
const RETRY_EVERY: Duration = Duration::from_secs(1);
/// The longest pause after many failures of the stream. While it fails for 10,000 nodes, its server gets about 830 requests per second.
const STREAM_PAUSE_MOST: Duration = Duration::from_secs(16);
/// More than the bytes of the texts of an event about dropped events.
const REPORT_BYTES: usize = 256;

/// The recorder's settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecorderPolicy {
    /// The most bytes of events that wait for the stream.
    pub max_bytes: u64,
    /// Whether there is a stream. Without one the store is the node's history, and the oldest events are deleted when it is full.
    pub has_stream: bool,
}

/// The source of the events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The node.
    pub node: NodeName,
    /// The id of the node's state directory.
    pub incarnation: String,
}

/// A store's contents when it was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// The number of the next event.
    pub next_number: u64,
    /// Events that wait for the stream.
    pub slots: Vec<Slot>,
    /// Repeats that were not emitted yet, by id.
    pub folds: Vec<(u64, PullEvent)>,
    /// The position up to which the stream needs no reading.
    pub mark: StreamMark,
    /// What was lost, as text; none: nothing.
    pub lost: Option<String>,
}

/// The state of the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Delivery {
    /// There is no stream.
    None,
    /// The stream is opened again at this time.
    Closed(Duration),
    Opening,
    /// The stream's events are being read, these numbers so far. Nothing is offered meanwhile.
    Reading(BTreeSet<u64>),
    Ready,
    /// An append or a load has failed; the stream is closed when the appends under way have ended.
    Failing,
    /// The stream is read again when the appends under way have ended.
    Ending,
}

/// Counters of the recorder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecorderCounts {
    /// Events that the stream has taken since the start.
    pub appended_total: u64,
    /// Repeats that became part of another event.
    pub folded_total: u64,
    /// Events that were dropped: the outbox was full, they could not be stored, or they were too large for the stream.
    pub dropped_total: u64,
    /// Writes of the store that failed.
    pub write_failures_total: u64,
    /// How often the stream was missing or did not answer.
    pub stream_failures_total: u64,
    /// Events that wait for the stream now.
    pub waiting: u64,
    /// The bytes of the waiting events.
    pub waiting_bytes: u64,
    /// The time of the oldest waiting event, in milliseconds since 1970; 0: none waits.
    pub oldest_ms: u64,
    /// True if the stream takes events now, or if there is no stream.
    pub is_delivering: bool,
}

/// The state machine.
#[derive(Debug)]
pub struct Recorder {
    identity: Identity,
    policy: RecorderPolicy,
    random: Random,
    next_number: u64,
    /// The ids of the newest recorded events.
    newest: VecDeque<MessageId>,
    folds: Folds,
    outbox: Outbox,
    /// The next write, and the tokens to answer after it.
    batch: Batch,
    waiting: Vec<Token>,
    /// The write under way: when it began, its batch, and the tokens to answer after it.
    writing: Option<(Duration, Batch, Vec<Token>)>,
    write_again_at: Option<Duration>,
    /// Why the last write failed. None if it succeeded.
    store_problem: Option<String>,
    /// When the next batch is written, if nobody waits for it.
    write_at: Option<Duration>,
    /// Events in memory that wait to be offered, by number.
    queue: BTreeMap<u64, Arc<PullEvent>>,
    /// Events after this number are in the store alone; none: all are in memory.
    unloaded_after: Option<u64>,
    /// When the load under way began, the store had all events up to this number; none: no load is under way.
    loading_until: Option<u64>,
    in_flight: BTreeMap<u64, Arc<PullEvent>>,
    delivery: Delivery,
    /// The longest pause after the next failure of the stream.
    stream_pause: Duration,
    mark: StreamMark,
    /// The highest sequence of the stream that an append was answered with.
    acknowledged: u64,
    flushes: Vec<Token>,
    /// Events up to this number may have been published without an append.
    published: u64,
    dropped_unreported: u64,
    counts: RecorderCounts,
}

impl Recorder {
    /// A recorder that goes on with the store's contents.
    #[must_use]
    pub fn new(identity: Identity, policy: RecorderPolicy, recovered: Recovered, now: Now, random: Random) -> Self {
        let Recovered { next_number, slots, folds, mark, lost } = recovered;
        let mut recorder = Self {
            identity,
            policy,
            random,
            next_number: next_number.max(1),
            newest: VecDeque::new(),
            folds: Folds::default(),
            unloaded_after: (!slots.is_empty()).then_some(0),
            outbox: Outbox::of(slots),
            batch: Batch::default(),
            waiting: Vec::new(),
            writing: None,
            write_again_at: None,
            store_problem: None,
            write_at: None,
            queue: BTreeMap::new(),
            loading_until: None,
            in_flight: BTreeMap::new(),
            delivery: if policy.has_stream { Delivery::Closed(now.monotonic) } else { Delivery::None },
            stream_pause: RETRY_EVERY,
            mark,
            acknowledged: 0,
            flushes: Vec::new(),
            published: 0,
            dropped_unreported: 0,
            counts: RecorderCounts::default(),
        };
        for (id, event) in folds {
            recorder.batch.folds.insert(id, None);
            recorder.store(event);
        }
        if let Some(lost) = lost {
            recorder.record_lost(now, lost);
        }
        // At once: the next start does not find again what was lost.
        recorder.write_at = (!recorder.batch.is_empty()).then_some(now.monotonic);
        recorder
    }

    /// Takes one input and returns its effects.
    pub fn step(&mut self, now: Now, input: Input) -> Vec<Effect> {
        let mut effects = Vec::new();
        match input {
            Input::Record { token, event } => self.record(now, token, *event, &mut effects),
            Input::Note { event } => {
                self.take(now, *event);
            }
            Input::Flush { token } => {
                // The agent may end before the stream takes an event.
                self.report_dropped(now);
                self.flushes.push(token);
            }
            Input::Written(result) => self.written(now, result, &mut effects),
            Input::Loaded(result) => self.loaded(now, result),
            Input::Opened(result) => self.opened(now, result, &mut effects),
            Input::Read(result) => self.read(now, result, &mut effects),
            Input::Appended { number, result } => self.appended(now, number, result),
            Input::Refused { number } => self.refused(now, number),
            Input::Connected => self.connected(now),
            Input::Tick => {}
        }
        self.release_folds(now);
        self.write(now, &mut effects);
        self.deliver(now, &mut effects);
        self.answer_flushes(&mut effects);
        self.assert_invariants(now);
        effects
    }

    /// When [`Input::Tick`] is due.
    #[must_use]
    pub fn next_due(&self) -> Option<Duration> {
        let open = match self.delivery {
            Delivery::Closed(at) => Some(at),
            _ => None,
        };
        let write = self.write_again_at.or(self.write_at).filter(|_| self.writing.is_none());
        [self.folds.next_due(), open, write].into_iter().flatten().min()
    }

    /// The counters.
    #[must_use]
    pub fn counts(&self) -> RecorderCounts {
        // Without a stream no event waits: the stored ones are history.
        let (waiting, waiting_bytes, oldest_ms) = match self.delivery {
            Delivery::None => (0, 0, None),
            _ => (self.outbox.len(), self.outbox.bytes(), self.outbox.oldest_ms()),
        };
        RecorderCounts {
            waiting,
            waiting_bytes,
            oldest_ms: oldest_ms.unwrap_or_default(),
            is_delivering: matches!(self.delivery, Delivery::None | Delivery::Ready),
            ..self.counts
        }
    }

    /// Gives an event its number and adds it to the next batch.
    fn store(&mut self, event: PullEvent) {
        let number = self.next_number;
        self.next_number += 1;
        let sequence = Some(EventSequence { incarnation: self.identity.incarnation.clone(), number });
        let event = Arc::new(PullEvent { sequence, ..event });
        let slot = Slot::of(&event);
        self.make_room(slot.bytes);
        self.outbox.insert(slot);
        if self.policy.has_stream && self.unloaded_after.is_none() {
            if self.queue.len() < QUEUE_MOST {
                self.queue.insert(number, Arc::clone(&event));
            } else {
                self.unloaded_after = Some(number - 1);
            }
        }
        self.batch.put.push(event);
    }

    /// Drops events until `bytes` more fit; never one under way.
    fn make_room(&mut self, bytes: u64) {
        while self.outbox.bytes() + bytes > self.policy.max_bytes {
            let is_kept = |number: u64| self.in_flight.contains_key(&number);
            let Some(number) = self.outbox.first_to_drop(is_kept) else { return };
            if self.policy.has_stream {
                self.drop_event(number);
            } else {
                self.forget(number);
            }
        }
    }

    /// Forgets an event that the stream does not have.
    fn drop_event(&mut self, number: u64) {
        self.forget(number);
        self.counts.dropped_total += 1;
        self.dropped_unreported += 1;
    }

    /// Deletes an event from memory and, with the next batch, from the store.
    fn forget(&mut self, number: u64) {
        self.queue.remove(&number);
        if self.outbox.remove(number) {
            // The batch is in order of numbers. Its own events are not in the store yet.
            match self.batch.put.binary_search_by_key(&number, number_of) {
                Ok(place) => drop(self.batch.put.remove(place)),
                Err(_) => self.batch.remove.push(number),
            }
        }
    }

    /// Records an event that says how many events were dropped since the last such event.
    fn report_dropped(&mut self, now: Now) {
        if self.dropped_unreported == 0 {
            return;
        }
        // First, so that what is dropped for this event is counted in it.
        self.make_room((EVENT_OVERHEAD_BYTES + REPORT_BYTES) as u64);
        let message = format!(
            "{} events of this node were dropped: more than events.outbox_max waited for NATS, they could not be stored, or were too large",
            std::mem::take(&mut self.dropped_unreported)
        );
        self.record_lost(now, message);
    }

    /// Records an event that says which events are missing.
    fn record_lost(&mut self, now: Now, message: String) {
        let event = PullEvent::new(
            MessageId::random(&mut self.random),
            now.wall_ms(),
            self.identity.node.clone(),
            EventReason::EventsDropped,
            message,
            TraceContext::root(&mut self.random),
        );
        self.store(event);
    }

    fn answer_flushes(&mut self, effects: &mut Vec<Effect>) {
        let is_written = self.writing.is_none() && (self.batch.is_empty() || self.write_again_at.is_some());
        let is_sent = match self.delivery {
            Delivery::None => true,
            Delivery::Ready => self.outbox.is_empty(),
            Delivery::Closed(_) => self.counts.stream_failures_total > 0,
            Delivery::Opening | Delivery::Reading(_) | Delivery::Failing | Delivery::Ending => false,
        };
        if is_written && is_sent {
            effects.extend(self.flushes.drain(..).map(Effect::Answer));
        }
    }

    fn assert_invariants(&self, now: Now) {
        debug_assert!(self.next_due().is_none_or(|due| due > now.monotonic), "nothing is due any more");
        let may_have_appends = matches!(self.delivery, Delivery::Ready | Delivery::Failing | Delivery::Ending);
        debug_assert!(may_have_appends || self.in_flight.is_empty(), "events are under way while the stream is {:?}", self.delivery);
        debug_assert!(self.in_flight.len() <= WINDOW, "{} events are under way", self.in_flight.len());
        debug_assert!(self.in_flight.keys().all(|number| !self.queue.contains_key(number)), "an event is under way and waits");
        debug_assert!(self.queue.keys().all(|number| self.outbox.contains(*number)), "what waits is counted");
        debug_assert!(self.outbox.is_empty() || self.outbox.next_after(0).is_some_and(|first| first < self.next_number));
    }
}

/// The number of a numbered event.
pub(crate) fn number_of(event: &Arc<PullEvent>) -> u64 {
    event.sequence.as_ref().map_or(0, |sequence| sequence.number)
}
