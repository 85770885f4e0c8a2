//! What was derived from reports, kept until something is said that matters: every request of a node looks at some ten back-off keys each
//! time that anything happens, and a back-off key may have reports of thousands.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use super::backoff_key::BackoffKeyId;
use super::entry::{Entry, Viewpoint};

/// By back-off key. Bounded by the keys that there are reports on: it goes with the last report on its key.
#[derive(Debug, Default)]
pub(super) struct Derived {
    entries: RefCell<BTreeMap<BackoffKeyId, Box<Kept>>>,
}

#[derive(Debug)]
struct Kept {
    entry: Option<Entry>,
    /// Nodes alive, all and in the zone, by which it was derived.
    alive: (usize, usize),
    /// When who may be heard changes by itself.
    until: Duration,
}

impl Derived {
    /// The entry as it is known, or as it is derived now, with the time until which that is good.
    pub(super) fn entry(
        &self,
        backoff_key: BackoffKeyId,
        viewpoint: Viewpoint<'_>,
        derive: impl FnOnce() -> (Option<Entry>, Duration),
    ) -> Option<Entry> {
        let alive = (viewpoint.alive, viewpoint.alive_in_zone);
        if let Some(kept) = self.entries.borrow().get(&backoff_key).filter(|kept| kept.alive == alive && viewpoint.now < kept.until) {
            return kept.entry.clone();
        }
        let (entry, until) = derive();
        self.entries.borrow_mut().insert(backoff_key, Box::new(Kept { entry: entry.clone(), alive, until }));
        entry
    }

    /// Something was said of a back-off key, or forgotten.
    pub(super) fn forget(&self, backoff_key: BackoffKeyId) {
        self.entries.borrow_mut().remove(&backoff_key);
    }

    /// Who is heard has changed.
    pub(super) fn forget_all(&self) {
        self.entries.borrow_mut().clear();
    }
}
