//! A node's permits of one budget, each with one record from its request to its accepted return. Thousands may wait, but each message
//! concerns few: those are found without a look at the others.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use contract::PermitId;

use super::COUNTED_ANEW;
use super::claim::{Claim, Stage};

#[derive(Debug, Default)]
pub(super) struct Claims {
    all: BTreeMap<PermitId, Claim>,
    /// Claims that wait for the fleet, in order of arrival.
    waiting: BTreeSet<(u64, PermitId)>,
    /// Waiting claims whose turn the leader has stated.
    placed: BTreeSet<PermitId>,
    /// Claims whose pulls may run, as many as the node pulls at once.
    in_flight: BTreeSet<PermitId>,
    /// Claims that are returned.
    returned: BTreeSet<PermitId>,
    /// Claims about which the leader was asked and has not answered.
    asked: BTreeSet<PermitId>,
    /// Ordered by the time when each lapses.
    lapses: BTreeSet<(Duration, PermitId)>,
    #[cfg(test)]
    looked_at: std::cell::Cell<usize>,
}

impl Claims {
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(super) fn get(&self, permit: PermitId) -> Option<&Claim> {
        self.look();
        self.all.get(&permit)
    }

    /// Adds a claim. None has this permit yet.
    pub(super) fn insert(&mut self, permit: PermitId, claim: Claim) {
        self.look();
        self.enter(permit, &claim);
        self.all.insert(permit, claim);
    }

    pub(super) fn remove(&mut self, permit: PermitId) -> Option<Claim> {
        self.look();
        let claim = self.all.remove(&permit)?;
        self.leave(permit, &claim);
        Some(claim)
    }

    pub(super) fn change<T>(&mut self, permit: PermitId, change: impl FnOnce(&mut Claim) -> T) -> Option<T> {
        let mut claim = self.remove(permit)?;
        let result = change(&mut claim);
        self.insert(permit, claim);
        Some(result)
    }

    pub(super) fn change_waiting<T>(&mut self, permit: PermitId, change: impl FnOnce(&mut Claim) -> T) -> Option<T> {
        self.get(permit).filter(|claim| claim.stage == Stage::Waiting)?;
        self.change(permit, change)
    }

    /// Changes all claims, for rare events.
    pub(super) fn change_all(&mut self, change: impl Fn(&mut Claim)) {
        let all: Vec<PermitId> = self.all.keys().copied().collect();
        for permit in all {
            self.change(permit, &change);
        }
    }

    pub(super) fn waiting(&self) -> impl Iterator<Item = PermitId> {
        self.waiting.iter().inspect(|_| self.look()).map(|(_, permit)| *permit)
    }

    pub(super) fn waiting_count(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn placed(&self) -> impl Iterator<Item = PermitId> {
        self.placed.iter().inspect(|_| self.look()).copied()
    }

    pub(super) fn in_flight(&self) -> impl Iterator<Item = PermitId> {
        self.in_flight.iter().inspect(|_| self.look()).copied()
    }

    pub(super) fn in_flight_count(&self) -> usize {
        self.in_flight.len()
    }

    pub(super) fn returned(&self) -> impl Iterator<Item = PermitId> {
        self.returned.iter().inspect(|_| self.look()).copied()
    }

    pub(super) fn returned_count(&self) -> usize {
        self.returned.len()
    }

    pub(super) fn asked(&self) -> impl Iterator<Item = PermitId> {
        self.asked.iter().inspect(|_| self.look()).copied()
    }

    pub(super) fn lapsed(&self, now: Duration) -> Vec<PermitId> {
        self.lapses.iter().take_while(|(at, _)| *at <= now).inspect(|_| self.look()).map(|(_, permit)| *permit).collect()
    }

    pub(super) fn assert_invariants(&self) {
        let all = self.all.len();
        debug_assert_eq!(self.waiting.len() + self.in_flight.len() + self.returned.len(), all, "each claim is in one stage");
        debug_assert_eq!(self.lapses.len(), all, "each claim lapses at one time");
        if all <= COUNTED_ANEW {
            let count = |which: fn(&Claim) -> bool| self.all.values().filter(|claim| which(claim)).count();
            debug_assert_eq!(self.placed.len(), count(Claim::is_placed), "each claim with a stated turn is found");
            debug_assert_eq!(self.asked.len(), count(|claim| claim.asked.is_some()), "each claim that was asked for is found");
        }
    }

    fn enter(&mut self, permit: PermitId, claim: &Claim) {
        match claim.stage {
            Stage::Waiting => drop(self.waiting.insert((claim.number, permit))),
            Stage::Held { .. } | Stage::Alone => drop(self.in_flight.insert(permit)),
            Stage::Returned { .. } => drop(self.returned.insert(permit)),
        }
        self.lapses.insert((claim.lapses(), permit));
        if claim.is_placed() {
            self.placed.insert(permit);
        }
        if claim.asked.is_some() {
            self.asked.insert(permit);
        }
    }

    fn leave(&mut self, permit: PermitId, claim: &Claim) {
        self.waiting.remove(&(claim.number, permit));
        self.lapses.remove(&(claim.lapses(), permit));
        for set in [&mut self.in_flight, &mut self.returned, &mut self.placed, &mut self.asked] {
            set.remove(&permit);
        }
    }

    fn look(&self) {
        #[cfg(test)]
        self.looked_at.set(self.looked_at.get() + 1);
    }

    /// How many claims were looked at since the last call.
    #[cfg(test)]
    pub(super) fn take_looked_at(&self) -> usize {
        self.looked_at.take()
    }
}
