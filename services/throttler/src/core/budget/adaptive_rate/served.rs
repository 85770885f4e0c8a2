//! Counts what a registry served in the last second.

use std::time::Duration;

/// What was served is counted in parts: those of a second, and the present part, which is not over.
const PARTS: usize = 5;
const PART: Duration = Duration::from_millis(250);

/// What was served in the last second.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Served {
    /// The newest first.
    parts: [u32; PARTS],
    newest: u128,
}

impl Served {
    pub(super) fn add(&mut self, now: Duration, count: u32) {
        let part = now.as_nanos() / PART.as_nanos();
        let passed = usize::try_from(part.saturating_sub(self.newest)).unwrap_or(PARTS).min(PARTS);
        self.parts.rotate_right(passed);
        self.parts[..passed].fill(0);
        self.newest = part.max(self.newest);
        self.parts[0] = self.parts[0].saturating_add(count);
    }

    /// The mean of the last 1 to 1.25 s. Without the last part, up to a quarter of a second would be missing.
    pub(super) fn in_a_second(mut self, now: Duration) -> f64 {
        self.add(now, 0);
        let present = Duration::from_nanos(u64::try_from(now.as_nanos() % PART.as_nanos()).unwrap_or_default());
        let counted = PART.as_secs_f64() * (PARTS - 1) as f64 + present.as_secs_f64();
        f64::from(self.parts.iter().sum::<u32>()) / counted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_load_counts_in_full_at_any_moment() {
        let mut served = Served::default();
        for number in 0..500_u64 {
            let now = Duration::from_millis(number * 20);
            served.add(now, 1);
            let counted = served.in_a_second(now + Duration::from_millis(10));
            assert!(number < 65 || (counted - 50.0).abs() <= 1.0, "{counted} of 50 a second at {now:?}");
        }
        assert!(served.in_a_second(Duration::from_millis(12_000)).abs() < 0.1);
    }
}
