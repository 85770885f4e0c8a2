//! What a failure of this node's own attempt changes, apart from reports: the record of its local key, and pauses of its budget.

use std::sync::Arc;
use std::time::Duration;

use contract::messages::backoff_tracker::{AttemptFailure, LocalKey};
use contract::{FailureClass, TraceContext};

use super::backoff_key::{BackoffKey, BackoffKeyId, may_be_overload};
use super::cadence;
use super::node::Knowledge;
use super::report::shorten;
use super::request::{Request, RunningAttempt};
use crate::core::delays::Failing;

/// A registry that has served any node within this time may serve this one. The last node that asks sees no other success than its own.
const SERVED_WITHIN: Duration = Duration::from_secs(60);
/// If a fifth of all requests is served, this many failures in a row happen by chance once in 7,500 times.
const FAILURES_BY_CHANCE: u32 = 40;
/// The most bytes kept of a cause: a runtime's text is never shortened below this.
const MAX_CAUSE_BYTES: usize = 64 * 1024 + 128;

/// A failure of an attempt of this node, as refusals by the node's own back-off show it.
#[derive(Clone, Debug, Default)]
pub(super) struct OwnFailure {
    /// When the failure was reported.
    pub(super) at: Duration,
    pub(super) class: FailureClass,
    /// `<reason>: <message>`.
    pub(super) cause: String,
    /// The span of the attempt; none: it has none, or the registry was not asked.
    pub(super) trace: Option<TraceContext>,
}

/// The failures of a key in a row.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Streak {
    /// When the first of them was reported.
    pub(super) since: Duration,
    pub(super) failures: u32,
}

impl Streak {
    /// The streak after one more failure.
    pub(super) fn next(self, now: Duration) -> Self {
        if self.failures == 0 {
            return Self { since: now, failures: 1 };
        }
        Self { failures: self.failures.saturating_add(1), ..self }
    }
}

/// One more failure of a key, and what it changes.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) failure: Arc<OwnFailure>,
    pub(super) backoff_keys: Vec<Arc<BackoffKey>>,
    pub(super) own_rule: OwnRule,
    /// None: the attempt had no clearance, and the floor stays as it is.
    pub(super) cleared: Option<Cleared>,
    /// Whether the failure may be chance, so that a retry pause follows.
    pub(super) pauses: bool,
}

/// What a failure does to the own rule's delay.
#[derive(Clone, Copy, Debug)]
pub(super) enum OwnRule {
    /// It refuses the key, counted from when other nodes began to fail if they did before.
    Refuses(Option<Failing>),
    /// An entry decides: the delay grows, but does not refuse.
    Grows(Failing),
    /// The retry pause decides: the delay does not change.
    Stays,
}

/// An attempt that had clearance.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cleared {
    pub(super) began: Duration,
    /// Whether the fleet elected or released it.
    pub(super) exempt: bool,
}

impl Failed {
    /// A failure that this node alone knows of: kubelet's rule applies.
    pub(super) fn new(now: Duration, failure: &AttemptFailure, trace: Option<TraceContext>) -> Self {
        let mut cause = failure.cause.clone();
        shorten(&mut cause, MAX_CAUSE_BYTES);
        let failure = Arc::new(OwnFailure { at: now, class: failure.class, cause, trace });
        Self { failure, backoff_keys: Vec::new(), own_rule: OwnRule::Refuses(None), cleared: None, pauses: false }
    }
}

impl Knowledge {
    /// Notes the failure of an attempt of this node. Of three rules one decides when the node's next attempt is due:
    ///
    /// - An open entry that the node has reported too.
    /// - A retry pause, if the failure may be chance.
    /// - The own rule in all other cases. After an attempt that the own rule allowed it decides in any case, so that a node without answers
    ///   of the bus makes no more attempts than kubelet.
    ///
    /// If the registry has sent `Retry-After`, all pulls on the budget pause as well.
    pub(super) fn note_failure(
        &mut self,
        now: Duration,
        request: &Request,
        running: &RunningAttempt,
        failure: &AttemptFailure,
        backoff_keys: &[Arc<BackoffKey>],
    ) {
        let Some((attempt, trace)) = running.attempt else { return };
        let (key, ids) = (&request.key, || backoff_keys.iter().map(|backoff_key| backoff_key.id()));
        let exempt = self.is_exempt(now, &request.target_keys.target.view);
        let shares = !exempt && !self.is_without_bus();
        let by_fleet = shares && !running.by_own_rule;
        let entry = self.binding_of(now, ids());
        let may_be_overload = backoff_keys.iter().any(|backoff_key| may_be_overload(backoff_key.class()));
        let pauses = shares && entry.is_none() && may_be_overload && self.may_be_chance(now, key, ids());
        let pauses_again = pauses && self.failed_keys.failures_by_chance(now, key) + 1 < FAILURES_BY_CHANCE;
        let failing = |since: Duration| Failing { since, took: now.saturating_sub(running.begun) };
        let own_rule = match entry {
            Some(entry) if by_fleet => OwnRule::Grows(failing(entry.failing_since)),
            None if by_fleet && pauses_again => OwnRule::Stays,
            _ => {
                let since = self.failing_for_others(now, backoff_keys).filter(|since| !exempt && !by_fleet && *since < running.begun);
                OwnRule::Refuses(since.map(failing))
            }
        };
        let cleared = Some(running.cleared());
        let failed = Failed { backoff_keys: backoff_keys.to_vec(), own_rule, cleared, pauses, ..Failed::new(now, failure, trace) };
        let owner = backoff_keys.iter().find(|backoff_key| shares && backoff_key.id() == request.target_keys.owner);
        if let (Some(asked_ms), Some(owner)) = (failure.retry_after_ms, owner) {
            let until = now + cadence::delay(owner, 1, Some(Duration::from_millis(asked_ms)));
            self.retry_pauses.stay_away(owner.id(), until, &failed.failure);
            // Also if the failure is not published: pulls that wait for their permit ask again.
            self.touch(owner.id());
        }
        if self.recent_attempts.is_first_report(attempt, key) {
            self.failed_keys.note(key, failed);
        }
    }

    /// True if an image has failed by chance, as far as this node knows: the registry has served a node within a minute, and the image has
    /// not failed so often in a row here that this node must be the cause.
    pub(super) fn may_be_chance(&self, now: Duration, key: &LocalKey, mut backoff_keys: impl Iterator<Item = BackoffKeyId>) -> bool {
        let serves = |backoff_key| self.replica.succeeded_at(backoff_key).is_some_and(|at| now <= at + SERVED_WITHIN);
        self.failed_keys.failures_by_chance(now, key) < FAILURES_BY_CHANCE && backoff_keys.any(serves)
    }

    /// Since when other nodes have failed: by kubelet's rule this node would have made attempts since then.
    fn failing_for_others(&self, now: Duration, backoff_keys: &[Arc<BackoffKey>]) -> Option<Duration> {
        let entries = backoff_keys.iter().filter_map(|backoff_key| self.entry(now, backoff_key.id()));
        entries.filter(|entry| entry.reporters > usize::from(entry.mine)).map(|entry| entry.failing_since).min()
    }
}
