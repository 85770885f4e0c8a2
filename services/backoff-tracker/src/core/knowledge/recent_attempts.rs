//! Recent attempts, which callers' reports of results are about.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use contract::{AttemptId, View};

use super::backoff_key::BackoffKey;
use super::request::RunningAttempt;
use super::target::TargetKeys;

/// Attempts remembered; their reports come within the time of a pull.
const MAX_ATTEMPTS: usize = 1_024;

/// Attempts that are over as far as the fleet is concerned.
#[derive(Debug, Default)]
pub(super) struct RecentAttempts {
    attempts: BTreeMap<AttemptId, Attempt>,
    order: VecDeque<AttemptId>,
}

#[derive(Debug)]
struct Attempt {
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
        self.remember(attempt, target_keys, backoff_keys, Some(running), false);
    }

    pub(super) fn resolved(&mut self, attempt: AttemptId, target_keys: &TargetKeys, running: &RunningAttempt) {
        self.remember(attempt, target_keys, Vec::new(), Some(running), true);
    }

    pub(super) fn abandoned(&mut self, attempt: AttemptId, target_keys: &TargetKeys) {
        self.remember(attempt, target_keys, Vec::new(), None, false);
    }

    pub(super) fn is_abandoned(&self, attempt: AttemptId) -> bool {
        self.attempts.get(&attempt).is_some_and(|recent| recent.running.is_none())
    }

    /// The attempt, if its manifest was answered and it has not failed since.
    pub(super) fn resolved_one(&self, attempt: AttemptId) -> Option<(TargetKeys, RunningAttempt)> {
        let recent = self.attempts.get(&attempt).filter(|recent| recent.continues)?;
        Some((recent.target_keys.clone(), recent.running.clone()?))
    }

    /// The state of an attempt, if its result counts.
    pub(super) fn running_of(&self, attempt: AttemptId) -> Option<RunningAttempt> {
        self.attempts.get(&attempt)?.running.clone()
    }

    /// The keys that the failure of an attempt is about, if the attempt is known.
    pub(super) fn backoff_keys_of(&self, attempt: AttemptId) -> Option<Vec<Arc<BackoffKey>>> {
        self.attempts.get(&attempt).map(|recent| recent.backoff_keys.clone())
    }

    pub(super) fn view_of(&self, attempt: AttemptId) -> Option<&View> {
        self.attempts.get(&attempt).map(|recent| &recent.target_keys.target.view)
    }

    fn remember(
        &mut self,
        attempt: AttemptId,
        target_keys: &TargetKeys,
        backoff_keys: Vec<Arc<BackoffKey>>,
        running: Option<&RunningAttempt>,
        continues: bool,
    ) {
        let recent = Attempt { target_keys: target_keys.clone(), backoff_keys, running: running.cloned(), continues };
        if self.attempts.insert(attempt, recent).is_some() {
            return;
        }
        self.order.push_back(attempt);
        if self.order.len() > MAX_ATTEMPTS
            && let Some(oldest) = self.order.pop_front()
        {
            self.attempts.remove(&oldest);
        }
    }
}
