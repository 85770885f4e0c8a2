//! Statistics of durations in constant memory: the sum, the median and the longest.

/// Each doubling has 2^5 buckets, so that the median is exact to 3 %.
const STEPS_BITS: u32 = 5;
const STEPS: u64 = 1 << STEPS_BITS;

/// The counted durations.
#[derive(Clone, Debug, Default)]
pub(super) struct Spread {
    pub(super) count: u64,
    pub(super) sum_ms: u64,
    pub(super) longest_ms: u64,
    /// The number of durations in each bucket.
    buckets: Vec<u64>,
}

impl Spread {
    pub(super) fn add(&mut self, ms: u64) {
        let index = index_of(ms);
        if self.buckets.len() <= index {
            self.buckets.resize(index + 1, 0);
        }
        if let Some(bucket) = self.buckets.get_mut(index) {
            *bucket += 1;
        }
        self.count += 1;
        self.sum_ms = self.sum_ms.saturating_add(ms);
        self.longest_ms = self.longest_ms.max(ms);
    }

    /// The median. None if there are no durations.
    pub(super) fn median_ms(&self) -> Option<u64> {
        let mut left = self.count.div_ceil(2);
        let index = self.buckets.iter().position(|bucket| {
            let is_here = *bucket >= left;
            left = left.saturating_sub(*bucket);
            is_here
        });
        index.filter(|_| self.count > 0).map(|index| least_of(index).min(self.longest_ms))
    }
}

fn index_of(ms: u64) -> usize {
    let doublings = ms.checked_ilog2().unwrap_or(0).saturating_sub(STEPS_BITS);
    let index = u64::from(doublings) * STEPS + (ms >> doublings);
    usize::try_from(index).unwrap_or(usize::MAX)
}

/// The shortest duration of a bucket.
fn least_of(index: usize) -> u64 {
    let index = index as u64;
    let doublings = (index / STEPS).saturating_sub(1);
    (index - doublings * STEPS) << doublings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_exact_to_three_percent() {
        let table: [(&[u64], Option<u64>); 6] =
            [(&[], None), (&[0], Some(0)), (&[5], Some(5)), (&[1, 2, 3], Some(2)), (&[40, 10, 30, 20], Some(20)), (&[63, 63, 1], Some(63))];
        for (durations, median) in table {
            let mut spread = Spread::default();
            durations.iter().for_each(|ms| spread.add(*ms));
            assert_eq!(spread.median_ms(), median, "{durations:?}");
        }
        for ms in [64, 100, 999, 1_000, 12_345, 604_800_000, u64::MAX] {
            let mut spread = Spread::default();
            spread.add(ms);
            let median = spread.median_ms().expect("there is one");
            assert!(median <= ms && ms - median <= ms / 32, "{ms}: {median}");
        }
    }

    #[test]
    fn extreme_counts_do_not_overflow() {
        let mut spread = Spread::default();
        (0..3).for_each(|_| spread.add(u64::MAX));
        assert_eq!((spread.count, spread.sum_ms, spread.longest_ms), (3, u64::MAX, u64::MAX));
        assert!(spread.buckets.len() < 2_000);
    }
}
