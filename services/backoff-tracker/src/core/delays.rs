//! Growing delays by key, as client-go's `flowcontrol.Backoff` has them (there without the bound on the number of keys).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Keys that a node remembers: 100 pods with 100 images. For one more, the key whose last failure is the oldest is forgotten; a forgotten
/// key refuses nothing.
pub const MAX_KEYS: usize = 10_000;

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

/// A pull that fails at every attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Failing {
    /// When its first attempt began.
    pub(super) since: Duration,
    /// How long an attempt takes.
    pub(super) took: Duration,
}

impl BackoffPolicy {
    /// The delay after one more failure: the first one if there was no `last` delay, else twice the last one up to `most`.
    pub(super) fn delay_after(self, last: Option<Duration>, most: Duration) -> Duration {
        last.map_or(self.initial, |last| (last * 2).min(most))
    }

    /// Whether a failure of this time is forgotten, so that the delay starts over: after twice the longest delay, as in client-go.
    pub(super) fn is_forgotten(self, failed: Duration, now: Duration) -> bool {
        now.saturating_sub(failed) > self.max * 2
    }

    /// The delay and its end at `now`, if an attempt was made each time that one was due.
    fn of(self, Failing { since, took }: Failing, now: Duration) -> (Duration, Duration) {
        let (mut delay, mut due) = (self.initial, since + took + self.initial);
        while due <= now {
            delay = self.delay_after(Some(delay), self.max);
            due += took + delay.max(SHORTEST_STEP);
        }
        (delay, due)
    }
}

/// The shortest step of [`BackoffPolicy::of`], so that it ends if the policy's delays are zero.
const SHORTEST_STEP: Duration = Duration::from_secs(1);

/// The delay of each key. Times are monotonic.
#[derive(Clone, Debug)]
pub struct Delays<K: Ord> {
    policy: BackoffPolicy,
    entries: BTreeMap<K, Delay>,
    /// The keys, by the time of their last failure.
    by_age: BTreeSet<(Duration, K)>,
}

#[derive(Clone, Copy, Debug)]
struct Delay {
    backoff: Duration,
    /// How long the key is refused, from `updated` on.
    hold: Duration,
    updated: Duration,
}

impl<K: Ord + Clone> Delays<K> {
    /// Delays without any key.
    #[must_use]
    pub fn new(policy: BackoffPolicy) -> Self {
        Self { policy, entries: BTreeMap::new(), by_age: BTreeSet::new() }
    }

    /// The key's delay, 0 if it has none.
    pub(super) fn get(&self, key: &K) -> Duration {
        self.entries.get(key).map_or(Duration::ZERO, |delay| delay.backoff)
    }

    /// Counts a failure: the delay is the first one, or twice the last one up to `max`. It starts over if the last failure is longer ago
    /// than twice `max`.
    pub fn next(&mut self, key: K, now: Duration) {
        let backoff = self.grown(&key, now, self.policy.max);
        self.insert(key, Delay { backoff, hold: backoff, updated: now });
    }

    /// Like [`Self::next`], for a key that other nodes found failing before. It is refused no longer than if this node had made an attempt
    /// each time that one was due since then, but at least for half of `initial`.
    pub(super) fn next_since(&mut self, key: K, now: Duration, failing: Failing) {
        self.next(key.clone(), now);
        let (_, due) = self.policy.of(failing, now);
        let due = due.saturating_sub(now).max(self.policy.initial / 2);
        if let Some(delay) = self.entries.get_mut(&key) {
            delay.hold = delay.backoff.min(due);
        }
    }

    /// Counts a failure of an attempt that this rule did not allow: it refuses nothing by itself, but the next delay is longer. The delay
    /// grows at most to what this rule would have reached by `now`.
    pub(super) fn count(&mut self, key: K, now: Duration, failing: Failing) {
        let hold = self.held(&key, now).unwrap_or_default();
        let (most, _) = self.policy.of(failing, now);
        let backoff = self.grown(&key, now, most.max(self.get(&key)));
        self.insert(key, Delay { backoff, hold, updated: now });
    }

