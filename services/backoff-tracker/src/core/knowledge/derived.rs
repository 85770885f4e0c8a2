//! What was derived from reports, kept until something is said that matters: every request of a node looks at some ten topics each
//! time that anything happens, and a topic may have reports of thousands.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use super::entry::{Entry, Eyes};
use super::topic::TopicId;

/// By topic. Bounded by the topics there are reports of: whoever forgets the last word of one forgets this as well.
#[derive(Debug, Default)]
pub(super) struct Derived {
    entries: RefCell<BTreeMap<TopicId, Box<Kept>>>,
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
    pub(super) fn entry(&self, topic: TopicId, eyes: Eyes<'_>, derive: impl FnOnce() -> (Option<Entry>, Duration)) -> Option<Entry> {
        let alive = (eyes.alive, eyes.alive_in_zone);
        if let Some(kept) = self.entries.borrow().get(&topic).filter(|kept| kept.alive == alive && eyes.now < kept.until) {
            return kept.entry.clone();
        }
        let (entry, until) = derive();
        self.entries.borrow_mut().insert(topic, Box::new(Kept { entry: entry.clone(), alive, until }));
        entry
    }

    /// Something was said of a topic, or forgotten.
    pub(super) fn forget(&self, topic: TopicId) {
        self.entries.borrow_mut().remove(&topic);
    }

    /// Who is heard has changed.
    pub(super) fn forget_all(&self) {
        self.entries.borrow_mut().clear();
    }
}
