//! Loads events from the store when the queue in memory is empty.

use std::collections::BTreeMap;
use std::sync::Arc;

use clock::Now;
use contract::PullEvent;

use super::{Delivery, QUEUE_MOST, Recorder, number_of};

impl Recorder {
    pub(super) fn loaded(&mut self, now: Now, result: Result<Vec<Arc<PullEvent>>, String>) {
        let (Some(stored_until), Some(after)) = (self.loading_until.take(), self.unloaded_after) else { return };
        let Ok(events) = result else {
            // In the other states, the next load begins once the stream is ready.
            if self.delivery == Delivery::Ready {
                self.fail(now);
            }
            return;
        };
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

    /// Drops events that the store does not have or cannot read. One that it cannot read is deleted there too; otherwise it would be found
    /// and dropped again after each start.
    fn drop_missing(&mut self, after: u64, until: u64, found: &BTreeMap<u64, Arc<PullEvent>>) {
        let mut at = after;
        while let Some(number) = self.outbox.next_after(at).filter(|number| *number <= until) {
            if !found.contains_key(&number) && !self.in_flight.contains_key(&number) && !self.queue.contains_key(&number) {
                self.drop_event(number);
            }
            at = number;
        }
    }

    /// The number of the first event that is not written yet; all later ones are not written either.
    pub(super) fn first_unwritten(&self) -> Option<u64> {
        let being = self.writing.as_ref().and_then(|(_, batch, _)| batch.put.first());
        being.or(self.batch.put.first()).map(number_of)
    }

    /// Queues the events that are not written yet; they are in memory.
    fn queue_unwritten(&mut self) {
        let being = self.writing.iter().flat_map(|(_, batch, _)| batch.put.iter());
        let unwritten: Vec<Arc<PullEvent>> = being.chain(&self.batch.put).cloned().collect();
        for event in unwritten {
            let number = number_of(&event);
            if self.outbox.contains(number) && !self.in_flight.contains_key(&number) {
                self.queue.insert(number, event);
            }
        }
    }
}
