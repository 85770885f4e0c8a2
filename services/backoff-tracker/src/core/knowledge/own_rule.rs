//! What this node's own rule and its floor refuse, whatever other nodes report, and what releases a pull from the floor.

use std::sync::Arc;
use std::time::Duration;

use contract::messages::backoff_tracker::LocalKey;

use super::backoff_key::{BackoffKey, BackoffKeyId, may_be_overload};
use super::entry::Entry;
use super::failed_keys::FailedKey;
use super::input::{Decision, Refusal};
use super::node::Knowledge;
use super::planted_bug::PlantedBug;
use super::request::{Request, State};

/// A success during a failed attempt releases the next one for this long. A success after the failure always does.
const RELEASES_FOR: Duration = Duration::from_secs(10);

impl Knowledge {
    /// How long the node's own rule refuses a key; none if an entry of the fleet decides about its failure.
    pub(super) fn held_here(&self, now: Duration, key: &LocalKey, binding: &[Entry]) -> Option<Duration> {
        let left = self.failed_keys.held(now, key)?;
        let decided = |backoff_key: &Arc<BackoffKey>| binding.iter().any(|entry| entry.backoff_key.id() == backoff_key.id());
        let by_fleet = self.failed_keys.get(key).is_some_and(|failed| failed.backoff_keys.iter().any(decided));
        (!by_fleet).then_some(left)
    }

    /// Kubelet's rule for failures that only this node knows; none if it allows an attempt.
    pub(super) fn by_own_rule(&self, now: Duration, request: &mut Request, binding: &[Entry]) -> Option<Decision> {
        if self.has(PlantedBug::OwnRuleIgnored) {
            return None;
        }
        request.choose_key(|key| self.held_here(now, key, binding));
        let left = self.held_here(now, &request.key, binding)?;
        let failed = self.failed_keys.get(&request.key)?;
        request.state = State::Fresh;
        request.wake = Some(now + left);
        Some(Decision::Refused(self.refusal_by_own_rule(now, &failed.failure, now + left)))
    }

    /// The refusal by the floor, whatever other nodes report, until it allows one of the request's keys.
    pub(super) fn under_the_floor(&self, now: Duration, request: &Request) -> Option<Refusal> {
        if self.has(PlantedBug::OwnRuleIgnored) {
            return None;
        }
        let floors: Option<Vec<_>> = request.keys().map(|key| self.failed_keys.under_the_floor(now, key)).collect();
        let (left, failed) = floors?.into_iter().min_by_key(|(left, _)| *left)?;
        Some(self.refusal_by_own_rule(now, &failed.failure, now + left))
    }

    /// True if a back-off key that this pull failed by has been answered since the failed attempt began: after the failure, or at most
    /// `RELEASES_FOR` ago. A failure that may mean overload is released as long as it may be chance.
    pub(super) fn is_released(&self, now: Duration, request: &Request) -> bool {
        let answers = |failed: &FailedKey, backoff_key: BackoffKeyId| {
            let answered = self.replica.succeeded_at(backoff_key);
            answered.is_some_and(|at| at > failed.failure.at || at >= failed.began && now <= at + RELEASES_FOR)
        };
        let is_released = |key: &LocalKey| {
            let Some((_, failed)) = self.failed_keys.under_the_floor(now, key) else { return false };
            let mut backoff_keys = failed.backoff_keys.iter().map(|backoff_key| backoff_key.id());
            may_be_overload(failed.failure.class) && self.may_be_chance(now, key, backoff_keys.clone())
                || backoff_keys.any(|backoff_key| answers(failed, backoff_key))
        };
        request.keys().any(is_released)
    }
}
