//! Pulls that wait in the node's own queue, in order of arrival. Each is found by permit and by time, because thousands may wait.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use contract::PermitId;

#[derive(Debug, Default)]
pub(super) struct Waiters {
    last_number: u64,
    by_number: BTreeMap<u64, Pull>,
    numbers: BTreeMap<PermitId, u64>,
    /// Ordered by the time when each was requested last.
    by_last_seen: BTreeSet<(Duration, PermitId)>,
}

/// A pull, and when it was requested last.
#[derive(Debug)]
pub(super) struct Pull {
    pub(super) permit: PermitId,
    pub(super) image: String,
    pub(super) last_seen: Duration,
}

impl Waiters {
    pub(super) fn len(&self) -> usize {
        self.by_number.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_number.is_empty()
    }

    pub(super) fn contains(&self, permit: PermitId) -> bool {
        self.numbers.contains_key(&permit)
    }

    /// Adds a pull at the end. No pull waits with this permit yet.
    pub(super) fn push(&mut self, now: Duration, permit: PermitId, image: String) {
        self.last_number += 1;
        self.numbers.insert(permit, self.last_number);
        self.by_last_seen.insert((now, permit));
        self.by_number.insert(self.last_number, Pull { permit, image, last_seen: now });
    }

    /// Repeats the request of a waiting pull, which keeps its place; false if it does not wait.
    pub(super) fn refresh(&mut self, now: Duration, permit: PermitId) -> bool {
        let Some(waiter) = self.numbers.get(&permit).and_then(|number| self.by_number.get_mut(number)) else { return false };
        self.by_last_seen.remove(&(waiter.last_seen, permit));
        self.by_last_seen.insert((now, permit));
        waiter.last_seen = now;
        true
    }

    pub(super) fn remove(&mut self, permit: PermitId) -> Option<Pull> {
        let waiter = self.by_number.remove(&self.numbers.remove(&permit)?)?;
        self.by_last_seen.remove(&(waiter.last_seen, permit));
        Some(waiter)
    }

    /// All waiting pulls, in order of arrival.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Pull> {
        self.by_number.values()
    }

    /// How many wait before it; none if it does not wait.
    pub(super) fn ahead_of(&self, permit: PermitId) -> Option<u64> {
        let number = self.numbers.get(&permit)?;
        Some(self.by_number.range(..number).count() as u64)
    }

    /// When the pull that was silent for the longest time was requested last.
    pub(super) fn silent_since(&self) -> Option<Duration> {
        self.by_last_seen.first().map(|(last_seen, _)| *last_seen)
    }

    /// Removes the pulls that were not requested again within `after`.
    pub(super) fn expire(&mut self, now: Duration, after: Duration) {
        while let Some((last_seen, permit)) = self.by_last_seen.first().copied() {
            if now.saturating_sub(last_seen) < after {
                return;
            }
            self.remove(permit);
        }
    }

    pub(super) fn assert_invariants(&self) {
        let all = self.by_number.len();
        debug_assert_eq!((self.numbers.len(), self.by_last_seen.len()), (all, all), "each waiting pull is found by permit and by time");
    }
}
