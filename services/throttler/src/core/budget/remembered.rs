//! What a node remembers of an owner's limits, from its own pulls and from leaders, for the next leader.

use std::time::Duration;

use contract::messages::throttler::{KnownLimits, RegistryLimit};

use super::quota::{stated_length, window_key};

/// The most windows that are remembered; real registries state one or two. For one more, the oldest is forgotten.
const WINDOWS_MAX: usize = 8;

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
        if limits.is_empty() {
            return self.learn_none_stated(now);
        }
        self.replace(now, &self.with_known(now, limits));
    }

    /// Learns what a leader stated. `is_informed`: it had received what this node remembered before. If it states no limits all the same,
    /// other nodes' pulls have refuted that the quota is used up, and the next leader must not learn of it again. A leader that was not
    /// informed refutes nothing, and less than it states may be left.
    pub(super) fn learn(&mut self, now: Duration, is_informed: bool, known: &KnownLimits) {
        match (known.limits.is_empty(), is_informed) {
            (false, true) => self.replace(now, &known.limits),
            (false, false) => self.replace(now, &self.with_known(now, &known.limits)),
            (true, true) if known.none_stated => {
                self.limits.retain(|(limit, _)| limit.remaining > 0);
                self.learn_none_stated(now);
            }
            (true, _) => {}
        }
    }

    /// These limits, but of each window no more than is known to be left.
    fn with_known(&self, now: Duration, limits: &[RegistryLimit]) -> Vec<RegistryLimit> {
        let least = |limit: &RegistryLimit| {
            let known = self.limits.iter().find(|(known, over)| window_key(known) == window_key(limit) && now < *over);
            known.map_or(limit.remaining, |(known, _)| known.remaining.min(limit.remaining))
        };
        limits.iter().map(|limit| RegistryLimit { remaining: least(limit), ..limit.clone() }).collect()
    }

    fn replace(&mut self, now: Duration, limits: &[RegistryLimit]) {
        self.none_stated = false;
        self.limits.retain(|(limit, over)| now < *over && !is_replaced(limit, limits));
        let stated = limits.iter().take(WINDOWS_MAX);
        self.limits.drain(..(self.limits.len() + stated.len()).saturating_sub(WINDOWS_MAX));
        self.limits.extend(stated.map(|limit| (limit.clone(), now + stated_length(limit))));
    }

    /// The registry has answered without limits, which alone does not show that a known quota is over.
    fn learn_none_stated(&mut self, now: Duration) {
        self.none_stated |= self.limits.iter().all(|(_, over)| *over <= now);
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

/// True if newer limits state the same window, or name sources and not this one: the registry then counts this node as another source.
fn is_replaced(known: &RegistryLimit, stated: &[RegistryLimit]) -> bool {
    let same_window = stated.iter().any(|limit| window_key(limit) == window_key(known));
    let mut sources = stated.iter().filter_map(|limit| limit.source.as_ref()).peekable();
    let other_source = known.source.as_ref().is_some_and(|source| sources.peek().is_some() && sources.all(|other| other != source));
    same_window || other_source
}

#[cfg(test)]
mod tests {
    use super::super::quota::{Out, Quota};
    use super::*;

    const HOUR: u64 = 3_600;
    const YEAR: u64 = 365 * 24 * HOUR;

    #[test]
    fn limit_replaces_what_is_known_of_the_same_window_and_of_other_sources() {
        const MINUTE: u64 = 60_000;
        type Window = (Option<&'static str>, u64);
        let (common, of_a, of_b, of_a_short) =
            ((None, 360 * MINUTE), (Some("A"), 360 * MINUTE), (Some("B"), 360 * MINUTE), (Some("A"), MINUTE));
        // What is known, what is stated then, and what is known after that.
        let table: [(&[Window], &[Window], &[Window]); 7] = [
            (&[common], &[common], &[common]),
            (&[common], &[of_a], &[common, of_a]),
            (&[of_a], &[common], &[of_a, common]),
            (&[of_a], &[of_a_short], &[of_a, of_a_short]),
            // A leader that does not know the node's source sends the windows of all sources. The node's next pull states its own.
            (&[common, of_a, of_b], &[of_b], &[common, of_b]),
            // The node is behind another address now.
            (&[of_a, of_a_short], &[of_b], &[of_b]),
            (&[of_a], &[of_a, of_b], &[of_a, of_b]),
        ];
        let limits = |windows: &[Window]| {
            let limit = |(source, window_ms): &Window| RegistryLimit {
                source: source.map(str::to_owned),
                limit: 100,
                remaining: 9,
                window_ms: *window_ms,
                reset_ms: None,
            };
            windows.iter().map(limit).collect::<Vec<_>>()
        };
        for (known, stated, after) in table {
            for first_hand in [true, false] {
                let mut remembered = Remembered::default();
                remembered.learn(Duration::ZERO, true, &KnownLimits { none_stated: false, limits: limits(known) });
                if first_hand {
                    remembered.learn_first_hand(Duration::ZERO, &limits(stated));
                } else {
                    remembered.learn(Duration::ZERO, true, &KnownLimits { none_stated: false, limits: limits(stated) });
                }
                let found: Vec<_> = remembered.known(Duration::ZERO).limits.iter().map(window_key).collect();
                assert_eq!(found, limits(after).iter().map(window_key).collect::<Vec<_>>(), "{known:?}, then {stated:?}, {first_hand}");
            }
        }
    }

    #[test]
    fn used_up_quota_is_forgotten_once_a_leader_states_that_there_are_no_limits() {
        for (remaining, is_kept) in [(0, false), (7, true)] {
            let limit = RegistryLimit { limit: 100, remaining, window_ms: 6 * HOUR * 1_000, ..RegistryLimit::default() };
            let mut remembered = Remembered::default();
            remembered.learn(Duration::ZERO, true, &KnownLimits { none_stated: false, limits: vec![limit] });
            remembered.learn_first_hand(Duration::ZERO, &[]);
            assert!(remembered.is_limited(Duration::ZERO), "a refusal may state no limits");
            remembered.learn(Duration::ZERO, true, &KnownLimits::default());
            assert!(remembered.is_limited(Duration::ZERO), "a new leader knows nothing");
            remembered.learn(Duration::ZERO, true, &KnownLimits { none_stated: true, limits: Vec::new() });
            let known = remembered.known(Duration::ZERO);
            assert_eq!((known.limits.len() == 1, known.none_stated), (is_kept, !is_kept), "{remaining} left");
        }
    }

    #[test]
    fn leader_that_was_not_informed_refutes_nothing_and_states_no_more_than_is_left() {
        let left = |remaining| RegistryLimit { limit: 100, remaining, window_ms: 6 * HOUR * 1_000, ..RegistryLimit::default() };
        // What is left by a pull of this node, what the leader states, and what is remembered if the leader was informed and if it was not.
        let table = [(0, None, [None, Some(0)]), (0, Some(5), [Some(5), Some(0)]), (7, Some(5), [Some(5), Some(5)])];
        for (first_hand, stated, expected) in table {
            let known = KnownLimits { none_stated: stated.is_none(), limits: stated.map(left).into_iter().collect() };
            let remembered = [true, false].map(|is_informed| {
                let mut remembered = Remembered::default();
                remembered.learn_first_hand(Duration::ZERO, &[left(first_hand)]);
                remembered.learn(Duration::ZERO, is_informed, &known);
                remembered.known(Duration::ZERO).limits.first().map(|limit| limit.remaining)
            });
            assert_eq!(remembered, expected, "{first_hand} left, {stated:?} stated");
        }
    }

    #[test]
    fn limit_is_remembered_although_a_leader_has_sent_those_of_many_sources() {
        let of_source = |number: u64| RegistryLimit { source: Some(format!("s{number}")), window_ms: 60_000, ..RegistryLimit::default() };
        let mut remembered = Remembered::default();
        remembered.learn(Duration::ZERO, true, &KnownLimits { none_stated: false, limits: (0..64).map(of_source).collect() });
        remembered.learn_first_hand(Duration::ZERO, &[RegistryLimit { source: None, ..of_source(0) }]);
        let known = remembered.known(Duration::ZERO).limits;
        assert_eq!((known.len(), known.last().map(|last| last.source.clone())), (WINDOWS_MAX, Some(None)));
    }

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
            // Some registries state a remainder without the limit.
            (0, 0, Some(5 * HOUR), 5 * HOUR),
            (0, 0, Some(YEAR), 24 * HOUR),
        ] {
            let stated =
                RegistryLimit { limit, window_ms: window * 1_000, reset_ms: reset.map(|reset| reset * 1_000), ..RegistryLimit::default() };
            let (mut node, mut leader) = (Remembered::default(), Quota::new(None));
            node.learn(Duration::ZERO, true, &KnownLimits { none_stated: false, limits: vec![stated.clone()] });
            leader.learn(Duration::ZERO, &"n1".parse().expect("a name"), None, std::slice::from_ref(&stated), Out::default());
            let left = |known: KnownLimits| known.limits.iter().map(|limit| limit.reset_ms).collect::<Vec<_>>();
            let expected = vec![Some(counts * 1_000)];
            assert_eq!(left(node.known(Duration::ZERO)), expected, "node: {stated:?}");
            assert_eq!(left(leader.known(Duration::ZERO, Out::default())), expected, "leader: {stated:?}");
        }
    }
}
