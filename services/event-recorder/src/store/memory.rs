//! A store in memory for tests: it outlives its recorder, and can be made to fail.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use contract::PullEvent;

use super::{OpenedStore, OutboxStore, StoreError, Syncer};
use crate::core::{Batch, Recovered, Slot, StreamMark, number_of};

/// The store's contents. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct MemoryStore(Arc<Mutex<Contents>>);

#[derive(Debug, Default)]
struct Contents {
    events: BTreeMap<u64, Arc<PullEvent>>,
    folds: BTreeMap<u64, Arc<PullEvent>>,
    mark: StreamMark,
    last_number: u64,
    /// The highest number of an event that could not be stored.
    last_unstored: u64,
    fails: bool,
}

impl MemoryStore {
    /// Makes all writes fail, or none.
    pub fn set_failing(&self, fails: bool) {
        self.contents().fails = fails;
    }

    /// Opens it again, as after the end of a process.
    #[must_use]
    pub fn open(&self, incarnation: &str) -> OpenedStore {
        let contents = self.contents();
        let is_lost = contents.last_unstored > contents.last_number;
        let recovered = Recovered {
            next_number: contents.last_number.max(contents.last_unstored) + 1,
            slots: contents.events.values().map(Slot::of).collect(),
            folds: contents.folds.iter().map(|(id, event)| (*id, PullEvent::clone(event))).collect(),
            mark: contents.mark.clone(),
            lost: is_lost.then(|| "events could not be stored".to_owned()),
        };
        OpenedStore { store: Box::new(self.clone()), incarnation: incarnation.to_owned(), recovered }
    }

    fn contents(&self) -> MutexGuard<'_, Contents> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OutboxStore for MemoryStore {
    fn write(&mut self, batch: &Batch) -> Result<(), StoreError> {
        let mut contents = self.contents();
        let numbers = batch.put.iter().map(number_of);
        if contents.fails {
            contents.last_unstored = numbers.max().unwrap_or_default().max(contents.last_unstored);
            return Err(StoreError("no space left on device".to_owned()));
        }
        for event in &batch.put {
            let number = number_of(event);
            contents.last_number = contents.last_number.max(number);
            contents.events.insert(number, Arc::clone(event));
        }
        for number in &batch.remove {
            contents.events.remove(number);
        }
        for (id, event) in &batch.folds {
            match event {
                Some(event) => contents.folds.insert(*id, Arc::clone(event)),
                None => contents.folds.remove(id),
            };
        }
        if let Some(mark) = &batch.mark {
            contents.mark = mark.clone();
        }
        Ok(())
    }

    fn load(&mut self, after: u64, limit: usize) -> Result<Vec<Arc<PullEvent>>, StoreError> {
        Ok(self.contents().events.range(after + 1..).take(limit).map(|(_, event)| Arc::clone(event)).collect())
    }

    fn newest(&mut self, limit: usize) -> Result<Vec<Arc<PullEvent>>, StoreError> {
        let contents = self.contents();
        let skip = contents.events.len().saturating_sub(limit);
        Ok(contents.events.values().skip(skip).cloned().collect())
    }

    fn syncer(&self) -> Syncer {
        Arc::new(|| Ok(()))
    }

    fn close(&mut self) -> Result<(), StoreError> {
        Ok(())
    }
}
