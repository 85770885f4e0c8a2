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
    /// When a pull of this node stated limits last.
    first_hand_at: Option<Duration>,
}

impl Remembered {
    /// Learns what the registry stated in a pull of this node. If a leader stated less for the same window, that is kept, because a leader
    /// knows of other nodes' pulls.
    pub(super) fn learn_first_hand(&mut self, now: Duration, limits: &[RegistryLimit]) {
        if limits.is_empty() {
            return self.learn_none_stated(now);
        }
        let less = |limit: &RegistryLimit| {
            let known = self.limits.iter().find(|(known, over)| window_key(known) == window_key(limit) && now < *over);
            known.filter(|(known, _)| known.remaining < limit.remaining).map_or(limit.remaining, |(known, _)| known.remaining)
        };
        let limits = limits.iter().map(|limit| RegistryLimit { remaining: less(limit), ..limit.clone() }).collect::<Vec<_>>();
        self.first_hand_at = Some(now);
        self.learn(now, now, &KnownLimits { none_stated: false, limits });
    }

    /// Learns what a leader stated in its answer to a request that was sent at `asked`. The leader has received what this node remembered
    /// then. If it states no limits all the same, other nodes' pulls have refuted that the quota is used up, and the next leader must not
    /// learn of it again. That refutes nothing that a pull of this node has stated since.
    pub(super) fn learn(&mut self, now: Duration, asked: Duration, known: &KnownLimits) {
        if known.limits.is_empty() {
            if known.none_stated && self.first_hand_at.is_none_or(|at| at <= asked) {
                self.limits.retain(|(limit, _)| limit.remaining > 0);
                self.learn_none_stated(now);
            }
            return;
        }
        self.none_stated = false;
        self.limits.retain(|(limit, over)| now < *over && !is_replaced(limit, &known.limits));
        let stated = known.limits.iter().take(WINDOWS_MAX);
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
                remembered.learn(Duration::ZERO, Duration::ZERO, &KnownLimits { none_stated: false, limits: limits(known) });
                if first_hand {
                    remembered.learn_first_hand(Duration::ZERO, &limits(stated));
                } else {
                    remembered.learn(Duration::ZERO, Duration::ZERO, &KnownLimits { none_stated: false, limits: limits(stated) });
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
            remembered.learn(Duration::ZERO, Duration::ZERO, &KnownLimits { none_stated: false, limits: vec![limit] });
            remembered.learn_first_hand(Duration::ZERO, &[]);
            assert!(remembered.is_limited(Duration::ZERO), "a refusal may state no limits");
            remembered.learn(Duration::ZERO, Duration::ZERO, &KnownLimits::default());
            assert!(remembered.is_limited(Duration::ZERO), "a new leader knows nothing");
            remembered.learn(Duration::ZERO, Duration::ZERO, &KnownLimits { none_stated: true, limits: Vec::new() });
            let known = remembered.known(Duration::ZERO);
            assert_eq!((known.limits.len() == 1, known.none_stated), (is_kept, !is_kept), "{remaining} left");
        }
    }

    #[test]
    fn answer_to_an_earlier_request_does_not_refute_what_a_pull_has_stated_since() {
        let used_up = RegistryLimit { limit: 100, remaining: 0, window_ms: 6 * HOUR * 1_000, ..RegistryLimit::default() };
        let none = KnownLimits { none_stated: true, limits: Vec::new() };
        let seconds = Duration::from_secs;
        for (asked, is_kept) in [(1, true), (3, false)] {
            let mut remembered = Remembered::default();
            remembered.learn_first_hand(seconds(2), std::slice::from_ref(&used_up));
            remembered.learn(seconds(4), seconds(asked), &none);
            assert_eq!(remembered.is_used_up(seconds(4)), is_kept, "the leader was asked after {asked} s");
        }
    }

    #[test]
    fn limit_is_remembered_although_a_leader_has_sent_those_of_many_sources() {
        let of_source = |number: u64| RegistryLimit { source: Some(format!("s{number}")), window_ms: 60_000, ..RegistryLimit::default() };
        let mut remembered = Remembered::default();
        remembered.learn(Duration::ZERO, Duration::ZERO, &KnownLimits { none_stated: false, limits: (0..64).map(of_source).collect() });
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
            node.learn(Duration::ZERO, Duration::ZERO, &KnownLimits { none_stated: false, limits: vec![stated.clone()] });
            leader.learn(Duration::ZERO, &"n1".parse().expect("a name"), None, std::slice::from_ref(&stated), Out::default());
            let left = |known: KnownLimits| known.limits.iter().map(|limit| limit.reset_ms).collect::<Vec<_>>();
            let expected = vec![Some(counts * 1_000)];
            assert_eq!(left(node.known(Duration::ZERO)), expected, "node: {stated:?}");
            assert_eq!(left(leader.known(Duration::ZERO, Out::default())), expected, "leader: {stated:?}");
        }
    }
}
