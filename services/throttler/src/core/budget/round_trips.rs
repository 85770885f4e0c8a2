//! How long answers take on this bus: what is waited for an answer follows from it, so that a slow bus is no lost one.

use std::time::Duration;

use super::{ANSWER_COUNTS, ANSWER_WITHIN, FLEET_PERMIT_LEASE};

/// So many answers say how slow the bus is: one or two that were held up say nothing.
const LAST: usize = 3;
/// An answer that took longer than usual by more than this was held up: what it says of now is old.
const HELD_UP: Duration = Duration::from_millis(40);
/// However slow the bus is, an answer is missed after this.
const WITHIN_MOST: Duration = Duration::from_secs(2);
/// However slow the bus is, half a second is left of a permit's lease to renew it.
const COUNTS_MOST: Duration = Duration::from_millis(FLEET_PERMIT_LEASE.as_millis() as u64 - 500);

/// The last answers, each to a question that was asked after the one before was heard: who was asleep hears many that took long. The least
/// time that one of them took is what an answer usually takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct RoundTrips {
    last: [Duration; LAST],
    next: usize,
    seen: Duration,
}

impl RoundTrips {
    /// Until answers were seen, each is expected to take so long.
    pub(super) fn expected(took: Duration) -> Self {
        Self { last: [took; LAST], next: 0, seen: Duration::ZERO }
    }

    /// An answer has come; tells how long it took.
    pub(super) fn saw(&mut self, now: Duration, asked: Duration) -> Duration {
        let took = now.saturating_sub(asked);
        if asked >= self.seen {
            self.last[self.next] = took;
            self.next = (self.next + 1) % LAST;
            self.seen = now;
        }
        took
    }

    fn usual(&self) -> Duration {
        self.last.into_iter().min().unwrap_or_default()
    }

    /// Whether an answer that took so long was held up on its way.
    pub(super) fn is_held_up(&self, took: Duration) -> bool {
        took > self.usual() + HELD_UP
    }

    /// How long an answer is waited for until it is asked for again.
    pub(super) fn within(&self) -> Duration {
        (self.usual() * 2).clamp(ANSWER_WITHIN, WITHIN_MOST)
    }

    /// How long after the question an answer still counts.
    pub(super) fn counts(&self) -> Duration {
        (self.usual() * 4).clamp(ANSWER_COUNTS, COUNTS_MOST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn answers_that_come_together_say_as_little_as_one() {
        let mut trips = RoundTrips::expected(ms(50));
        for asked in 0..100 {
            trips.saw(ms(2_000), ms(asked));
        }
        assert_eq!(trips.within(), ms(250));
    }

    #[test]
    fn answers_are_waited_for_as_long_as_they_usually_take() {
        // What the last answers took: within which time one is waited for, until when it counts, and which one is held up.
        let table = [
            (vec![], ms(250), ms(500), ms(91)),
            (vec![ms(2); 3], ms(250), ms(500), ms(43)),
            (vec![ms(900); 2], ms(250), ms(500), ms(91)),
            (vec![ms(400), ms(380), ms(900)], ms(760), ms(1_520), ms(421)),
            (vec![ms(1_600); 3], ms(2_000), ms(2_500), ms(1_641)),
            (vec![ms(900), ms(900), ms(900), ms(900), ms(20)], ms(250), ms(500), ms(61)),
            (vec![ms(5_000); 3], ms(2_000), ms(2_500), ms(5_041)),
        ];
        for (took, within, counts, held_up) in table {
            let mut trips = RoundTrips::expected(ms(50));
            let mut now = Duration::ZERO;
            for took in &took {
                now += *took;
                trips.saw(now, now - *took);
            }
            assert_eq!((trips.within(), trips.counts()), (within, counts), "{took:?}");
            assert!(trips.is_held_up(held_up) && !trips.is_held_up(held_up - ms(1)), "{took:?}");
        }
    }
}
