//! What a node remembers of an owner's limits, from its own pulls and from leaders, for the next leader.

use std::time::Duration;

use contract::messages::throttler::{KnownLimits, RegistryLimit};

use super::quota::stated_length;

/// The most windows that are remembered; real registries state one or two.
const WINDOWS_MAX: usize = 8;

/// The limits of one owner.
#[derive(Debug, Default)]
pub(super) struct Remembered {
    none_stated: bool,
    /// Each with the time when its window is over.
    limits: Vec<(RegistryLimit, Duration)>,
}

impl Remembered {
    /// Learns what the registry stated in a pull of this node. If a leader stated less for the same window, that is kept, because a leader
    /// knows of other nodes' pulls.
    pub(super) fn learn_first_hand(&mut self, now: Duration, limits: &[RegistryLimit]) {
        let less = |limit: &RegistryLimit| {
            let known = self
                .limits
                .iter()
                .find(|(known, over)| (&known.source, known.window_ms) == (&limit.source, limit.window_ms) && now < *over);
            known.filter(|(known, _)| known.remaining < limit.remaining).map_or(limit.remaining, |(known, _)| known.remaining)
        };
        let limits = limits.iter().map(|limit| RegistryLimit { remaining: less(limit), ..limit.clone() }).collect::<Vec<_>>();
        self.learn(now, &KnownLimits { none_stated: limits.is_empty(), limits });
    }

    /// Learns what a leader stated.
    pub(super) fn learn(&mut self, now: Duration, known: &KnownLimits) {
        if known.limits.is_empty() {
            self.none_stated |= known.none_stated && self.limits.iter().all(|(_, over)| *over <= now);
            return;
        }
        self.none_stated = false;
        self.limits.retain(|(limit, over)| now < *over && known.limits.iter().all(|stated| stated.window_ms != limit.window_ms));
        for limit in known.limits.iter().take(WINDOWS_MAX.saturating_sub(self.limits.len())) {
            self.limits.push((limit.clone(), now + stated_length(limit)));
        }
    }

    pub(super) fn known(&self, now: Duration) -> KnownLimits {
        let current = self.limits.iter().filter(|(_, over)| now < *over);
        let left = |(limit, over): &(RegistryLimit, Duration)| RegistryLimit {
            reset_ms: Some(over.saturating_sub(now).as_millis() as u64),
            ..limit.clone()
        };
        KnownLimits { none_stated: self.none_stated, limits: current.map(left).collect() }
    }

    /// Whether a window is known that is not over.
    pub(super) fn is_limited(&self, now: Duration) -> bool {
        self.limits.iter().any(|(_, over)| now < *over)
    }

    pub(super) fn is_used_up(&self, now: Duration) -> bool {
        self.limits.iter().any(|(limit, over)| now < *over && limit.remaining == 0)
    }

    pub(super) fn is_empty(&self) -> bool {
        !self.none_stated && self.limits.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::super::quota::{Out, Quota};
    use super::*;

    const HOUR: u64 = 3_600;
    const YEAR: u64 = 365 * 24 * HOUR;

    #[test]
    fn node_and_leader_remember_a_limit_for_the_same_time() {
        // The limit, its window and its reset in seconds, and how long it counts.
        for (limit, window, reset, counts) in [
            (100, 6 * HOUR, None, 6 * HOUR),
            (100, 6 * HOUR, Some(30), 30),
            (100, 0, Some(30), 30),
            (100, 0, None, 60),
            (0, 0, None, 60),
            (100, 0, Some(YEAR), 24 * HOUR),
            (100, YEAR, None, 24 * HOUR),
            (0, 0, Some(YEAR), HOUR),
        ] {
            let stated =
                RegistryLimit { limit, window_ms: window * 1_000, reset_ms: reset.map(|reset| reset * 1_000), ..RegistryLimit::default() };
            let (mut node, mut leader) = (Remembered::default(), Quota::new(None));
            node.learn(Duration::ZERO, &KnownLimits { none_stated: false, limits: vec![stated.clone()] });
            leader.learn(Duration::ZERO, &"n1".parse().expect("a name"), None, std::slice::from_ref(&stated), Out::default());
            let left = |known: KnownLimits| known.limits.iter().map(|limit| limit.reset_ms).collect::<Vec<_>>();
            let expected = vec![Some(counts * 1_000)];
            assert_eq!(left(node.known(Duration::ZERO)), expected, "node: {stated:?}");
            assert_eq!(left(leader.known(Duration::ZERO, Out::default())), expected, "leader: {stated:?}");
        }
    }
}