    /// How long the key is still refused; none if it may be attempted, as at the very end of the delay.
    #[must_use]
    pub fn held(&self, key: &K, now: Duration) -> Option<Duration> {
        let delay = self.entries.get(key)?;
        let since = now.saturating_sub(delay.updated);
        (!self.policy.is_forgotten(delay.updated, now) && since < delay.hold).then(|| delay.hold - since)
    }

    /// True if the last failure of the key made this rule refuse it.
    pub(super) fn was_held(&self, key: &K) -> bool {
        self.entries.get(key).is_some_and(|delay| !delay.hold.is_zero() || self.policy.initial.is_zero())
    }

    /// When the next attempt is due, if an attempt was made each time that one was due.
    pub(super) fn due_after(&self, failing: Failing, now: Duration) -> Duration {
        self.policy.of(failing, now).1
    }

    pub(super) fn clear(&mut self, key: &K) {
        if let Some((key, delay)) = self.entries.remove_entry(key) {
            self.by_age.remove(&(delay.updated, key));
        }
    }

    /// Forgets the expired keys and returns them.
    pub(super) fn collect_garbage(&mut self, now: Duration) -> Vec<K> {
        let mut forgotten = Vec::new();
        while self.by_age.first().is_some_and(|(updated, _)| self.policy.is_forgotten(*updated, now))
            && let Some((_, key)) = self.by_age.pop_first()
        {
            self.entries.remove(&key);
            forgotten.push(key);
        }
        forgotten
    }

