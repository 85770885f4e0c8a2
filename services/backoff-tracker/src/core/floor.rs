//! Kubelet's rule as a floor: attempts for one (pod, image) are never closer together than kubelet's, unless the fleet has elected or
//! released them.
//!
//! It is separate from the node's own back-off, which other nodes' reports may lift. Only a success of the key itself or an operator's
//! clear ends it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use contract::messages::backoff_tracker::LocalKey;
use contract::{AttemptId, FailureClass, TraceContext};

use super::delays::{BackoffPolicy, MAX_KEYS};
use super::knowledge::BackoffKeyId;
use super::remove_least;

/// The last failure of a local key.
#[derive(Clone, Debug)]
pub(super) struct Floor {
    pub(super) attempt: AttemptId,
    pub(super) began: Duration,
    /// How long after the failure the next attempt may begin; set by [`Floors::failed`].
    pub(super) delay: Duration,
    /// The back-off keys of the failure: a success on one of them releases the key.
    pub(super) backoff_keys: Vec<BackoffKeyId>,
    pub(super) failure: Arc<OwnFailure>,
}

/// A failure of an attempt of this node, as refusals by the node's own back-off show it.
#[derive(Clone, Debug)]
pub(crate) struct OwnFailure {
    /// When the failure was reported.
    pub(crate) at: Duration,
    pub(crate) class: FailureClass,
    /// `<reason>: <message>`.
    pub(crate) cause: String,
    /// The span of the attempt; none: it has none, or the registry was not asked.
    pub(crate) trace: Option<TraceContext>,
}

impl OwnFailure {
    /// A failure that is not known any more.
    pub(super) fn unknown(now: Duration) -> Self {
        Self { at: now, class: FailureClass::default(), cause: String::new(), trace: None }
    }
}

#[derive(Debug)]
pub(super) struct Floors {
    policy: BackoffPolicy,
    floors: BTreeMap<LocalKey, Floor>,
}

impl Floors {
    pub(super) fn new(policy: BackoffPolicy) -> Self {
        Self { policy, floors: BTreeMap::new() }
    }

    /// An attempt for a key has failed. A repeated call for the same attempt changes nothing. If the fleet elected or released the attempt
    /// (`exempt`), its failure does not make the delay longer.
    pub(super) fn failed(&mut self, key: &LocalKey, failed: Floor, exempt: bool) {
        let now = failed.failure.at;
        let known = self.floors.get(key).filter(|floor| !self.policy.is_forgotten(floor.failure.at, now));
        if known.is_some_and(|floor| floor.attempt == failed.attempt) {
            return;
        }
        let delay = match known {
            Some(floor) if exempt => floor.delay,
            _ => self.policy.delay_after(known.map(|floor| floor.delay), self.policy.max),
        };
        self.floors.insert(key.clone(), Floor { delay, ..failed });
        self.make_room(now);
    }

    /// How long the next attempt for a key must wait, and because of which failure. An attempt that is elected or released need not wait.
    pub(super) fn under(&self, now: Duration, key: &LocalKey) -> Option<(Duration, &Floor)> {
        let floor = self.floors.get(key)?;
        let left = (floor.failure.at + floor.delay).saturating_sub(now);
        (!left.is_zero()).then_some((left, floor))
    }

    /// An operator has cleared the failures up to `date`.
    pub(super) fn lift(&mut self, date: Duration, is_cleared: impl Fn(&LocalKey, &Floor) -> bool) {
        self.floors.retain(|key, floor| floor.failure.at > date || !is_cleared(key, floor));
    }

    /// The key succeeded.
    pub(super) fn clear(&mut self, key: &LocalKey) {
        self.floors.remove(key);
    }

    fn make_room(&mut self, now: Duration) {
        if self.floors.len() <= MAX_KEYS {
            return;
        }
        let policy = self.policy;
        self.floors.retain(|_, floor| !policy.is_forgotten(floor.failure.at, now));
        while self.floors.len() > MAX_KEYS {
            remove_least(&mut self.floors, |floor| floor.failure.at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> LocalKey {
        LocalKey { pod: None, image: "a:1".to_owned() }
    }

    /// Takes failures (time in seconds, whether exempt); returns how many seconds the next attempt must wait after each.
    fn delays(failures: &[(u64, bool)]) -> Vec<u64> {
        let mut floors = Floors::new(BackoffPolicy::default());
        let fail = |(number, (at, exempt)): (usize, &(u64, bool))| {
            let now = Duration::from_secs(*at);
            let attempt = AttemptId::from(number as u128);
            let failure = Arc::new(OwnFailure { at: now, class: FailureClass::NotFound, cause: String::new(), trace: None });
            let failed = Floor { attempt, began: now, delay: Duration::ZERO, backoff_keys: Vec::new(), failure };
            floors.failed(&key(), failed, *exempt);
            floors.under(now, &key()).map_or(0, |(left, _)| left.as_secs())
        };
        failures.iter().enumerate().map(fail).collect()
    }

    #[test]
    fn the_floor_is_kubelets_rule_and_elected_attempts_do_not_make_it_longer() {
        assert_eq!(delays(&[(0, false), (10, false), (30, false), (70, false)]), [10, 20, 40, 80]);
        assert_eq!(delays(&[(0, true), (2, true), (6, true), (16, false)]), [10, 10, 10, 20]);
        assert_eq!(delays(&[(0, false), (10, false), (800, false)]), [10, 20, 10], "it starts over after twice the longest");
        assert_eq!(delays(&[(0, false), (10, false), (30, false), (70, false), (150, false), (310, false)]).last(), Some(&300));
    }
}
