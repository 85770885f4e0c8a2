//! Kubelet's delay after failures, as client-go's `flowcontrol.Backoff` has it.

use std::time::Duration;

/// The bounds between which a delay grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackoffPolicy {
    /// The delay after the first failure.
    pub initial: Duration,
    /// The longest delay.
    pub max: Duration,
}

impl Default for BackoffPolicy {
    /// Kubelet's policy for image pulls: `imageBackOffPeriod` and `MaxImageBackOff`.
    fn default() -> Self {
        Self { initial: Duration::from_secs(10), max: Duration::from_secs(300) }
    }
}

/// The delay after the last failure of a key. Times are monotonic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delay {
    backoff: Duration,
    /// How long it refuses the key, from `failed` on.
    hold: Duration,
    failed: Duration,
}

/// A pull that fails at every attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Failing {
    /// When its first attempt began.
    pub(super) since: Duration,
    /// How long an attempt takes.
    pub(super) took: Duration,
}

/// The shortest step of [`BackoffPolicy::of`], so that it ends if the policy's delays are zero.
const SHORTEST_STEP: Duration = Duration::from_secs(1);

impl BackoffPolicy {
    /// The delay after one more failure: the first one, or twice the `last` one up to `max`. It starts over if the last failure is longer
    /// ago than twice `max`.
    #[must_use]
    pub fn next(self, last: Option<Delay>, now: Duration) -> Delay {
        let backoff = self.grown(last, now, self.max);
        Delay { backoff, hold: backoff, failed: now }
    }

    /// Like [`Self::next`], for a key that other nodes found failing before. It is refused no longer than if this node had made an attempt
    /// each time that one was due since then, but at least for half of `initial`.
    pub(super) fn next_since(self, last: Option<Delay>, now: Duration, failing: Failing) -> Delay {
        let next = self.next(last, now);
        let due = self.due_after(failing, now).saturating_sub(now).max(self.initial / 2);
        Delay { hold: next.backoff.min(due), ..next }
    }

    /// The delay after a failure of an attempt that this rule did not allow: it refuses nothing by itself, but the next delay is longer.
    /// It grows at most to what this rule would have reached by `now`.
    pub(super) fn next_not_refusing(self, last: Option<Delay>, now: Duration, failing: Failing) -> Delay {
        let most = self.of(failing, now).0.max(last.map(|last| last.backoff).unwrap_or_default());
        Delay { backoff: self.grown(last, now, most), hold: self.held(last, now).unwrap_or_default(), failed: now }
    }

    /// The delay after a failure that does not make it longer, unless it is the first one.
    pub(super) fn next_not_grown(self, last: Option<Delay>, now: Duration) -> Delay {
        match last.filter(|_| !self.is_forgotten(last, now)) {
            Some(last) => Delay { failed: now, ..last },
            None => self.next(None, now),
        }
    }

    /// How long a key is still refused; none if it may be attempted, as at the very end of the delay.
    #[must_use]
    pub fn held(self, delay: Option<Delay>, now: Duration) -> Option<Duration> {
        let Delay { hold, failed, .. } = delay.filter(|_| !self.is_forgotten(delay, now))?;
        let since = now.saturating_sub(failed);
        (since < hold).then(|| hold - since)
    }

    /// True if a delay refused its key after the last failure.
    pub(super) fn has_refused(self, delay: Delay) -> bool {
        !delay.hold.is_zero() || self.initial.is_zero()
    }

    /// Whether there is no delay any more, so that it starts over.
    pub(super) fn is_forgotten(self, delay: Option<Delay>, now: Duration) -> bool {
        delay.is_none_or(|delay| self.is_long_ago(delay.failed, now))
    }

    /// Whether a failure counts no more: after twice the longest delay, as in client-go.
    pub(super) fn is_long_ago(self, failed: Duration, now: Duration) -> bool {
        now.saturating_sub(failed) > self.max * 2
    }

    /// When the next attempt is due, if an attempt was made each time that one was due.
    pub(super) fn due_after(self, failing: Failing, now: Duration) -> Duration {
        self.of(failing, now).1
    }

    /// The delay and its end at `now`, if an attempt was made each time that one was due.
    fn of(self, Failing { since, took }: Failing, now: Duration) -> (Duration, Duration) {
        let (mut delay, mut due) = (self.initial, since + took + self.initial);
        while due <= now {
            delay = (delay * 2).min(self.max);
            due += took + delay.max(SHORTEST_STEP);
        }
        (delay, due)
    }

    fn grown(self, last: Option<Delay>, now: Duration, most: Duration) -> Duration {
        let known = last.filter(|_| !self.is_forgotten(last, now));
        known.map_or(self.initial, |last| (last.backoff * 2).min(most))
    }
}

