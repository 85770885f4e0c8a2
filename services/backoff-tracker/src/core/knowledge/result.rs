//! Results of attempts and of whole pulls, and the requests that they touch.

use std::sync::Arc;
use std::time::Duration;

use contract::messages::backoff_tracker::{AttemptFailure, AttemptReported, LocalKey, ReportAttempt};
use contract::{AttemptId, DEADLINES, Stage};

use super::backoff_key::{BackoffKey, BackoffKeyId};
use super::input::Outcome;
use super::lease::{LeaseName, RequestId};
use super::node::Knowledge;
use super::own_failures::{Failed, OwnRule};
use super::report::Finding;
use super::request::{Request, RunningAttempt, State};
use super::requests::Fate;
use super::target::{TargetKeys, shows_reachable};
use crate::core::delays::{Failing, milliseconds_left};

impl Knowledge {
    /// Takes the result of a whole pull, for one of its callers. The same report again changes nothing.
    pub(super) fn pull_ended(&mut self, now: Duration, report: ReportAttempt) -> AttemptReported {
        let ReportAttempt { key, attempt, attempt_span, failure, target } = report;
        let is_first = self.recent_attempts.is_first_report(attempt, &key);
        let Some(failure) = failure else {
            if is_first {
                self.failed_keys.clear(&key);
                self.failed_keys.collect_garbage(now);
            }
            return self.reported_by_own_rule(now, &key);
        };
        if self.recent_attempts.is_abandoned(attempt) {
            self.failed_keys.counts.failures_total += u64::from(is_first);
            return AttemptReported { next_attempt_ms: Some(0), entry: None };
        }
        self.failed_late(now, attempt, &failure);
        let failed = self.recent_attempts.failed_one(attempt);
        // If the pull coordinator made the attempt without clearance, because this tracker did not answer or had just withdrawn it, the
        // report's target gives the keys, so that a success on them ends this back-off.
        let of_target = || target.map(|target| self.target_keys(target).backoff_keys_of(&failure));
        let backoff_keys = failed.map(|failed| failed.backoff_keys.clone()).or_else(of_target).unwrap_or_default();
        let cleared = failed.map(|failed| failed.cleared);
        let own = failed.is_none_or(|failed| failed.by_own_rule || self.is_exempt(now, &failed.view));
        let bound = self.binding_of(now, backoff_keys.iter().map(|backoff_key| backoff_key.id())).filter(|_| !own);
        let failing = bound.as_ref().map(|entry| Failing { since: entry.failing_since, took: Duration::ZERO });
        let own_rule = failing.map_or(OwnRule::Refuses(None), OwnRule::Grows);
        let pauses = backoff_keys.iter().filter_map(|backoff_key| self.retry_pause(now, backoff_key.id(), &key));
        let paused = pauses.map(|(until, _)| milliseconds_left(until.saturating_sub(now))).max();
        if is_first {
            self.failed_keys.note(&key, Failed { backoff_keys, own_rule, cleared, ..Failed::new(now, &failure, attempt_span) });
        }
        if let Some(entry) = bound {
            let left = entry.next_attempt.saturating_sub(now);
            return AttemptReported { next_attempt_ms: Some(milliseconds_left(left)), entry: Some(entry.backoff_key.id().to_string()) };
        }
        let by_own_rule = self.reported_by_own_rule(now, &key);
        AttemptReported { next_attempt_ms: by_own_rule.next_attempt_ms.max(paused), ..by_own_rule }
    }

    fn reported_by_own_rule(&self, now: Duration, key: &LocalKey) -> AttemptReported {
        AttemptReported { next_attempt_ms: self.failed_keys.held(now, key).map(milliseconds_left), entry: None }
    }

    /// Publishes a failure after the manifest was answered, once: another host, a limit, or wrong content.
    fn failed_late(&mut self, now: Duration, attempt: AttemptId, failure: &AttemptFailure) {
        let Some((target_keys, running)) = self.recent_attempts.resolved_one(attempt) else { return };
        let backoff_keys = target_keys.backoff_keys_of(failure);
        let running = RunningAttempt { begun: now, ..running };
        self.publish_failure(now, &target_keys, &running, failure, &backoff_keys);
        self.recent_attempts.failed(attempt, &target_keys, backoff_keys, &running);
    }

