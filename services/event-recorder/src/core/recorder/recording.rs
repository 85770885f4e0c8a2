//! Takes events: each once, numbered or folded, with or without somebody who waits for the write.

use std::sync::Arc;

use clock::Now;
use contract::PullEvent;

use super::Recorder;
use crate::core::folding::Folded;
use crate::core::step::{Effect, Token};

/// The most recordings that wait for one write: as many as events wait for the bus. While a write hangs, further ones are answered at once.
const WAITING_MOST: usize = 10_000;
/// How many of the newest recorded events are searched for a repeat: a caller without an answer in time records its event again.
const REPEATS_WITHIN: usize = 256;

impl Recorder {
    pub(super) fn record(&mut self, now: Now, token: Token, event: PullEvent, effects: &mut Vec<Effect>) {
        if self.take(now, event) {
            await_write(&mut self.waiting, token, effects);
        } else {
            self.recorded_again(token, effects);
        }
    }

    /// Numbers an event or folds it; false if it is a repeat.
    pub(super) fn take(&mut self, now: Now, event: PullEvent) -> bool {
        if self.newest.contains(&event.id) {
            return false;
        }
        if self.newest.len() == REPEATS_WITHIN {
            self.newest.pop_front();
        }
        self.newest.push_back(event.id);
        let mut released = Vec::new();
        let folded = self.folds.take(now.monotonic, event, &mut released);
        self.store_released(released);
        match folded {
            Folded::Emit(event) => self.store(*event),
            Folded::Keep(id, event) => {
                self.counts.folded_total += 1;
                self.batch.folds.insert(id, Some(Arc::new(*event)));
            }
        }
        true
    }

    /// Answers the repeat of a recording, not before the event is written.
    fn recorded_again(&mut self, token: Token, effects: &mut Vec<Effect>) {
        match &mut self.writing {
            _ if !self.batch.is_empty() => await_write(&mut self.waiting, token, effects),
            Some((_, _, waiting)) => await_write(waiting, token, effects),
            None => effects.push(Effect::Answer(token)),
        }
    }

    pub(super) fn release_folds(&mut self, now: Now) {
        let mut released = Vec::new();
        self.folds.release(now.monotonic, &mut released);
        self.store_released(released);
    }

    fn store_released(&mut self, released: Vec<(u64, PullEvent)>) {
        for (id, event) in released {
            self.batch.folds.insert(id, None);
            self.store(event);
        }
    }
}

/// Lets a recording wait for its write. If as many wait as may, the disk hangs: it is answered at once, as after a failed write.
fn await_write(waiting: &mut Vec<Token>, token: Token, effects: &mut Vec<Effect>) {
    if waiting.len() < WAITING_MOST {
        waiting.push(token);
    } else {
        effects.push(Effect::Answer(token));
    }
}
