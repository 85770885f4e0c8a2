//! The pulls of a node that wait for a permit of the node or have one, each with one record. It is forgotten when its caller is silent.
//! Thousands may wait, so the next one and silent ones are found without a scan of all.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use contract::PermitId;

#[derive(Debug, Default)]
pub(super) struct Pulls {
    last_number: u64,
    all: BTreeMap<PermitId, Pull>,
    /// Those that wait, in order of arrival.
    waiting: BTreeMap<u64, PermitId>,
    /// Those that have a permit.
    granted: BTreeSet<PermitId>,
    /// Ordered by the time when each was requested last.
    by_last_seen: BTreeSet<(Duration, PermitId)>,
}

/// A pull, and when it was requested last.
#[derive(Debug)]
struct Pull {
    image: String,
    last_seen: Duration,
    /// In order of arrival.
    number: u64,
}

impl Pulls {
    pub(super) fn waiting_count(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn granted_count(&self) -> usize {
        self.granted.len()
    }

    pub(super) fn is_granted(&self, permit: PermitId) -> bool {
        self.granted.contains(&permit)
    }

    /// Adds a pull that waits behind all others. None has this permit yet.
    pub(super) fn push(&mut self, now: Duration, permit: PermitId, image: String) {
        self.last_number += 1;
        self.waiting.insert(self.last_number, permit);
        self.by_last_seen.insert((now, permit));
        self.all.insert(permit, Pull { image, last_seen: now, number: self.last_number });
    }

    /// Repeats the request of a pull, which keeps its place; false if it is not known.
    pub(super) fn refresh(&mut self, now: Duration, permit: PermitId) -> bool {
        let Some(pull) = self.all.get_mut(&permit) else { return false };
        self.by_last_seen.remove(&(pull.last_seen, permit));
        self.by_last_seen.insert((now, permit));
        pull.last_seen = now;
        true
    }

    /// Gives a permit to a pull that waits.
    pub(super) fn grant(&mut self, permit: PermitId) {
        if let Some(pull) = self.all.get(&permit) {
            self.waiting.remove(&pull.number);
            self.granted.insert(permit);
        }
    }

    pub(super) fn remove(&mut self, permit: PermitId) {
        if let Some(pull) = self.all.remove(&permit) {
            self.by_last_seen.remove(&(pull.last_seen, permit));
            self.waiting.remove(&pull.number);
            self.granted.remove(&permit);
        }
    }

    /// The first waiting pull whose image nobody pulls now, otherwise the first. So an image that is requested again and again does not
    /// hold back the others.
    pub(super) fn next_turn(&self) -> Option<PermitId> {
        let image_of = |permit: &PermitId| self.all.get(permit).map(|pull| pull.image.as_str());
        let pulled: BTreeSet<&str> = self.granted.iter().filter_map(image_of).collect();
        let nobody_pulls = |waits: &&PermitId| image_of(waits).is_none_or(|image| !pulled.contains(image));
        self.waiting.values().find(nobody_pulls).or_else(|| self.waiting.values().next()).copied()
    }

    /// How many wait before it; none if it does not wait.
    pub(super) fn ahead_of(&self, permit: PermitId) -> Option<u64> {
        let number = self.all.get(&permit).filter(|_| !self.is_granted(permit))?.number;
        Some(self.waiting.range(..number).count() as u64)
    }

    /// When the pull that was silent for the longest time was requested last.
    pub(super) fn silent_since(&self) -> Option<Duration> {
        self.by_last_seen.first().map(|(last_seen, _)| *last_seen)
    }

    /// Forgets the pulls that were not requested again within `after`, and returns how many of them had a permit.
    pub(super) fn expire(&mut self, now: Duration, after: Duration) -> u64 {
        let before = self.granted.len();
        while let Some((last_seen, permit)) = self.by_last_seen.first().copied()
            && now.saturating_sub(last_seen) >= after
        {
            self.remove(permit);
        }
        (before - self.granted.len()) as u64
    }

    pub(super) fn assert_invariants(&self) {
        let all = self.all.len();
        debug_assert_eq!(self.waiting.len() + self.granted.len(), all, "each pull waits or has a permit");
        debug_assert_eq!(self.by_last_seen.len(), all, "each pull is found by time");
    }
}