    /// Publishes a failure on each of its keys, unless this node keeps it to itself.
    fn publish_failure(
        &mut self,
        now: Duration,
        target_keys: &TargetKeys,
        running: &RunningAttempt,
        failure: &AttemptFailure,
        backoff_keys: &[Arc<BackoffKey>],
    ) {
        for backoff_key in backoff_keys {
            if self.is_kept_back(now, backoff_key.id()) {
                self.counts.kept_to_itself_total += 1;
                continue;
            }
            let finding = Finding::Failed(self.details(target_keys, running, backoff_key.id(), failure));
            self.publish(now, running, Arc::clone(backoff_key), finding);
            self.touch(backoff_key.id());
        }
    }

    pub(super) fn resolved(&mut self, now: Duration, id: RequestId, attempt: AttemptId, outcome: Outcome) {
        let is_current = |request: &Request| matches!(&request.state, State::RunningAttempt(running) if running.attempt.is_some_and(|(begun, _)| begun == attempt));
        let current = self.requests.get(id).is_some_and(is_current);
        let failure = match outcome {
            Outcome::Reached(stage) if current => return self.reached(now, id, stage),
            Outcome::Reached(stage) => return self.reached_late(now, attempt, stage),
            Outcome::Failed(_) if !current => return,
            Outcome::Failed(failure) => failure,
        };
        self.with_request(id, |knowledge, request| {
            let State::RunningAttempt(running) = std::mem::replace(&mut request.state, State::Fresh) else {
                return Fate::Ends;
            };
            request.last_decision = None;
            request.wake = None;
            let backoff_keys = request.target_keys.backoff_keys_of(&failure);
            knowledge.failed(now, request, &running, &failure, &backoff_keys);
            let ids = || backoff_keys.iter().map(|backoff_key| backoff_key.id());
            // The leases of keys with an open entry are kept, because a node that has not received the failure would ask in vain. The
            // others are released.
            if shows_reachable(&failure) {
                let next = knowledge.pass_slot_on(now, id, request.target_keys.endpoint);
                knowledge.touched.extend(next);
            }
            let kept: Vec<BackoffKeyId> = knowledge.binding_of(now, ids()).map(|_| ids().collect()).unwrap_or_default();
            knowledge.give_back(now, id, |name| matches!(name, LeaseName::Slot(..)) || !kept.contains(&name.backoff_key()));
            knowledge.touched.insert(id);
            Fate::Stays
        });
    }

    /// A stage has answered the attempt of a request. If it is the stage that the clearance waits for, the request is over.
    fn reached(&mut self, now: Duration, id: RequestId, stage: Stage) {
        self.with_request(id, |knowledge, request| {
            let State::RunningAttempt(running) = &mut request.state else { return Fate::Ends };
            knowledge.publish_stages(now, &request.target_keys, running, stage);
            let Some((attempt, _)) = running.attempt else { return Fate::Ends };
            if running.reached.contains(&Stage::Manifest) {
                // The node's own delay ends only when the pull has succeeded: it may still fail, for example on this node's disk.
                knowledge.recent_attempts.resolved(attempt, &request.target_keys, running);
            }
            if stage >= running.until {
                knowledge.give_back(now, id, |name| matches!(name, LeaseName::Slot(..)));
                return Fate::Ends;
            }
            if stage != Stage::Token {
                (running.begun, running.reported_unanswered) = (now, stage >= Stage::Blob);
                request.wake = Some(now + DEADLINES.unanswered_after);
            }
            if stage >= Stage::Blob {
                // No deadline: the rest takes as long as the image is large.
                running.deadline = None;
            }
            Fate::Stays
        });
    }

    /// A stage has answered an attempt whose clearance is over.
    fn reached_late(&mut self, now: Duration, attempt: AttemptId, stage: Stage) {
        let Some((target_keys, mut running)) = self.recent_attempts.resolved_one(attempt) else { return };
        self.publish_stages(now, &target_keys, &mut running, stage);
        self.recent_attempts.resolved(attempt, &target_keys, &running);
    }

    fn failed(
        &mut self,
        now: Duration,
        request: &Request,
        running: &RunningAttempt,
        failure: &AttemptFailure,
        backoff_keys: &[Arc<BackoffKey>],
    ) {
        let late = running.deadline.is_some_and(|deadline| now > deadline);
        self.counts.late_results_total += u64::from(late);
        if !late {
            self.publish_failure(now, &request.target_keys, running, failure, backoff_keys);
            self.note_probe(now, running, backoff_keys);
        }
        if shows_reachable(failure) && !late {
            let endpoint = request.target_keys.stage_backoff_key(failure.stage);
            self.publish_success(now, &endpoint, true, running);
        }
        if let Some((attempt, _)) = running.attempt {
            self.recent_attempts.failed(attempt, &request.target_keys, backoff_keys.to_vec(), running);
        }
        self.note_failure(now, request, running, failure, backoff_keys);
    }
}
