//! Delivery to the stream: first the stream's events are read, then the missing ones are offered in order.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use clock::Now;
use contract::PullEvent;

use super::{Delivery, QUEUE_MOST, RETRY_EVERY, Recorder, STREAM_PAUSE_MOST, WINDOW};
use crate::core::step::{Effect, StreamMark, StreamRead};

impl Recorder {
    pub(super) fn deliver(&mut self, now: Now, effects: &mut Vec<Effect>) {
        match self.delivery {
            Delivery::Closed(at) if now.monotonic >= at => {
                self.delivery = Delivery::Opening;
                effects.push(Effect::OpenStream);
            }
            Delivery::Ready => self.offer(effects),
            _ => {}
        }
    }

    pub(super) fn opened(&mut self, now: Now, result: Result<StreamMark, String>, effects: &mut Vec<Effect>) {
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

    pub(super) fn read(&mut self, now: Now, result: Result<StreamRead, String>, effects: &mut Vec<Effect>) {
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

    /// The first event of the queue if it is stored. An event must be stored before it is offered, so that its number is known after a
    /// crash.
    fn next_to_offer(&self) -> Option<(u64, Arc<PullEvent>)> {
        let (number, event) = self.queue.first_key_value()?;
        let is_stored = self.first_unwritten().is_none_or(|first| *number < first);
        is_stored.then(|| (*number, Arc::clone(event)))
    }

    pub(super) fn appended(&mut self, now: Now, number: u64, result: Result<u64, String>) {
        let Some(event) = self.in_flight.remove(&number) else { return };
        match result {
            Ok(sequence) => {
                self.counts.appended_total += 1;
                self.stream_pause = RETRY_EVERY;
                self.acknowledged = self.acknowledged.max(sequence);
                self.forget(number);
                self.report_dropped(now);
            }
            Err(_) => {
                if self.outbox.contains(number) {
                    self.queue.insert(number, event);
                }
                self.fail(now);
            }
        }
        self.append_ended(now);
    }

    /// The event would be refused again, and those after it would wait for ever.
    pub(super) fn refused(&mut self, now: Now, number: u64) {
        if self.in_flight.remove(&number).is_some() {
            self.drop_event(number);
            self.append_ended(now);
        }
    }

    fn append_ended(&mut self, now: Now) {
        if !self.in_flight.is_empty() {
            return;
        }
        match self.delivery {
            Delivery::Failing => self.fail(now),
            Delivery::Ending => self.reopen(now),
            // The stream has every offered event. Events that were only published must still be found after the mark, so it stays then.
            Delivery::Ready if self.acknowledged > self.mark.sequence && !self.waits_published() => {
                self.set_mark(StreamMark { created: self.mark.created.clone(), sequence: self.acknowledged });
            }
            _ => {}
        }
    }

    /// Whether the stream may have stored waiting events that were only published, for which there is no answer.
    fn waits_published(&self) -> bool {
        self.outbox.next_after(0).is_some_and(|first| first <= self.published)
    }

    fn set_mark(&mut self, mark: StreamMark) {
        self.mark = mark.clone();
        self.batch.mark = Some(mark);
    }

    /// Closes the stream, after the appends under way have ended.
    pub(super) fn fail(&mut self, now: Now) {
        if !self.in_flight.is_empty() {
            self.delivery = Delivery::Failing;
            return;
        }
        self.counts.stream_failures_total += 1;
        self.delivery = Delivery::Closed(now.monotonic + self.next_pause());
    }

    /// A random time between half of the pause and the whole, so that the nodes of a fleet do not ask together. The pause doubles with each
    /// failure, until the stream takes an event or the bus is connected again.
    fn next_pause(&mut self) -> Duration {
        let pause = self.stream_pause.mul_f64(1.0 - self.random.fraction() / 2.0);
        self.stream_pause = (self.stream_pause * 2).min(STREAM_PAUSE_MOST);
        pause
    }

    /// What has failed before says nothing about this connection.
    pub(super) fn connected(&mut self, now: Now) {
        self.stream_pause = RETRY_EVERY;
        if let Delivery::Closed(at) = self.delivery {
            self.delivery = Delivery::Closed(at.min(now.monotonic + self.next_pause()));
        }
    }

    /// Reads the stream again before more events are offered.
    pub(super) fn reopen(&mut self, now: Now) {
        self.delivery = if self.in_flight.is_empty() { Delivery::Closed(now.monotonic) } else { Delivery::Ending };
    }
}
