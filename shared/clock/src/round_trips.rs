//! How long answers take: what is waited for an answer follows from it, so that a slow bus is no lost one.

use std::time::Duration;

/// So many answers say how slow the way is: one or two that were held up say nothing.
const LAST: usize = 3;

/// The last answers, each to a question that was asked after the one before was heard: who was asleep hears many that took long. The least
/// time that one of them took is what an answer usually takes.
#[derive(Clone, Copy, Debug)]
pub struct RoundTrips {
    last: [Duration; LAST],
    next: usize,
    seen: Duration,
}

impl RoundTrips {
    /// Until answers were seen, each is expected to take so long.
    #[must_use]
    pub fn expected(took: Duration) -> Self {
        Self { last: [took; LAST], next: 0, seen: Duration::ZERO }
    }

    /// An answer has come to what was asked at `asked`; tells how long it took.
    pub fn saw(&mut self, now: Duration, asked: Duration) -> Duration {
        let took = now.saturating_sub(asked);
        if asked >= self.seen {
            self.last[self.next] = took;
            self.next = (self.next + 1) % LAST;
            self.seen = now;
        }
        took
    }

    /// How long an answer usually takes.
    #[must_use]
    pub fn usual(&self) -> Duration {
        self.last.into_iter().min().unwrap_or_default()
    }

    /// How long an answer is waited for until it counts as lost: twice as long as it usually takes, within these.
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
        // What the last answers took: how long one usually takes, and is waited for.
        let table = [
            (vec![], ms(50), ms(250)),
            (vec![ms(2); 3], ms(2), ms(250)),
            (vec![ms(900); 2], ms(50), ms(250)),
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
    fn answers_that_come_together_say_as_little_as_one() {
        let mut trips = RoundTrips::expected(ms(50));
        for asked in 0..100 {
            trips.saw(ms(2_000), ms(asked));
        }
        assert_eq!(trips.usual(), ms(50));
    }
}
