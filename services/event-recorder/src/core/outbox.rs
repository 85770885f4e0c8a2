//! The stored events that the stream does not have yet. Only numbers and sizes are in memory, so that a full outbox takes little.

use std::collections::{BTreeMap, BTreeSet};

use super::step::Slot;

/// The stored events that wait for the stream.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    slots: BTreeMap<u64, Slot>,
    /// The numbers of the refusals, so that a full outbox is not searched for them at each event.
    refusals: BTreeSet<u64>,
    bytes: u64,
}

impl Outbox {
    pub(super) fn of(slots: Vec<Slot>) -> Self {
        let mut outbox = Self::default();
        slots.into_iter().for_each(|slot| outbox.insert(slot));
        outbox
    }

    pub(super) fn insert(&mut self, slot: Slot) {
        self.bytes += slot.bytes;
        if slot.is_refusal {
            self.refusals.insert(slot.number);
        }
        if let Some(before) = self.slots.insert(slot.number, slot) {
            self.bytes -= before.bytes;
        }
    }

    pub(super) fn remove(&mut self, number: u64) -> bool {
        let removed = self.slots.remove(&number);
        self.refusals.remove(&number);
        self.bytes -= removed.map_or(0, |slot| slot.bytes);
        removed.is_some()
    }

    pub(super) fn contains(&self, number: u64) -> bool {
        self.slots.contains_key(&number)
    }

    pub(super) fn len(&self) -> u64 {
        self.slots.len() as u64
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// The oldest event's time, in milliseconds since 1970.
    pub(super) fn oldest_ms(&self) -> Option<u64> {
        self.slots.values().next().map(|slot| slot.time_ms)
    }

    /// The smallest number above `number`.
    pub(super) fn next_after(&self, number: u64) -> Option<u64> {
        self.slots.range(number + 1..).next().map(|(number, _)| *number)
    }

    /// The event to drop first: the oldest refusal, else the oldest event; never one for which `is_kept`.
    pub(super) fn first_to_drop(&self, is_kept: impl Fn(u64) -> bool) -> Option<u64> {
        self.refusals.iter().chain(self.slots.keys()).find(|number| !is_kept(**number)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(number: u64, is_refusal: bool) -> Slot {
        Slot { number, bytes: 10, time_ms: number * 100, is_refusal }
    }

    #[test]
    fn refusals_are_dropped_before_others_and_the_oldest_first() {
        let mut outbox = Outbox::of(vec![slot(1, false), slot(2, true), slot(3, false), slot(4, true)]);
        let mut dropped = Vec::new();
        while let Some(number) = outbox.first_to_drop(|number| number == 3) {
            outbox.remove(number);
            dropped.push(number);
        }
        assert_eq!(dropped, [2, 4, 1]);
        assert_eq!((outbox.len(), outbox.bytes(), outbox.oldest_ms()), (1, 10, Some(300)));
        assert!(!outbox.remove(2), "it was removed before");
    }

    /// As the history of a node without a stream: it is always full, and its refusals were dropped long ago.
    #[test]
    fn full_outbox_is_not_searched_for_refusals() {
        let mut outbox = Outbox::of((1..=100_000).map(|number| slot(number, false)).collect());
        let asked = std::cell::Cell::new(0);
        for number in 100_001..=101_000 {
            let dropped = outbox.first_to_drop(|_| {
                asked.set(asked.get() + 1);
                false
            });
            assert_eq!(dropped, Some(number - 100_000));
            outbox.remove(number - 100_000);
            outbox.insert(slot(number, false));
        }
        assert_eq!(asked.get(), 1_000, "one event is looked at for each that is dropped");
    }

    #[test]
    fn event_stored_twice_counts_once() {
        let mut outbox = Outbox::of(vec![slot(1, false)]);
        outbox.insert(Slot { bytes: 30, ..slot(1, false) });
        assert_eq!((outbox.len(), outbox.bytes(), outbox.next_after(0), outbox.next_after(1)), (1, 30, Some(1), None));
    }
}
