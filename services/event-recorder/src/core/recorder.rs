//! Stored events: numbered, folded, written, offered to the stream until it has them, and forgotten then.
//!
//! An event is answered once the store has handed it to the operating system, or has failed to: no pull waits for a disk that is full. What
//! could not be stored waits in memory, and is published for those who listen. The
//! stream is asked what it has whenever it is not known: after each start, and after each append without an answer.

mod delivering;
mod loading;
mod writing;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use clock::{Now, Random};
use contract::{EventReason, EventSequence, MessageId, NodeName, PullEvent, TraceContext};

use super::folding::{Folded, Folds};
use super::journal::text_bytes;
use super::outbox::Outbox;
use super::step::{Batch, Effect, Input, Slot, StreamMark, Token};

/// Events that are offered to the stream at a time.
pub const WINDOW: usize = 256;
/// Events in memory that wait to be offered; more are read from the store when it is their turn.
const QUEUE_MOST: usize = 1_024;
/// A stream, or a store, that has failed is tried again after this.
const RETRY_EVERY: Duration = Duration::from_secs(1);
/// What a store needs beside an event's texts, roughly.
pub const EVENT_OVERHEAD_BYTES: u64 = 512;

/// How the recorder behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecorderPolicy {
    /// The most bytes of events that wait for the stream.
    pub max_bytes: u64,
    /// Whether there is a stream; else the store is the history of this node, and the oldest events make room.
    pub has_stream: bool,
}

/// Whose events these are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The node.
    pub node: NodeName,
    /// Made with its state directory.
    pub incarnation: String,
}

/// What a store held when it was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// The number of the next event.
    pub next_number: u64,
    /// Events that wait for the stream.
    pub slots: Vec<Slot>,
    /// Repeats that were not an event yet, under their keys.
    pub folds: Vec<(u64, PullEvent)>,
    /// How far the stream is known to have all events.
    pub mark: StreamMark,
    /// What was lost, in words; none: nothing.
    pub lost: Option<String>,
}

/// How the stream stands.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Delivery {
    /// There is none.
    None,
    /// It is opened at this time.
    Closed(Duration),
    Opening,
    /// What it has is being read; events of this time on are not offered before.
    Reading(BTreeSet<u64>),
    Ready,
    /// An append has failed: the others under way come to their end.
    Failing,
    /// The stream is to be read again as soon as the appends under way have come to their end.
    Ending,
}

/// What is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecorderCounts {
    /// Events that the stream has, since the start.
    pub appended_total: u64,
    /// Repeats that became part of another event.
    pub folded_total: u64,
    /// Events that were dropped because the outbox was full.
    pub dropped_total: u64,
    /// Writes of the store that failed.
    pub write_failures_total: u64,
    /// Times that the stream was not there, or did not answer.
    pub stream_failures_total: u64,
    /// Events that wait for the stream now.
    pub waiting: u64,
    /// What they take.
    pub waiting_bytes: u64,
    /// When the oldest of them happened, in milliseconds since 1970; 0: none waits.
    pub oldest_ms: u64,
    /// Whether the stream takes events now, or there is none.
    pub is_delivering: bool,
}

/// The state machine.
#[derive(Debug)]
pub struct Recorder {
    identity: Identity,
    policy: RecorderPolicy,
    random: Random,
    next_number: u64,
    folds: Folds,
    outbox: Outbox,
    /// What is to be written next, and who waits for that.
    batch: Batch,
    waiting: Vec<Token>,
    /// What is being written: events and who waits for them.
    writing: Option<(Batch, Vec<Token>)>,
    write_again_at: Option<Duration>,
    /// Events in memory that wait to be offered, by number.
    queue: BTreeMap<u64, Arc<PullEvent>>,
    /// Events after this number are in the store alone; none: all are in memory.
    unloaded_after: Option<u64>,
    /// All events up to this number were in the store when a load began; none: nothing is being loaded.
    loading_until: Option<u64>,
    in_flight: BTreeMap<u64, Arc<PullEvent>>,
    delivery: Delivery,
    mark: StreamMark,
    /// The highest sequence of the stream that was acknowledged.
    acknowledged: u64,
    flushes: Vec<Token>,
    /// Events up to this number were published without the stream.
    published: u64,
    dropped_unsaid: u64,
    counts: RecorderCounts,
}

impl Recorder {
    /// Goes on with what the store holds.
    #[must_use]
    pub fn new(identity: Identity, policy: RecorderPolicy, recovered: Recovered, now: Now, random: Random) -> Self {
        let Recovered { next_number, slots, folds, mark, lost } = recovered;
        let mut recorder = Self {
            identity,
            policy,
            random,
            next_number: next_number.max(1),
            folds: Folds::default(),
            unloaded_after: (!slots.is_empty()).then_some(0),
            outbox: Outbox::of(slots),
            batch: Batch::default(),
            waiting: Vec::new(),
            writing: None,
            write_again_at: None,
            queue: BTreeMap::new(),
            loading_until: None,
            in_flight: BTreeMap::new(),
            delivery: if policy.has_stream { Delivery::Closed(now.monotonic) } else { Delivery::None },
            mark,
            acknowledged: 0,
            flushes: Vec::new(),
            published: 0,
            dropped_unsaid: 0,
            counts: RecorderCounts::default(),
        };
        for (id, event) in folds {
            recorder.batch.folds.push((id, None));
            recorder.store(event);
        }
        if let Some(lost) = lost {
            recorder.say_lost(now, lost);
        }
        recorder
    }

