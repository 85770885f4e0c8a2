//! Recent attempts, which callers' reports of results are about.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use contract::messages::backoff_tracker::{LocalKey, OTHER_KEYS_MOST};
use contract::{AttemptId, View};

use super::backoff_key::BackoffKey;
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
struct ClearedAttempt {
    target_keys: TargetKeys,
    /// The keys that its failure is about.
    backoff_keys: Vec<Arc<BackoffKey>>,
    /// The attempt's state. None: it was ended and not reported, because it hung while others were answered, and its result counts for
    /// nothing.
    running: Option<RunningAttempt>,
    /// The manifest was answered, and the pull continues.
    continues: bool,
}

impl RecentAttempts {
    pub(super) fn failed(
        &mut self,
        attempt: AttemptId,
        target_keys: &TargetKeys,
        backoff_keys: Vec<Arc<BackoffKey>>,
        running: &RunningAttempt,
    ) {
        let (target_keys, running) = (target_keys.clone(), Some(running.clone()));
        self.of(attempt).cleared = Some(ClearedAttempt { target_keys, backoff_keys, running, continues: false });
    }

    pub(super) fn resolved(&mut self, attempt: AttemptId, target_keys: &TargetKeys, running: &RunningAttempt) {
        let (target_keys, running) = (target_keys.clone(), Some(running.clone()));
        self.of(attempt).cleared = Some(ClearedAttempt { target_keys, backoff_keys: Vec::new(), running, continues: true });
    }

    pub(super) fn abandoned(&mut self, attempt: AttemptId, target_keys: &TargetKeys) {
        let target_keys = target_keys.clone();
        self.of(attempt).cleared = Some(ClearedAttempt { target_keys, backoff_keys: Vec::new(), running: None, continues: false });
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
        self.cleared(attempt).is_some_and(|cleared| cleared.running.is_none())
    }

    /// The attempt, if its manifest was answered and it has not failed since.
    pub(super) fn resolved_one(&self, attempt: AttemptId) -> Option<(TargetKeys, RunningAttempt)> {
        let cleared = self.cleared(attempt).filter(|cleared| cleared.continues)?;
        Some((cleared.target_keys.clone(), cleared.running.clone()?))
    }

    /// The state of an attempt, if its result counts.
    pub(super) fn running_of(&self, attempt: AttemptId) -> Option<RunningAttempt> {
        self.cleared(attempt)?.running.clone()
    }

    /// The keys that the failure of an attempt is about, if it had clearance.
    pub(super) fn backoff_keys_of(&self, attempt: AttemptId) -> Option<Vec<Arc<BackoffKey>>> {
        self.cleared(attempt).map(|cleared| cleared.backoff_keys.clone())
    }

    pub(super) fn view_of(&self, attempt: AttemptId) -> Option<&View> {
        self.cleared(attempt).map(|cleared| &cleared.target_keys.target.view)
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
