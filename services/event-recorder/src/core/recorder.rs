//! Stored events: numbered, folded, written, offered to the stream until it has them, and forgotten then.
//!
//! An event is answered once the store has handed it to the operating system, or has failed to: no pull waits for a disk that is full. What
//! could not be stored waits in memory, and is published for those who listen. The
//! stream is asked what it has whenever it is not known: after each start, and after each append without an answer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use clock::{Now, Random};
use contract::{EventReason, EventSequence, MessageId, NodeName, PullEvent, TraceContext};

use super::folding::{Folded, Folds};
use super::journal::text_bytes;
use super::outbox::Outbox;
use super::step::{Batch, Effect, Input, Slot, StreamMark, StreamRead, Token};

/// Events that are offered to the stream at a time.
pub const WINDOW: usize = 256;
/// Events in memory that wait to be offered; more are read from the store when it is their turn.
const QUEUE_MOST: usize = 1_024;
/// A stream, or a store, that has failed is tried again after this.
const RETRY_EVERY: Duration = Duration::from_secs(1);
/// So many events are forgotten at a time, unless something else is written.
const REMOVED_TOGETHER: usize = 64;
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

    fn write(&mut self, now: Now, effects: &mut Vec<Effect>) {
        if self.writing.is_some() || self.write_again_at.is_some_and(|at| now.monotonic < at) {
            return;
        }
        let is_urgent = !self.waiting.is_empty() || !self.batch.put.is_empty() || !self.batch.folds.is_empty() || !self.flushes.is_empty();
        let is_idle = self.in_flight.is_empty() && self.queue.is_empty();
        if self.batch.is_empty() || !(is_urgent || is_idle || self.batch.remove.len() >= REMOVED_TOGETHER) {
            return;
        }
        self.write_again_at = None;
        let batch = std::mem::take(&mut self.batch);
        self.writing = Some((batch.clone(), std::mem::take(&mut self.waiting)));
        effects.push(Effect::Write(batch));
    }

    fn written(&mut self, now: Now, result: Result<(), String>, effects: &mut Vec<Effect>) {
        let Some((batch, waiting)) = self.writing.take() else { return };
        // Also of what could not be stored: it is in memory, and a pull does not fail for that.
        effects.extend(waiting.into_iter().map(Effect::Answer));
        if self.delivery != Delivery::Ready || result.is_err() {
            effects.extend(batch.put.iter().filter(|event| number_of(event) > self.published).cloned().map(Effect::Publish));
            self.published = batch.put.last().map_or(self.published, number_of).max(self.published);
        } else if batch.put.first().is_some_and(|first| number_of(first) <= self.published) {
            // They were published while they could not be stored, perhaps hours ago: the stream has them, and forgets ids after minutes.
            self.reopen(now);
        }
        if result.is_err() {
            self.counts.write_failures_total += 1;
            self.write_again_at = Some(now.monotonic + RETRY_EVERY);
            self.write_later(batch);
        }
    }

    /// What could not be written is part of the next batch, as far as it is still wanted.
    fn write_later(&mut self, failed: Batch) {
        let newer = std::mem::take(&mut self.batch);
        let mut batch = failed;
        batch.put.extend(newer.put);
        let outbox = &self.outbox;
        batch.put.retain(|event| outbox.contains(number_of(event)));
        batch.remove.extend(newer.remove);
        batch.folds.retain(|(id, _)| !newer.folds.iter().any(|(known, _)| known == id));
        batch.folds.extend(newer.folds);
        batch.mark = newer.mark.or(batch.mark);
        // Nothing of this is in the store: what waits must not outgrow the memory.
        while batch.put.len() > QUEUE_MOST {
            let number = number_of(&batch.put.remove(0));
            if !self.in_flight.contains_key(&number) && self.outbox.remove(number) {
                self.queue.remove(&number);
                self.counts.dropped_total += 1;
                self.dropped_unsaid += 1;
            }
        }
        self.batch = batch;
    }

    fn loaded(&mut self, now: Now, result: Result<Vec<Arc<PullEvent>>, String>) {
        let (Some(stored_until), Some(after)) = (self.loading_until.take(), self.unloaded_after) else { return };
        let Ok(events) = result else { return self.fail(now) };
        let is_all = events.len() < QUEUE_MOST;
        let events: BTreeMap<u64, Arc<PullEvent>> = events.into_iter().map(|event| (number_of(&event), event)).collect();
        let last = events.last_key_value().map_or(after, |(number, _)| *number);
        let until = if is_all { last.max(stored_until) } else { last };
        self.drop_missing(after, until.min(stored_until), &events);
        let (outbox, in_flight) = (&self.outbox, &self.in_flight);
        self.queue.extend(events.into_iter().filter(|(number, _)| outbox.contains(*number) && !in_flight.contains_key(number)));
        let unwritten = self.first_unwritten().unwrap_or(u64::MAX);
        self.unloaded_after = self.outbox.next_after(until).filter(|next| *next < unwritten).map(|_| until);
        if self.unloaded_after.is_none() {
            self.queue_unwritten();
        }
    }

    /// What should be in the store and is not cannot be sent.
    fn drop_missing(&mut self, after: u64, until: u64, found: &BTreeMap<u64, Arc<PullEvent>>) {
        let mut at = after;
        while let Some(number) = self.outbox.next_after(at).filter(|number| *number <= until) {
            if !found.contains_key(&number) && !self.in_flight.contains_key(&number) && !self.queue.contains_key(&number) {
                self.outbox.remove(number);
                self.counts.dropped_total += 1;
                self.dropped_unsaid += 1;
            }
            at = number;
        }
    }

    /// The first event that waits to be written or is being written: all after it do so too.
    fn first_unwritten(&self) -> Option<u64> {
        let being = self.writing.as_ref().and_then(|(batch, _)| batch.put.first());
        being.or(self.batch.put.first()).map(number_of)
    }

    /// Events that the store does not have yet are in memory.
    fn queue_unwritten(&mut self) {
        let being = self.writing.iter().flat_map(|(batch, _)| batch.put.iter());
        let unwritten: Vec<Arc<PullEvent>> = being.chain(&self.batch.put).cloned().collect();
        for event in unwritten {
            let number = number_of(&event);
            if self.outbox.contains(number) && !self.in_flight.contains_key(&number) {
                self.queue.insert(number, event);
            }
        }
    }

    fn opened(&mut self, now: Now, result: Result<StreamMark, String>, effects: &mut Vec<Effect>) {
        match result {
            Ok(stream) => {
                let is_known = stream.created == self.mark.created && stream.sequence >= self.mark.sequence;
                let after = if is_known { self.mark.sequence } else { 0 };
                if !is_known {
                    self.set_mark(StreamMark { created: stream.created, sequence: 0 });
                }
                self.acknowledged = after;
                self.delivery = Delivery::Reading(BTreeSet::new());
                effects.push(Effect::ReadStream { after });
            }
            Err(_) => self.fail(now),
        }
    }

    fn read(&mut self, now: Now, result: Result<StreamRead, String>, effects: &mut Vec<Effect>) {
        let Delivery::Reading(has) = &mut self.delivery else { return };
        match result {
            Ok(StreamRead { numbers, next }) => {
                has.extend(numbers.into_iter().filter(|number| self.outbox.contains(*number)));
                if let Some(next) = next {
                    effects.push(Effect::ReadStream { after: next - 1 });
                    return;
                }
                let has = std::mem::take(has);
                self.delivery = Delivery::Ready;
                self.counts.appended_total += has.len() as u64;
                has.into_iter().for_each(|number| self.forget(number));
            }
            Err(_) => self.fail(now),
        }
    }

    fn fail(&mut self, now: Now) {
        self.counts.stream_failures_total += 1;
        self.delivery = Delivery::Closed(now.monotonic + RETRY_EVERY);
    }

    /// What the stream has is read again before anything more is offered.
    fn reopen(&mut self, now: Now) {
        self.delivery = if self.in_flight.is_empty() { Delivery::Closed(now.monotonic) } else { Delivery::Ending };
    }

    fn appended(&mut self, now: Now, number: u64, result: Result<u64, String>) {
        let Some(event) = self.in_flight.remove(&number) else { return };
        match result {
            Ok(sequence) => {
                self.counts.appended_total += 1;
                self.acknowledged = self.acknowledged.max(sequence);
                self.forget(number);
                if self.dropped_unsaid > 0 {
                    let message = format!(
                        "{} events of this node were dropped: more than events.outbox_max waited for NATS, or they could not be stored",
                        self.dropped_unsaid
                    );
                    self.dropped_unsaid = 0;
                    self.say_lost(now, message);
                }
            }
            Err(_) => {
                if self.outbox.contains(number) {
                    self.queue.insert(number, event);
                }
                self.delivery = Delivery::Failing;
            }
        }
        if !self.in_flight.is_empty() {
            return;
        }
        match self.delivery {
            Delivery::Failing => self.fail(now),
            Delivery::Ending => self.reopen(now),
            // All that was offered is there. What was published alone is looked for behind the mark.
            Delivery::Ready if self.acknowledged > self.mark.sequence && !self.waits_published() => {
                self.set_mark(StreamMark { created: self.mark.created.clone(), sequence: self.acknowledged });
            }
            _ => {}
        }
    }

    /// Whether the stream may have events by their publication alone: no answer has said so.
    fn waits_published(&self) -> bool {
        self.outbox.next_after(0).is_some_and(|first| first <= self.published)
    }

    fn set_mark(&mut self, mark: StreamMark) {
        self.mark = mark.clone();
        self.batch.mark = Some(mark);
    }

    fn deliver(&mut self, now: Now, effects: &mut Vec<Effect>) {
        match self.delivery {
            Delivery::Closed(at) if now.monotonic >= at => {
                self.delivery = Delivery::Opening;
                effects.push(Effect::OpenStream);
            }
            Delivery::Ready => self.offer(effects),
            _ => {}
        }
    }

    fn offer(&mut self, effects: &mut Vec<Effect>) {
        while self.in_flight.len() < WINDOW {
            let Some((number, event)) = self.next_to_offer() else { break };
            self.queue.remove(&number);
            self.in_flight.insert(number, Arc::clone(&event));
            effects.push(Effect::Append(event));
        }
        if let Some(after) = self.unloaded_after.filter(|_| self.loading_until.is_none() && self.queue.is_empty()) {
            self.loading_until = Some(self.first_unwritten().unwrap_or(self.next_number) - 1);
            effects.push(Effect::Load { after, limit: QUEUE_MOST });
        }
    }

    /// The first in the queue, unless it is still to be written: a number that the stream has must be known after a crash.
    fn next_to_offer(&self) -> Option<(u64, Arc<PullEvent>)> {
        let (number, event) = self.queue.first_key_value()?;
        let is_stored = self.first_unwritten().is_none_or(|first| *number < first);
        is_stored.then(|| (*number, Arc::clone(event)))
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
