//! Recent attempts, which callers' reports of results are about.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use contract::messages::backoff_tracker::{LocalKey, OTHER_KEYS_MOST};
use contract::{AttemptId, View};

use super::backoff_key::BackoffKey;
use super::own_failures::Cleared;
use super::request::RunningAttempt;
use super::target::TargetKeys;

/// Attempts remembered; their reports come within the time of a pull.
const MAX_ATTEMPTS: usize = 1_024;
/// Local keys remembered for one attempt, as many as a flight states.
const MAX_KEYS_OF_ONE_ATTEMPT: usize = OTHER_KEYS_MOST + 1;

/// Attempts that have ended, or whose manifest was answered.
#[derive(Debug, Default)]
pub(super) struct RecentAttempts {
    attempts: BTreeMap<AttemptId, Attempt>,
    order: VecDeque<AttemptId>,
}

#[derive(Debug, Default)]
struct Attempt {
    /// None: it had no clearance.
    cleared: Option<ClearedAttempt>,
    /// The local keys for which its result was reported.
    reported_for: Vec<LocalKey>,
}

/// An attempt that had clearance, and is over as far as the fleet is concerned.
#[derive(Debug)]
enum ClearedAttempt {
    /// The manifest was answered, and the pull continues.
    Continues(TargetKeys, RunningAttempt),
    Failed(FailedAttempt),
    /// It was ended and not reported, because it hung while others were answered. Its result counts for nothing.
    Abandoned,
}

/// An attempt that had clearance and failed.
#[derive(Debug)]
pub(super) struct FailedAttempt {
    pub(super) view: View,
    /// The keys that its failure is about.
    pub(super) backoff_keys: Vec<Arc<BackoffKey>>,
    pub(super) cleared: Cleared,
    /// Whether the node's own rule allowed it, without clearance of the fleet.
    pub(super) by_own_rule: bool,
}

impl RecentAttempts {
    pub(super) fn failed(
        &mut self,
        attempt: AttemptId,
        target_keys: &TargetKeys,
        backoff_keys: Vec<Arc<BackoffKey>>,
        running: &RunningAttempt,
    ) {
        let (view, cleared) = (target_keys.target.view.clone(), running.cleared());
        let failed = FailedAttempt { view, backoff_keys, cleared, by_own_rule: running.by_own_rule };
        self.of(attempt).cleared = Some(ClearedAttempt::Failed(failed));
    }

    pub(super) fn resolved(&mut self, attempt: AttemptId, target_keys: &TargetKeys, running: &RunningAttempt) {
        self.of(attempt).cleared = Some(ClearedAttempt::Continues(target_keys.clone(), running.clone()));
    }

    pub(super) fn abandoned(&mut self, attempt: AttemptId) {
        self.of(attempt).cleared = Some(ClearedAttempt::Abandoned);
    }

    /// Notes that the result of an attempt is reported for a local key. False if it was reported for that key before.
    pub(super) fn is_first_report(&mut self, attempt: AttemptId, key: &LocalKey) -> bool {
        let reported_for = &mut self.of(attempt).reported_for;
        if reported_for.contains(key) {
            return false;
        }
        if reported_for.len() < MAX_KEYS_OF_ONE_ATTEMPT {
            reported_for.push(key.clone());
        }
        true
    }

    pub(super) fn is_abandoned(&self, attempt: AttemptId) -> bool {
        matches!(self.cleared(attempt), Some(ClearedAttempt::Abandoned))
    }

    /// The attempt, if its manifest was answered and it has not failed since.
    pub(super) fn resolved_one(&self, attempt: AttemptId) -> Option<(TargetKeys, RunningAttempt)> {
        match self.cleared(attempt)? {
            ClearedAttempt::Continues(target_keys, running) => Some((target_keys.clone(), running.clone())),
            ClearedAttempt::Failed(_) | ClearedAttempt::Abandoned => None,
        }
    }

    /// The attempt, if it had clearance and failed.
    pub(super) fn failed_one(&self, attempt: AttemptId) -> Option<&FailedAttempt> {
        match self.cleared(attempt)? {
            ClearedAttempt::Failed(failed) => Some(failed),
            ClearedAttempt::Continues(..) | ClearedAttempt::Abandoned => None,
        }
    }

    fn cleared(&self, attempt: AttemptId) -> Option<&ClearedAttempt> {
        self.attempts.get(&attempt)?.cleared.as_ref()
    }

    /// The attempt. If it is new, the oldest one is forgotten when there are too many.
    fn of(&mut self, attempt: AttemptId) -> &mut Attempt {
        if !self.attempts.contains_key(&attempt) {
            self.order.push_back(attempt);
            if self.order.len() > MAX_ATTEMPTS
                && let Some(oldest) = self.order.pop_front()
            {
                self.attempts.remove(&oldest);
            }
        }
        self.attempts.entry(attempt).or_default()
    }
}