    /// The key whose last failure is the longest ago.
    pub(super) fn oldest(&self) -> Option<K> {
        self.by_age.first().map(|(_, key)| key.clone())
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &K> {
        self.entries.keys()
    }

    pub(super) fn held_count(&self, now: Duration) -> usize {
        self.entries.keys().filter(|key| self.held(key, now).is_some()).count()
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The delay of a key after one more failure; `most` as in [`BackoffPolicy::delay_after`].
    fn grown(&self, key: &K, now: Duration, most: Duration) -> Duration {
        let known = self.entries.get(key).filter(|delay| !self.policy.is_forgotten(delay.updated, now));
        self.policy.delay_after(known.map(|delay| delay.backoff), most)
    }

    fn insert(&mut self, key: K, delay: Delay) {
        if let Some(before) = self.entries.insert(key.clone(), delay) {
            self.by_age.remove(&(before.updated, key.clone()));
        }
        self.by_age.insert((delay.updated, key));
    }
}

/// Whole milliseconds, rounded up, so that a caller that waits this long is not refused again.
pub(super) fn milliseconds(left: Duration) -> u64 {
    u64::try_from(left.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    //! client-go's own unit tables (`backoff_test.go`), without its jitter, which kubelet does not use for images.

    use super::*;

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn delays(initial: u64, max: u64) -> Delays<&'static str> {
        Delays::new(BackoffPolicy { initial: seconds(initial), max: seconds(max) })
    }

    fn failing(since: u64, took: u64) -> Failing {
        Failing { since: seconds(since), took: seconds(took) }
    }

    #[test]
    fn doubles_up_to_the_most() {
        let mut delays = delays(1, 50);
        let mut seen = Vec::new();
        for tick in 0..10 {
            seen.push(delays.get(&"k").as_secs());
            delays.next("k", seconds(tick));
        }
        assert_eq!(seen, [0, 1, 2, 4, 8, 16, 32, 50, 50, 50]);
    }

    #[test]
    fn delay_equals_client_gos_at_each_second() {
        let mut delays = delays(1, 10);
        let mut free = Vec::new();
        for tick in 0..58 {
            if delays.held(&"k", seconds(tick)).is_none() {
                free.push(tick);
                delays.next("k", seconds(tick));
            }
        }
        // Upstream checks some ticks only; these are all of them, with its rows 0,1,3,7,15,25,35 and then every 10 s.
        assert_eq!(free, [0, 1, 3, 7, 15, 25, 35, 45, 55]);
    }

    #[test]
    fn delay_resets_after_twice_the_longest_delay_without_failure() {
        let mut delays = delays(1, 10);
        for tick in [0, 1, 3, 7, 15, 25, 35] {
            delays.next("k", seconds(tick));
        }
        // 21 s without a failure: over 20 s, so tick 56 begins again with 1 s and tick 57 is free.
        assert_eq!(delays.held(&"k", seconds(56)), None);
        delays.next("k", seconds(56));
        assert_eq!(delays.get(&"k"), seconds(1));
        assert_eq!(delays.held(&"k", seconds(57)), None);
    }

    #[test]
    fn the_edge_of_expiry_is_strict() {
        let mut delays = delays(1, 5);
        delays.next("k", seconds(0));
        delays.next("k", seconds(10));
        assert_eq!(delays.get(&"k"), seconds(2), "exactly twice the most is not expired");
        delays.next("k", Duration::from_millis(20_001));
        assert_eq!(delays.get(&"k"), seconds(1));
    }

    #[test]
    fn the_high_water_mark_stays_for_a_while() {
        let mut delays = delays(1, 5);
        for _ in 0..5 {
            delays.next("k", seconds(0));
        }
        delays.next("k", seconds(6));
        assert_eq!(delays.get(&"k"), seconds(5));
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
            let mut delays = delays(10, 300);
            for (now, held) in attempts {
                delays.next_since("k", seconds(*now), failing(since, took));
                assert_eq!(delays.held(&"k", seconds(*now)), Some(seconds(*held)), "failing since {since}, attempted at {now}");
            }
        }
        let mut none = delays(0, 0);
        none.next_since("k", seconds(1_000), failing(0, 0));
        assert_eq!(none.held(&"k", seconds(1_000)), None);
    }

    #[test]
    fn disallowed_attempt_grows_delay_without_refusing() {
        let mut delays = delays(10, 300);
        // When it failed, and what the delay has grown to: no further than by attempts of this node at 0, 10, 30 and 70 s.
        for (now, grown) in [(0, 10), (5, 10), (11, 20), (17, 20), (29, 20), (30, 40), (69, 40), (75, 80)] {
            delays.count("k", seconds(now), failing(0, 0));
            assert_eq!((delays.get(&"k"), delays.held(&"k", seconds(now))), (seconds(grown), None), "at {now}");
        }
        delays.next("k", seconds(80));
        assert_eq!(delays.held(&"k", seconds(80)), Some(seconds(160)));
        delays.count("k", seconds(90), failing(0, 0));
        assert_eq!((delays.get(&"k"), delays.held(&"k", seconds(90))), (seconds(160), Some(seconds(150))), "what holds, holds on");
        assert!(delays.was_held(&"k"));
        delays.count("k", seconds(691), failing(691, 0));
        assert_eq!(delays.get(&"k"), seconds(10), "what is long ago is forgotten");
        assert!(!delays.was_held(&"k"));
    }

    #[test]
    fn garbage_collection_removes_expired_keys() {
        let mut delays = delays(1, 5);
        delays.next("k", seconds(0));
        assert!(delays.collect_garbage(seconds(6)).is_empty());
        assert_eq!(delays.collect_garbage(seconds(12)), ["k"]);
        assert_eq!(delays.len(), 0);
    }

    #[test]
    fn stopped_clock_keeps_delay() {
        let mut delays = delays(10, 300);
        delays.next("k", seconds(100));
        assert_eq!(delays.held(&"k", seconds(100)), Some(seconds(10)));
        assert_eq!(delays.held(&"k", seconds(90)), Some(seconds(10)), "an earlier reading counts as the same instant");
    }
}
