//! Recent attempts: what a caller's report of a result is about.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use contract::{AttemptId, View};

use super::backoff_key::BackoffKey;
use super::request::Going;
use super::target::Aim;

/// Attempts remembered; their reports come within the time of a pull.
const MAX_TRIED: usize = 1_024;

/// Attempts that are over as far as the fleet is concerned.
#[derive(Debug, Default)]
pub(super) struct RecentAttempts {
    attempts: BTreeMap<AttemptId, Attempt>,
    order: VecDeque<AttemptId>,
}

#[derive(Debug)]
struct Attempt {
    aim: Aim,
    /// The keys that its failure is about.
    backoff_keys: Vec<Arc<BackoffKey>>,
    /// How it went; none: nothing of it counts.
    going: Option<Going>,
    /// Ended and not reported, because it hung while others were answered. Its result counts for nothing.
    abandoned: bool,
    /// The manifest is there, and the rest goes on.
    goes_on: bool,
}

impl RecentAttempts {
    pub(super) fn failed(&mut self, attempt: AttemptId, aim: &Aim, backoff_keys: Vec<Arc<BackoffKey>>, going: &Going) {
        self.remember(attempt, Attempt { aim: aim.clone(), backoff_keys, going: Some(going.clone()), abandoned: false, goes_on: false });
    }

    pub(super) fn resolved(&mut self, attempt: AttemptId, aim: &Aim, going: &Going) {
        let going = Some(going.clone());
        self.remember(attempt, Attempt { aim: aim.clone(), backoff_keys: Vec::new(), going, abandoned: false, goes_on: true });
    }

    pub(super) fn abandoned(&mut self, attempt: AttemptId, aim: &Aim) {
        self.remember(attempt, Attempt { aim: aim.clone(), backoff_keys: Vec::new(), going: None, abandoned: true, goes_on: false });
    }

    pub(super) fn is_abandoned(&self, attempt: AttemptId) -> bool {
        self.attempts.get(&attempt).is_some_and(|recent_attempts| recent_attempts.abandoned)
    }

    /// The attempt, if its manifest was answered. Returned once.
    pub(super) fn take_resolved(&mut self, attempt: AttemptId) -> Option<(Aim, Going)> {
        let resolved = self.resolved_one(attempt)?;
        if let Some(recent_attempts) = self.attempts.get_mut(&attempt) {
            recent_attempts.goes_on = false;
        }
        Some(resolved)
    }

    /// The same, and it goes on.
    pub(super) fn resolved_one(&self, attempt: AttemptId) -> Option<(Aim, Going)> {
        let recent_attempts = self.attempts.get(&attempt).filter(|recent_attempts| recent_attempts.goes_on)?;
        Some((recent_attempts.aim.clone(), recent_attempts.going.clone()?))
    }

    /// How an attempt went.
    pub(super) fn going_of(&self, attempt: AttemptId) -> Option<Going> {
        self.attempts.get(&attempt)?.going.clone()
    }

    /// The keys that the failure of an attempt is about, if the attempt is known.
    pub(super) fn backoff_keys_of(&self, attempt: AttemptId) -> Option<Vec<Arc<BackoffKey>>> {
        self.attempts.get(&attempt).map(|recent_attempts| recent_attempts.backoff_keys.clone())
    }

    /// Whether the node's own rule allowed it, without clearance.
    pub(super) fn is_by_own_rule(&self, attempt: AttemptId) -> bool {
        self.attempts.get(&attempt).is_some_and(|recent_attempts| recent_attempts.going.as_ref().is_some_and(|going| going.by_own_rule))
    }

    pub(super) fn view_of(&self, attempt: AttemptId) -> Option<&View> {
        self.attempts.get(&attempt).map(|recent_attempts| &recent_attempts.aim.target.view)
    }

    fn remember(&mut self, attempt: AttemptId, recent_attempts: Attempt) {
        if self.attempts.insert(attempt, recent_attempts).is_some() {
            return;
        }
        self.order.push_back(attempt);
        if self.order.len() > MAX_TRIED
            && let Some(oldest) = self.order.pop_front()
        {
            self.attempts.remove(&oldest);
        }
    }
}
