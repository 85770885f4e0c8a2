//! The server's time, estimated from the stamps of its messages.

use std::time::Duration;

/// After this time the least delay is forgotten, in case the server's clock was set back.
const KEPT: Duration = Duration::from_secs(60);
/// The longest delay. If a message seems later, a clock was probably set.
const LONGEST_DELAY: Duration = Duration::from_secs(60);

/// How late messages are by their server's stamps, compared with the least delay seen, so that the difference of the two clocks does not
/// matter.
#[derive(Debug, Default)]
pub(crate) struct ServerTime {
    /// The least differences between this node's clock and a stamp, in nanoseconds: of the current and the previous period.
    least: Option<i128>,
    least_before: Option<i128>,
    since: Duration,
}

impl ServerTime {
    /// Takes the stamp of a message in nanoseconds; returns how much later than the fastest message it came.
    pub(crate) fn late(&mut self, now: Duration, stamp: i128) -> Duration {
        if now >= self.since + KEPT {
            (self.least_before, self.least, self.since) = (self.least.take(), None, now);
        }
        let apart = i128::try_from(now.as_nanos()).unwrap_or(i128::MAX) - stamp;
        let least = self.least.map_or(apart, |least| least.min(apart));
        self.least = Some(least);
        let least = self.least_before.map_or(least, |before| before.min(least));
        Duration::from_nanos(u64::try_from(apart - least).unwrap_or_default()).min(LONGEST_DELAY)
    }

    /// How far the server's clock is ahead of this node's, less the least transit time of a message, in nanoseconds; none: no message was
    /// received yet.
    pub(crate) fn ahead(&self) -> Option<i128> {
        self.least.into_iter().chain(self.least_before).min().map(|least| -least)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lateness_is_measured_against_the_fastest_whatever_the_clocks_say() {
        let mut time = ServerTime::default();
        let minute = 60_000_000_000_i128;
        let at = Duration::from_secs;
        // The server's clock is 5 min ahead.
        assert_eq!(time.late(at(10), 10_000_000_000 + 5 * minute), Duration::ZERO);
        assert_eq!(time.late(at(20), 18_000_000_000 + 5 * minute), at(2));
        assert_eq!(time.late(at(30), 30_000_000_000 + 5 * minute), Duration::ZERO);
        // It is set back: for a while every message seems up to 1 min late; then the new time is known.
        assert_eq!(time.late(at(40), 40_000_000_000), at(60));
        assert_eq!(time.late(at(101), 101_000_000_000), at(60));
        assert_eq!(time.late(at(170), 170_000_000_000), Duration::ZERO);
    }

    #[test]
    fn the_server_s_time_is_known_by_the_fastest_message() {
        let mut time = ServerTime::default();
        let (at, second) = (Duration::from_secs, 1_000_000_000_i128);
        assert_eq!(time.ahead(), None);
        time.late(at(10), 1_010 * second);
        time.late(at(12), 1_011 * second);
        assert_eq!(time.ahead(), Some(1_000 * second));
        // Also after a long silence, however late the first delayed message comes.
        time.late(at(500), 1_100 * second);
        assert_eq!(time.ahead(), Some(1_000 * second));
        // A clock that was set forward is known at once.
        time.late(at(501), 1_801 * second);
        assert_eq!(time.ahead(), Some(1_300 * second));
    }
}
