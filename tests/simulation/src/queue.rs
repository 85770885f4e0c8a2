//! A queue of events in virtual time.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::time::Duration;

/// A planned event; events of the same instant come in the order in which they were planned.
#[derive(Debug)]
pub(crate) struct Queue<E> {
    heap: BinaryHeap<Planned<E>>,
    planned: u64,
}

#[derive(Debug)]
struct Planned<E> {
    at: Duration,
    number: u64,
    event: E,
}

impl<E> Default for Queue<E> {
    fn default() -> Self {
        Self { heap: BinaryHeap::new(), planned: 0 }
    }
}

impl<E> Queue<E> {
    pub(crate) fn plan(&mut self, at: Duration, event: E) {
        self.planned += 1;
        self.heap.push(Planned { at, number: self.planned, event });
    }

    /// The next event before `end`.
    pub(crate) fn next(&mut self, end: Duration) -> Option<(Duration, E)> {
        if self.heap.peek()?.at >= end {
            return None;
        }
        self.heap.pop().map(|planned| (planned.at, planned.event))
    }
}

impl<E> Ord for Planned<E> {
    fn cmp(&self, other: &Self) -> Ordering {
        // The heap returns the greatest element first, so the order is reversed.
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

impl<E> PartialOrd for Planned<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> PartialEq for Planned<E> {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.number) == (other.at, other.number)
    }
}

impl<E> Eq for Planned<E> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_in_order_of_time_then_of_planning() {
        let mut queue = Queue::default();
        for (second, name) in [(2, "c"), (1, "a"), (1, "b"), (9, "late")] {
            queue.plan(Duration::from_secs(second), name);
        }
        let end = Duration::from_secs(9);
        let order: Vec<&str> = std::iter::from_fn(|| queue.next(end).map(|(_, event)| event)).collect();
        assert_eq!(order, ["a", "b", "c"]);
    }
}
