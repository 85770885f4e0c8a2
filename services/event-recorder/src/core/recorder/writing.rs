//! Writes batches to the store, one at a time, and again after a failure.

use std::time::Duration;

use clock::Now;

use super::{Delivery, QUEUE_MOST, RETRY_EVERY, Recorder, number_of};
use crate::core::step::{Batch, Effect};

/// How many deletions are collected for one write, unless something else is written.
const REMOVED_TOGETHER: usize = 64;
/// How long deletions wait for another write. An event that is still stored after a crash is offered again, and the stream knows it.
const REMOVED_WITHIN: Duration = Duration::from_secs(1);
/// How long noted events wait for another write: as long as subscribers may wait for them. Busy nodes write more often.
const NOTED_WITHIN: Duration = Duration::from_millis(50);
/// A write that takes this long counts as hanging. It takes milliseconds, and seconds on a disk that is very busy.
const WRITE_HANGS_AFTER: Duration = Duration::from_secs(10);

impl Recorder {
    /// Why events cannot be stored at this time: the last write failed, or the one under way hangs. None if neither is so.
    #[must_use]
    pub fn problem(&self, now: Duration) -> Option<&str> {
        let hangs = self.writing.as_ref().is_some_and(|(began, ..)| now >= *began + WRITE_HANGS_AFTER);
        self.store_problem().or(hangs.then_some("events cannot be stored: a write to the disk has not ended for 10 s"))
    }

    /// Why the last write failed. None if it succeeded.
    #[must_use]
    pub fn store_problem(&self) -> Option<&str> {
        self.store_problem.as_deref()
    }

    pub(super) fn write(&mut self, now: Now, effects: &mut Vec<Effect>) {
        if self.writing.is_some() || self.write_again_at.is_some_and(|at| now.monotonic < at) {
            return;
        }
        if self.batch.is_empty() {
            // The stream has what could not be written: it was published.
            (self.write_again_at, self.write_at) = (None, None);
            return;
        }
        // Nobody waits for the mark, deletions and noted events: a pull has some, and each write of its own wakes two threads.
        let is_awaited = !self.waiting.is_empty() || !self.flushes.is_empty() || self.write_again_at.is_some();
        let has_events = !self.batch.put.is_empty() || !self.batch.folds.is_empty();
        let at_latest = now.monotonic + if has_events { NOTED_WITHIN } else { REMOVED_WITHIN };
        let due = self.write_at.map_or(at_latest, |at| at.min(at_latest));
        self.write_at = Some(due);
        if !is_awaited && now.monotonic < due && self.batch.remove.len() < REMOVED_TOGETHER {
            return;
        }
        (self.write_again_at, self.write_at) = (None, None);
        let batch = std::mem::take(&mut self.batch);
        self.writing = Some((now.monotonic, batch.clone(), std::mem::take(&mut self.waiting)));
        effects.push(Effect::Write(batch));
    }

    pub(super) fn written(&mut self, now: Now, result: Result<(), String>, effects: &mut Vec<Effect>) {
        let Some((_, batch, waiting)) = self.writing.take() else { return };
        self.store_problem = result.as_ref().err().cloned();
        // Also after a failed write: the events are in memory, and a pull does not fail for that.
        effects.extend(waiting.into_iter().map(Effect::Answer));
        if self.delivery != Delivery::Ready || result.is_err() {
            effects.extend(batch.put.iter().filter(|event| number_of(event) > self.published).cloned().map(Effect::Publish));
            self.published = batch.put.last().map_or(self.published, number_of).max(self.published);
        } else if batch.put.first().is_some_and(|first| number_of(first) <= self.published) {
            // They were published while the store failed, perhaps hours ago. The stream may have them, and knows ids for 2 min only, so it
            // is read before they are offered.
            self.reopen(now);
        }
        if result.is_err() {
            self.counts.write_failures_total += 1;
            self.write_again_at = Some(now.monotonic + RETRY_EVERY);
            self.write_later(batch);
        } else if self.delivery == Delivery::None {
            self.report_dropped(now);
        }
    }

    /// Merges a failed batch into the next one.
    fn write_later(&mut self, failed: Batch) {
        let newer = std::mem::take(&mut self.batch);
        let mut batch = failed;
        batch.put.extend(newer.put);
        let outbox = &self.outbox;
        batch.put.retain(|event| outbox.contains(number_of(event)));
        batch.remove.extend(newer.remove);
        batch.folds.extend(newer.folds);
        batch.mark = newer.mark.or(batch.mark);
        // None of these events is in the store; bound the memory that they take.
        let excess = batch.put.len().saturating_sub(QUEUE_MOST);
        for event in batch.put.drain(..excess) {
            let number = number_of(&event);
            if !self.in_flight.contains_key(&number) && self.outbox.remove(number) {
                self.queue.remove(&number);
                self.counts.dropped_total += 1;
                self.dropped_unreported += 1;
            }
        }
        self.batch = batch;
    }
}
