//! What this node publishes of its attempts: failures, and of successes only what is new.

use std::sync::Arc;
use std::time::Duration;

use contract::messages::backoff_tracker::AttemptFailure;
use contract::{FailureClass, Stage};

use super::QUIET_AFTER;
use super::backoff_key::{BackoffKey, BackoffKeyId, may_be_overload};
use super::input::{Duty, Effect};
use super::node::Knowledge;
use super::replica::KEPT_FOR;
use super::report::{FailureDetails, Finding, Report};
use super::request::RunningAttempt;
use super::target::TargetKeys;

/// A success is not published again while one is known that is younger than this, unless it changes something.
const SUCCESS_PUBLISHED_AGAIN_AFTER: Duration = Duration::from_secs(QUIET_AFTER.as_secs() / 3);
/// A refuted failure is published again after this, so that it does not expire while the node fails. It is half the longest delay of
/// kubelet's rule.
const REFUTED_PUBLISHED_AGAIN_AFTER: Duration = Duration::from_secs(KEPT_FOR.as_secs() / 4);
/// Like `SUCCESS_PUBLISHED_AGAIN_AFTER`, for a success of a registry: nodes that fail depend on how lately it has served others.
const REGISTRY_SUCCESS_PUBLISHED_AGAIN_AFTER: Duration = Duration::from_secs(3);

impl Knowledge {
    pub(super) fn publish_stages(&mut self, now: Duration, target_keys: &TargetKeys, running: &mut RunningAttempt, stage: Stage) {
        for shown in running.reach(stage) {
            self.succeeded(now, target_keys, running, shown);
        }
    }

    /// Publishes only what is new of a success, so that 1,000 nodes that succeed do not publish 1,000 reports.
    fn succeeded(&mut self, now: Duration, target_keys: &TargetKeys, running: &RunningAttempt, stage: Stage) {
        let backoff_keys = target_keys.backoff_keys();
        let view_id = backoff_keys.first().map(|backoff_key| backoff_key.view_id()).unwrap_or_default();
        let any_repository_fails = self.replica.fails_in(view_id, FailureClass::RegistryUnavailable);
        // The narrowest key comes first: a node that receives that the registry is back then knows that the image is resolved, and asks for
        // no lead lease.
        for backoff_key in backoff_keys.iter().rev().filter(|backoff_key| backoff_key.in_view().stage() == stage) {
            let watched = [target_keys.owner, target_keys.endpoint, target_keys.image, target_keys.blobs].contains(&backoff_key.id())
                || (backoff_key.id() == target_keys.content && !running.reached.contains(&Stage::Blob))
                || (any_repository_fails && backoff_key.class() == FailureClass::RegistryUnavailable);
            self.publish_success(now, backoff_key, watched, running);
        }
    }

    pub(super) fn publish_success(&mut self, now: Duration, backoff_key: &Arc<BackoffKey>, watched: bool, running: &RunningAttempt) {
        let own_report_fails = self.replica.own_report(backoff_key.id()).is_some_and(|own| own.claim.is_some());
        // The failure was not published, so this success is news only if no recent one is known, or if it is kept as well.
        let failed_unpublished = self.unpublished.failure(backoff_key.id()).is_some();
        let is_first = || (watched || failed_unpublished) && self.is_newer_success(backoff_key, now);
        let is_news = own_report_fails
            || (failed_unpublished && self.unpublished.is_without_bus())
            || self.replica.is_failing(backoff_key.id())
            || is_first();
        if !is_news {
            self.unpublished.forget(backoff_key.id());
            return;
        }
        self.publish(now, running, Arc::clone(backoff_key), Finding::Succeeded);
        self.lift_own_delays(now, backoff_key.id());
        self.touch(backoff_key.id());
    }

    /// True if no node is known to have published a success of a key shortly before that time.
    fn is_newer_success(&self, backoff_key: &BackoffKey, date: Duration) -> bool {
        let again_after =
            if may_be_overload(backoff_key.class()) { REGISTRY_SUCCESS_PUBLISHED_AGAIN_AFTER } else { SUCCESS_PUBLISHED_AGAIN_AFTER };
        self.replica.succeeded_at(backoff_key.id()).is_none_or(|at| at + again_after <= date)
    }

    /// True if a failure is not published: others have succeeded where this node fails, so its failure counts for itself alone.
    pub(super) fn is_kept_back(&self, now: Duration, backoff_key: BackoffKeyId) -> bool {
        let own = self.replica.own_report(backoff_key).filter(|own| own.claim.is_some());
        own.is_some_and(|own| now < own.date + REFUTED_PUBLISHED_AGAIN_AFTER) && self.replica.is_refuted(now, backoff_key)
    }

