//! What a failure of this node's own attempt sets besides reports: its own delay, the floor, and pauses.

use std::sync::Arc;
use std::time::Duration;

use contract::messages::backoff_tracker::{AttemptFailure, LocalKey, ReportAttempt};
use contract::{AttemptId, TraceContext};

use super::backoff_key::{BackoffKey, BackoffKeyId, may_be_overload};
use super::cadence;
use super::node::Knowledge;
use super::report::MAX_MESSAGE_BYTES;
use super::request::{Request, RunningAttempt};
use crate::core::delays::Failing;
use crate::core::floor::{Floor, OwnFailure};
use crate::core::tracker::{DelayMove, shorten};

/// A registry that has served any node within this time may serve this one. The last node that asks sees no other success than its own.
const SERVED_WITHIN: Duration = Duration::from_secs(60);
/// If a fifth of all requests is served, this many failures in a row happen by chance once in 7,500 times.
const FAILURES_BY_CHANCE: u32 = 40;

impl Knowledge {
    /// Sets the floor: the next attempt of this key is not sooner than by kubelet's rule, whatever other nodes report.
    pub(super) fn note_floor(
        &mut self,
        key: &LocalKey,
        attempt: AttemptId,
        running: &RunningAttempt,
        backoff_keys: &[Arc<BackoffKey>],
        failure: &Arc<OwnFailure>,
    ) {
        let backoff_keys = backoff_keys.iter().map(|backoff_key| backoff_key.id()).collect();
        let failed = Floor { attempt, began: running.begun, delay: Duration::ZERO, backoff_keys, failure: Arc::clone(failure) };
        self.floors.failed(key, failed, running.exempt);
    }

    /// Sets a pause of this image if the registry serves others, and a pause of all pulls on the budget if the registry sent `Retry-After`.
    pub(super) fn note_retry_pause(
        &mut self,
        now: Duration,
        request: &Request,
        failure: &AttemptFailure,
        backoff_keys: &[Arc<BackoffKey>],
        own: &Arc<OwnFailure>,
    ) {
        if self.is_without_bus() || self.is_exempt(now, &request.target_keys.target.view) {
            return;
        }
        if let (Some(asked_ms), Some(owner)) =
            (failure.retry_after_ms, backoff_keys.iter().find(|backoff_key| backoff_key.id() == request.target_keys.owner))
        {
            self.retry_pauses.stay_away(owner.id(), now + cadence::delay(owner, 1, Some(Duration::from_millis(asked_ms))), own);
        }
        if self.pauses_after(now, &request.key, backoff_keys) {
            self.retry_pauses.failed(&request.key, backoff_keys.iter().map(|backoff_key| backoff_key.id()).collect(), own);
        }
    }

    /// True if the node pauses for seconds after a failure, because the failure may be chance and no entry of its own binds. Otherwise
    /// kubelet's rule applies.
    fn pauses_after(&self, now: Duration, key: &LocalKey, backoff_keys: &[Arc<BackoffKey>]) -> bool {
        let ids = || backoff_keys.iter().map(|backoff_key| backoff_key.id());
        let may_be_overload = backoff_keys.iter().any(|backoff_key| may_be_overload(backoff_key.class()));
        may_be_overload && self.may_be_chance(now, key, ids()) && self.binding_of(now, ids()).is_none()
    }

    /// True if an image has failed by chance, as far as this node knows: the registry has served a node within a minute, and the image has
    /// not failed so often in a row here that this node must be the cause.
    pub(super) fn may_be_chance(&self, now: Duration, key: &LocalKey, mut backoff_keys: impl Iterator<Item = BackoffKeyId>) -> bool {
        let serves = |backoff_key| self.replica.succeeded_at(backoff_key).is_some_and(|at| now <= at + SERVED_WITHIN);
        self.retry_pauses.failures(now, key) < FAILURES_BY_CHANCE && backoff_keys.any(serves)
    }

    /// Moves the node's own delay by a failure. The delay itself refuses nothing if the fleet allowed the attempt and an entry or a pause
    /// decides. After an attempt by the node's own rule it does, so that a node without answers of the bus makes no more attempts than
    /// kubelet.
    pub(super) fn move_own_delay(
        &mut self,
        now: Duration,
        request: &Request,
        running: &RunningAttempt,
        failure: &AttemptFailure,
        backoff_keys: Vec<Arc<BackoffKey>>,
    ) {
        let Some((attempt, attempt_span)) = running.attempt else { return };
        let exempt = self.is_exempt(now, &request.target_keys.target.view);
        let failing = |since: Duration| Failing { since, took: now.saturating_sub(running.begun) };
        let by_fleet = !running.by_own_rule && !exempt;
        let report = ReportAttempt { key: request.key.clone(), attempt, attempt_span, failure: Some(failure.clone()), target: None };
        let entry = self.binding_of(now, backoff_keys.iter().map(|backoff_key| backoff_key.id())).filter(|_| by_fleet);
        let delay_move = if let Some(entry) = entry {
            DelayMove::Grows(failing(entry.failing_since))
        } else if by_fleet && !self.is_without_bus() && self.pauses_after(now, &request.key, &backoff_keys) {
            DelayMove::Stays
        } else {
            let was_held = !exempt && (running.by_own_rule || self.is_without_bus());
            let since = self.failing_for_others(now, &backoff_keys).filter(|since| was_held && *since < running.begun);
            DelayMove::Refuses(since.map(failing))
        };
        self.local.report_about(now, report, backoff_keys, delay_move);
    }

    /// Since when other nodes have failed: by kubelet's rule this node would have made attempts since then.
    fn failing_for_others(&self, now: Duration, backoff_keys: &[Arc<BackoffKey>]) -> Option<Duration> {
        let entries = backoff_keys.iter().filter_map(|backoff_key| self.entry(now, backoff_key.id()));
        entries.filter(|entry| entry.reporters > usize::from(entry.mine)).map(|entry| entry.failing_since).min()
    }
}

/// A failure as this node's own back-off keeps it.
pub(super) fn own_failure(now: Duration, failure: &AttemptFailure, trace: Option<TraceContext>) -> Arc<OwnFailure> {
    let mut cause = failure.cause.clone();
    shorten(&mut cause, MAX_MESSAGE_BYTES);
    Arc::new(OwnFailure { at: now, class: failure.class, cause, trace })
}
