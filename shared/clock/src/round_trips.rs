//! How long answers take. The time-out of an answer follows from it, so that a slow bus does not count as lost.

use std::time::Duration;

/// How many answers are used, because one or two of them may have been delayed.
const LAST: usize = 3;

/// The last answers to questions that were asked after the previous answer: a process that was suspended gets several late ones at once.
/// The shortest of them counts as the usual time. The first answer alone counts, so that a slow bus is known after one time-out.
#[derive(Clone, Copy, Debug)]
pub struct RoundTrips {
    last: [Duration; LAST],
    next: usize,
    /// How long an answer is expected to take before answers were seen.
    expected: Duration,
    /// How many answers were recorded, up to [`LAST`].
    count: usize,
    /// When an answer was last recorded.
    seen: Option<Duration>,
}

impl RoundTrips {
    /// Expects each answer to take this long until answers were seen.
    #[must_use]
    pub fn expected(took: Duration) -> Self {
        Self { last: [took; LAST], next: 0, expected: took, count: 0, seen: None }
    }

    /// Records an answer to a question asked at `asked`; returns how long it took.
    pub fn saw(&mut self, now: Duration, asked: Duration) -> Duration {
        let took = now.saturating_sub(asked);
        match self.seen {
            None => self.last = [took; LAST],
            Some(seen) if asked < seen => return took,
            Some(_) => {
                self.last[self.next] = took;
                self.next = (self.next + 1) % LAST;
            }
        }
        self.seen = Some(now);
        self.count = (self.count + 1).min(LAST);
        took
    }

    /// Records that an answer did not come within this time. Several in a row show a slow bus; one alone is a lost message.
    pub fn missed(&mut self, waited: Duration) {
        self.last[self.next] = waited;
        self.next = (self.next + 1) % LAST;
    }

    /// How long an answer usually takes.
    #[must_use]
    pub fn usual(&self) -> Duration {
        self.last.into_iter().min().unwrap_or_default()
    }

    /// The usual time, but no longer than expected until enough answers were seen: the first of them may have been held up.
    #[must_use]
    pub fn usual_at_best(&self) -> Duration {
        if self.count < LAST { self.usual().min(self.expected) } else { self.usual() }
    }

    /// The time-out of an answer: twice the usual time, within these limits.
    #[must_use]
    pub fn within(&self, least: Duration, most: Duration) -> Duration {
        (self.usual() * 2).clamp(least, most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn answers_are_waited_for_as_long_as_they_usually_take() {
        // The times of the last answers, the usual time, and the time-out.
        let table = [
            (vec![], ms(50), ms(250)),
            (vec![ms(2); 3], ms(2), ms(250)),
            (vec![ms(900)], ms(900), ms(1_800)),
            (vec![ms(900), ms(20)], ms(20), ms(250)),
            (vec![ms(400), ms(380), ms(900)], ms(380), ms(760)),
            (vec![ms(1_600); 3], ms(1_600), ms(2_000)),
            (vec![ms(900), ms(900), ms(900), ms(900), ms(20)], ms(20), ms(250)),
        ];
        for (took, usual, within) in table {
            let mut trips = RoundTrips::expected(ms(50));
            let mut now = Duration::ZERO;
            for took in &took {
                now += *took;
                trips.saw(now, now - *took);
            }
            assert_eq!((trips.usual(), trips.within(ms(250), ms(2_000))), (usual, within), "{took:?}");
        }
    }

    #[test]
    fn the_first_answers_may_have_been_held_up() {
        let mut trips = RoundTrips::expected(ms(50));
        for (number, at_best) in [(1, 50), (2, 50), (3, 900), (4, 900)] {
            trips.saw(ms(number * 1_000), ms(number * 1_000 - 900));
            assert_eq!((trips.usual(), trips.usual_at_best()), (ms(900), ms(at_best)), "{number}");
        }
        trips.saw(ms(5_020), ms(5_000));
        assert_eq!(trips.usual_at_best(), ms(20));
    }

    #[test]
    fn missing_answers_in_a_row_show_a_slow_bus_and_one_does_not() {
        let mut trips = RoundTrips::expected(ms(50));
        trips.missed(ms(1_000));
        trips.missed(ms(1_000));
        assert_eq!(trips.usual(), ms(50));
        trips.missed(ms(1_000));
        assert_eq!(trips.within(ms(1_000), ms(2_000)), ms(2_000));
        trips.saw(ms(5_020), ms(5_000));
        assert_eq!(trips.usual(), ms(20), "the first answer alone counts");
    }

    #[test]
    fn answers_received_together_count_as_one_sample() {
        let mut trips = RoundTrips::expected(ms(50));
        trips.saw(ms(20), ms(0));
        for asked in 30..100 {
            trips.saw(ms(2_000), ms(asked));
        }
        assert_eq!(trips.usual(), ms(20));
    }
}