    /// The details of a failure of this node's attempt.
    pub(super) fn details(
        &self,
        target_keys: &TargetKeys,
        running: &RunningAttempt,
        id: BackoffKeyId,
        failure: &AttemptFailure,
    ) -> FailureDetails {
        let repository = target_keys.target.repository.clone();
        let last_report = || self.replica.own_report(id).filter(|_| self.replica.is_standing(id));
        let before = match self.unpublished.failure(id) {
            Some((details, date)) => self.replica.confirmed_at(id).is_none_or(|success| success < date).then_some(details),
            None => last_report().and_then(|own| own.report.finding.details()),
        };
        let in_a_row = before.map_or(1, |before| before.in_a_row.saturating_add(1));
        let retry_after = failure.retry_after_ms.map(Duration::from_millis);
        FailureDetails { retry_after, repository, in_a_row, ..self.details_without_answer(running, id, failure.cause.clone()) }.bounded()
    }

    /// The details as far as they are known before the attempt has an answer.
    pub(super) fn details_without_answer(&self, running: &RunningAttempt, id: BackoffKeyId, message: String) -> FailureDetails {
        let step = running.steps.get(&id).copied().unwrap_or(1);
        let (failing_since, for_all_at) = self.failing_since(id).unwrap_or((running.begun, running.begun));
        let for_all_at = if running.for_all { running.begun } else { for_all_at };
        let ago = |date| running.begun.saturating_sub(date);
        let (failing_for, for_all_ago, succeeded_ago) = (ago(failing_since), ago(for_all_at), self.succeeded_ago(id, running.begun));
        FailureDetails { message, step, failing_for, for_all_ago, succeeded_ago, ..FailureDetails::default() }
    }

    /// Since when this node has had nothing but failures, and when the last of them was that it had for all nodes; none if it does not fail.
    fn failing_since(&self, backoff_key: BackoffKeyId) -> Option<(Duration, Duration)> {
        match self.unpublished.failure(backoff_key) {
            Some((details, failed_at)) => {
                Some((failed_at.saturating_sub(details.failing_for), failed_at.saturating_sub(details.for_all_ago)))
            }
            None if self.unpublished.has_succeeded(backoff_key) => None,
            None => {
                let own = self.replica.own_report(backoff_key).filter(|own| own.claim.is_some())?;
                Some((own.failing_since, own.for_all_at))
            }
        }
    }

    /// How long before `date` this node's last success was.
    fn succeeded_ago(&self, backoff_key: BackoffKeyId, date: Duration) -> Option<Duration> {
        let at = self.unpublished.succeeded_at(backoff_key).or_else(|| self.replica.own_report(backoff_key)?.succeeded_at());
        at.map(|at| date.saturating_sub(at))
    }

    /// Publishes a report under this node's name. A failure is as old as its attempt, and so is a success that came after its lease had
    /// expired, because other nodes may have made attempts in its place.
    pub(super) fn publish(&mut self, now: Duration, running: &RunningAttempt, backoff_key: Arc<BackoffKey>, finding: Finding) {
        let Some((attempt, trace)) = running.attempt else { return };
        let in_time = running.deadline.is_none_or(|deadline| now <= deadline);
        let age = if finding == Finding::Succeeded && in_time { Duration::ZERO } else { now.saturating_sub(running.begun) };
        let report = Arc::new(Report { reporter: self.node.clone(), backoff_key, attempt, trace, finding });
        let without_bus = match report.finding {
            Finding::Failed(_) | Finding::Unanswered(_) if running.duty == Duty::None => self.unpublished.began_without_bus(running.begun),
            // Other nodes wait for the result.
            _ => self.unpublished.is_without_bus(),
        };
        if without_bus {
            self.publish_in_turn(now, report, now.saturating_sub(age));
        } else {
            self.publish_report(now, report, age);
        }
    }

    /// Gives a report to the bus. The bus keeps the last one that is written, and nodes the newest one, so a report that is older than this
    /// node's last one is not given.
    pub(super) fn publish_report(&mut self, now: Duration, report: Arc<Report>, age: Duration) {
        self.unpublished.forget(report.backoff_key.id());
        if !self.replica.is_news(now, &report, now.saturating_sub(age)) {
            return;
        }
        self.note_unstored(&report);
        self.replica.receive(now, Arc::clone(&report), age);
        self.effects.push(Effect::Publish(report, age));
    }
}