    /// Takes in what has come to pass.
    pub fn step(&mut self, now: Now, input: Input) -> Vec<Effect> {
        let mut effects = Vec::new();
        match input {
            Input::Record { token, event } => self.record(now, token, *event),
            Input::Flush { token } => self.flushes.push(token),
            Input::Written(result) => self.written(now, result, &mut effects),
            Input::Loaded(result) => self.loaded(now, result),
            Input::Opened(result) => self.opened(now, result, &mut effects),
            Input::Read(result) => self.read(now, result, &mut effects),
            Input::Appended { number, result } => self.appended(now, number, result),
            Input::Tick => {}
        }
        self.release_folds(now);
        self.write(now, &mut effects);
        self.deliver(now, &mut effects);
        self.answer_flushes(&mut effects);
        self.assert_invariants();
        effects
    }

    /// When the next tick has something to do.
    #[must_use]
    pub fn next_due(&self) -> Option<Duration> {
        let open = match self.delivery {
            Delivery::Closed(at) => Some(at),
            _ => None,
        };
        let write = self.write_again_at.filter(|_| self.writing.is_none());
        [self.folds.next_due(), open, write].into_iter().flatten().min()
    }

    /// What is counted.
    #[must_use]
    pub fn counts(&self) -> RecorderCounts {
        // Without a stream nothing waits: what is stored is history.
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

    fn record(&mut self, now: Now, token: Token, event: PullEvent) {
        let mut released = Vec::new();
        let folded = self.folds.take(now.monotonic, event, &mut released);
        self.store_released(released);
        match folded {
            Folded::Emit(event) => self.store(*event),
            Folded::Keep(id, event) => {
                self.counts.folded_total += 1;
                self.batch.folds.retain(|(known, _)| *known != id);
                self.batch.folds.push((id, Some(Arc::new(*event))));
            }
        }
        self.waiting.push(token);
    }

    fn release_folds(&mut self, now: Now) {
        let mut released = Vec::new();
        self.folds.release(now.monotonic, &mut released);
        self.store_released(released);
    }

    fn store_released(&mut self, released: Vec<(u64, PullEvent)>) {
        for (id, event) in released {
            self.batch.folds.retain(|(known, _)| *known != id);
            self.batch.folds.push((id, None));
            self.store(event);
        }
    }

    /// Gives an event its number, and a place in the next batch.
    fn store(&mut self, event: PullEvent) {
        let number = self.next_number;
        self.next_number += 1;
        let sequence = Some(EventSequence { incarnation: self.identity.incarnation.clone(), number });
        let event = Arc::new(PullEvent { sequence, ..event });
        let bytes = EVENT_OVERHEAD_BYTES + text_bytes(&event) as u64;
        self.make_room(bytes);
        let is_refusal = event.reason == EventReason::BackOff;
        self.outbox.insert(Slot { number, bytes, time_ms: event.time_ms, is_refusal });
        if self.policy.has_stream && self.unloaded_after.is_none() {
            if self.queue.len() < QUEUE_MOST {
                self.queue.insert(number, Arc::clone(&event));
            } else {
                self.unloaded_after = Some(number - 1);
            }
        }
        self.batch.put.push(event);
    }

    /// Drops events until one more fits. What is under way stays.
    fn make_room(&mut self, bytes: u64) {
        while self.outbox.bytes() + bytes > self.policy.max_bytes {
            let is_kept = |number: u64| self.in_flight.contains_key(&number);
            let Some(number) = self.outbox.first_to_drop(is_kept) else { return };
            self.forget(number);
            if self.policy.has_stream {
                self.counts.dropped_total += 1;
                self.dropped_unsaid += 1;
            }
        }
    }

    /// The event need not be stored any more.
    fn forget(&mut self, number: u64) {
        self.queue.remove(&number);
        if self.outbox.remove(number) {
            // What waits to be written is in order. Most events that are forgotten were written before.
            if self.batch.put.first().is_some_and(|first| number_of(first) <= number) {
                self.batch.put.retain(|event| number_of(event) != number);
            }
            self.batch.remove.push(number);
        }
    }

    /// One event that says how many there would be besides.
    fn say_lost(&mut self, now: Now, message: String) {
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

    /// What holds after each step.
    fn assert_invariants(&self) {
        debug_assert!(self.in_flight.len() <= WINDOW, "{} events are under way", self.in_flight.len());
        debug_assert!(self.in_flight.keys().all(|number| !self.queue.contains_key(number)), "an event is under way and waits");
        debug_assert!(self.queue.keys().all(|number| self.outbox.contains(*number)), "what waits is counted");
        debug_assert!(self.outbox.is_empty() || self.outbox.next_after(0).is_some_and(|first| first < self.next_number));
    }
}

/// The number that an event was stored under.
fn number_of(event: &Arc<PullEvent>) -> u64 {
    event.sequence.as_ref().map_or(0, |sequence| sequence.number)
}
