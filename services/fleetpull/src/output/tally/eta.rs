//! The rate of bytes of one node, and the remaining time at a rate.

use std::collections::VecDeque;
use std::time::Duration;

/// The time over which the rate is measured: short enough to show a stall soon, and long enough to ignore one slow second.
const WINDOW: Duration = Duration::from_secs(30);
/// The least time between samples. Nodes are asked once per second.
const EVERY: Duration = Duration::from_secs(1);
/// The shortest measurement that gives a rate.
pub(super) const LEAST: Duration = Duration::from_secs(3);

/// The fetched bytes of a node by time, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Eta {
    samples: VecDeque<(Duration, u64)>,
}

impl Eta {
    /// Takes the number of fetched bytes at a time since the start of the job. It is ignored within [`EVERY`] of the last one.
    pub(super) fn see(&mut self, at: Duration, done_bytes: u64) {
        if self.samples.back().is_some_and(|(last, _)| at < *last + EVERY) {
            return;
        }
        self.samples.push_back((at, done_bytes));
        while self.samples.front().is_some_and(|(first, _)| at - *first > WINDOW) {
            self.samples.pop_front();
        }
    }

    /// Bytes per second. None if the measurement is too short.
    pub(super) fn bytes_per_second(&self) -> Option<u64> {
        let ((began, before), (ended, after)) = (self.samples.front()?, self.samples.back()?);
        let lasted = ended.saturating_sub(*began);
        if lasted < LEAST {
            return None;
        }
        let bytes = u128::from(after.saturating_sub(*before)) * 1_000 / lasted.as_millis().max(1);
        Some(u64::try_from(bytes).unwrap_or(u64::MAX))
    }
}

/// How many milliseconds a number of bytes takes. None if the rate is 0.
pub(super) fn milliseconds_for(bytes: u64, per_second: u64) -> Option<u64> {
    let milliseconds = (u128::from(bytes) * 1_000).checked_div(u128::from(per_second))?;
    Some(u64::try_from(milliseconds).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(samples: &[(u64, u64)]) -> Eta {
        let mut eta = Eta::default();
        samples.iter().for_each(|(second, bytes)| eta.see(Duration::from_secs(*second), *bytes));
        eta
    }

    #[test]
    fn rate_is_of_the_last_30_s() {
        assert_eq!(seen(&[]).bytes_per_second(), None);
        assert_eq!(seen(&[(0, 0), (2, 200)]).bytes_per_second(), None, "two seconds say nothing");
        assert_eq!(seen(&[(0, 0), (4, 400)]).bytes_per_second(), Some(100));
        assert_eq!(seen(&[(0, 0), (10, 1_000_000), (41, 1_000_000), (45, 1_000_000)]).bytes_per_second(), Some(0), "a stall is seen");
        assert_eq!((milliseconds_for(1_000, 100), milliseconds_for(u64::MAX, 100)), (Some(10_000), Some(u64::MAX)), "nothing overflows");
        assert_eq!(milliseconds_for(1, 0), None, "nothing comes");
    }

    #[test]
    fn backward_clock_keeps_eta() {
        let eta = seen(&[(0, 0), (4, 400), (1, 9_000), (3, 0)]);
        assert_eq!(eta.bytes_per_second(), Some(100));
        assert_eq!(seen(&[(0, 900), (4, 0)]).bytes_per_second(), Some(0), "nor do bytes that are fewer");
    }
}
