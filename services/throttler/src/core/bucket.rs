//! A token bucket that allows exactly what Go's `x/time/rate` allows, which is what kubelet uses.

use std::time::Duration;

/// Starts full. Time is monotonic; if it goes backwards, no tokens are added.
#[derive(Clone, Debug)]
pub(super) struct TokenBucket {
    per_second: f64,
    burst: u32,
    tokens: f64,
    last: Duration,
}

impl TokenBucket {
    /// A full bucket. `per_second` tokens are added each second, up to `burst`.
    pub(super) fn full(per_second: f64, burst: u32) -> Self {
        Self { per_second, burst, tokens: f64::from(burst), last: Duration::ZERO }
    }

    /// Takes one token if there is one. A refusal costs nothing.
    pub(super) fn take(&mut self, now: Duration) -> bool {
        let tokens = self.tokens_at(now) - 1.0;
        if tokens < 0.0 {
            return false;
        }
        self.tokens = tokens;
        self.last = self.last.max(now);
        true
    }

    /// How long until a token is available; none if there never will be one.
    pub(super) fn ready_in(&self, now: Duration) -> Option<Duration> {
        if self.burst == 0 {
            return None;
        }
        let missing = (1.0 - self.tokens_at(now)).max(0.0);
        // One nanosecond more, so that rounding never wakes a waiter too early.
        Some(if missing > 0.0 { Duration::from_secs_f64(missing / self.per_second) + Duration::from_nanos(1) } else { Duration::ZERO })
    }

    fn tokens_at(&self, now: Duration) -> f64 {
        let elapsed = now.saturating_sub(self.last).as_secs_f64();
        (self.tokens + elapsed * self.per_second).min(f64::from(self.burst))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(bucket: &mut TokenBucket, at_ms: u64, attempts: u32) -> u32 {
        (0..attempts).map(|_| u32::from(bucket.take(Duration::from_millis(at_ms)))).sum()
    }

    #[test]
    fn kubelets_defaults_allow_ten_at_once_and_five_a_second() {
        let mut bucket = TokenBucket::full(5.0, 10);
        assert_eq!(taken(&mut bucket, 0, 20), 10);
        assert_eq!(taken(&mut bucket, 199, 5), 0);
        assert_eq!(taken(&mut bucket, 200, 5), 1);
        assert_eq!(taken(&mut bucket, 1_200, 20), 5);
        assert_eq!(taken(&mut bucket, 60_000, 20), 10, "no more than the burst gathers");
    }

    #[test]
    fn a_burst_of_zero_refuses_everything() {
        let mut bucket = TokenBucket::full(2_000.0, 0);
        assert_eq!(taken(&mut bucket, 10_000, 3), 0);
        assert_eq!(bucket.ready_in(Duration::from_secs(10)), None);
    }

    #[test]
    fn backward_clock_adds_no_tokens() {
        let mut bucket = TokenBucket::full(5.0, 1);
        assert!(bucket.take(Duration::from_secs(10)));
        assert!(!bucket.take(Duration::from_secs(5)));
        assert!(!bucket.take(Duration::from_millis(10_100)));
        assert!(bucket.take(Duration::from_millis(10_200)));
    }

    #[test]
    fn ready_in_is_when_a_take_succeeds() {
        let mut bucket = TokenBucket::full(3.0, 1);
        let mut now = Duration::from_millis(7);
        for _ in 0..100 {
            now += bucket.ready_in(now).expect("will be ready");
            assert!(bucket.take(now));
            assert!(!bucket.take(now));
        }
    }
}