/// Whole milliseconds that have passed.
pub(crate) fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Whole milliseconds to wait: rounded up, so that a caller that waits this long is not refused again.
pub(super) fn milliseconds_left(left: Duration) -> u64 {
    u64::try_from(left.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    //! client-go's own unit tables (`backoff_test.go`), without its jitter, which kubelet does not use for images.

    use super::*;

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// One key's delay by a policy.
    struct Key {
        policy: BackoffPolicy,
        delay: Option<Delay>,
    }

    impl Key {
        fn new(initial: u64, max: u64) -> Self {
            Self { policy: BackoffPolicy { initial: seconds(initial), max: seconds(max) }, delay: None }
        }

        fn fail(&mut self, now: Duration) {
            self.delay = Some(self.policy.next(self.delay, now));
        }

        fn backoff(&self) -> Duration {
            self.delay.map(|delay| delay.backoff).unwrap_or_default()
        }

        fn held(&self, now: u64) -> Option<Duration> {
            self.policy.held(self.delay, seconds(now))
        }
    }

    fn failing(since: u64, took: u64) -> Failing {
        Failing { since: seconds(since), took: seconds(took) }
    }

    #[test]
    fn doubles_up_to_the_most() {
        let mut key = Key::new(1, 50);
        let mut seen = Vec::new();
        for tick in 0..10 {
            seen.push(key.backoff().as_secs());
            key.fail(seconds(tick));
        }
        assert_eq!(seen, [0, 1, 2, 4, 8, 16, 32, 50, 50, 50]);
    }

    #[test]
    fn delay_equals_client_gos_at_each_second() {
        let mut key = Key::new(1, 10);
        let mut free = Vec::new();
        for tick in 0..58 {
            if key.held(tick).is_none() {
                free.push(tick);
                key.fail(seconds(tick));
            }
        }
        // Upstream checks some ticks only; these are all of them, with its rows 0,1,3,7,15,25,35 and then every 10 s.
        assert_eq!(free, [0, 1, 3, 7, 15, 25, 35, 45, 55]);
    }

    #[test]
    fn delay_resets_after_twice_the_longest_delay_without_failure() {
        let mut key = Key::new(1, 10);
        for tick in [0, 1, 3, 7, 15, 25, 35] {
            key.fail(seconds(tick));
        }
        // 21 s without a failure: over 20 s, so tick 56 begins again with 1 s and tick 57 is free.
        assert_eq!(key.held(56), None);
        key.fail(seconds(56));
        assert_eq!(key.backoff(), seconds(1));
        assert_eq!(key.held(57), None);
    }

    #[test]
    fn the_edge_of_expiry_is_strict() {
        let mut key = Key::new(1, 5);
        key.fail(seconds(0));
        key.fail(seconds(10));
        assert_eq!(key.backoff(), seconds(2), "exactly twice the most is not expired");
        assert!(!key.policy.is_forgotten(key.delay, seconds(20)));
        assert!(key.policy.is_forgotten(key.delay, Duration::from_millis(20_001)));
        key.fail(Duration::from_millis(20_001));
        assert_eq!(key.backoff(), seconds(1));
    }

    #[test]
    fn the_high_water_mark_stays_for_a_while() {
        let mut key = Key::new(1, 5);
        for _ in 0..5 {
            key.fail(seconds(0));
        }
        key.fail(seconds(6));
        assert_eq!(key.backoff(), seconds(5));
    }

    /// Client-go's delays are 10, 20, 40 s: a key that failed at 0 s is due at 10, 30, 70 and 150 s.
    #[test]
    fn delay_of_key_that_failed_elsewhere_is_at_most_kubelets() {
        // Since when it fails, how long an attempt takes, and for each attempt of this node: when it ends, and how long the key is refused
        // then.
        for (since, took, attempts) in [
            (0, 0, &[(37, 10), (47, 20), (67, 5), (72, 78), (150, 160)][..]),
            (0, 0, &[(28, 5), (33, 20), (53, 17), (70, 80)]),
            (30, 0, &[(31, 9), (40, 20), (60, 40), (100, 80)]),
            // No other node had the failure before.
            (50, 0, &[(50, 10), (60, 20), (80, 40)]),
            // An attempt takes 10 s: it fails at 10 s, and is due at 20, 50, 100 and 190 s.
            (0, 10, &[(25, 10), (45, 5), (60, 40), (110, 80)]),
        ] {
            let mut key = Key::new(10, 300);
            for (now, held) in attempts {
                key.delay = Some(key.policy.next_since(key.delay, seconds(*now), failing(since, took)));
                assert_eq!(key.held(*now), Some(seconds(*held)), "failing since {since}, attempted at {now}");
            }
        }
        let mut none = Key::new(0, 0);
        none.delay = Some(none.policy.next_since(None, seconds(1_000), failing(0, 0)));
        assert_eq!(none.held(1_000), None);
    }

    #[test]
    fn disallowed_attempt_grows_delay_without_refusing() {
        let mut key = Key::new(10, 300);
        let count = |key: &mut Key, now: u64, since: u64| {
            key.delay = Some(key.policy.next_not_refusing(key.delay, seconds(now), failing(since, 0)));
        };
        // When it failed, and what the delay has grown to: no further than by attempts of this node at 0, 10, 30 and 70 s.
        for (now, grown) in [(0, 10), (5, 10), (11, 20), (17, 20), (29, 20), (30, 40), (69, 40), (75, 80)] {
            count(&mut key, now, 0);
            assert_eq!((key.backoff(), key.held(now)), (seconds(grown), None), "at {now}");
        }
        key.fail(seconds(80));
        assert_eq!(key.held(80), Some(seconds(160)));
        count(&mut key, 90, 0);
        assert_eq!((key.backoff(), key.held(90)), (seconds(160), Some(seconds(150))), "what holds, holds on");
        assert!(key.delay.is_some_and(|delay| key.policy.has_refused(delay)));
        count(&mut key, 691, 691);
        assert_eq!(key.backoff(), seconds(10), "what is long ago is forgotten");
        assert!(!key.delay.is_some_and(|delay| key.policy.has_refused(delay)));
    }

    #[test]
    fn stopped_clock_keeps_delay() {
        let mut key = Key::new(10, 300);
        key.fail(seconds(100));
        assert_eq!(key.held(100), Some(seconds(10)));
        assert_eq!(key.held(90), Some(seconds(10)), "an earlier reading counts as the same instant");
    }
}
