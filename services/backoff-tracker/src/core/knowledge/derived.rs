//! A cache of derived entries, kept until a report that matters arrives. For each event a request looks at about ten back-off keys, and one
//! back-off key may have thousands of reports.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use super::backoff_key::BackoffKeyId;
use super::entry::{Entry, Viewpoint};

/// Entries by back-off key. Each is dropped with the last report on its key, so their number is bounded by the replica.
#[derive(Debug, Default)]
pub(super) struct Derived {
    entries: RefCell<BTreeMap<BackoffKeyId, Box<Kept>>>,
}

#[derive(Debug)]
struct Kept {
    entry: Option<Entry>,
    /// How many nodes were alive, in all and in the zone, when it was derived.
    alive: (usize, usize),
    /// Until when it is valid: then a report expires.
    until: Duration,
}

impl Derived {
    /// Returns the cached entry if it is valid; otherwise derives it. `derive` returns the entry, and until when it is valid.
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

    /// A report on a back-off key was received or forgotten.
    pub(super) fn forget(&self, backoff_key: BackoffKeyId) {
        self.entries.borrow_mut().remove(&backoff_key);
    }
}
