//! Results of attempts: what is published, and whether the node's own delay changes.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use contract::messages::backoff_tracker::{AttemptReported, LocalKey, ReportAttempt};
use contract::{AttemptId, FailureClass, Stage, TraceContext};

use super::backoff_key::{BackoffKey, BackoffKeyId};
use super::entry::{Binding, Entry};
use super::input::{Duty, Effect, Outcome};
use super::lease::{LeaseName, RequestId};
use super::node::Knowledge;
use super::report::{FailureDetails, Finding, Report};
use super::request::{Request, RunningAttempt, State};
use super::requests::Fate;
use super::target::{Failure, TargetKeys};
use super::{QUIET_AFTER, UNANSWERED_AFTER, cadence};
use crate::core::delays::Failing;
use crate::core::delays::milliseconds;
use crate::core::floor::{FailedAttempt, OwnFailure};

/// A success is not published again while one is known that is younger than this, unless it changes something.
const SUCCESS_PUBLISHED_AGAIN_AFTER: Duration = Duration::from_secs(QUIET_AFTER.as_secs() / 3);
/// A registry that has served any node within this time may serve this one. The last node that asks sees no other success than its own.
const SERVED_WITHIN: Duration = Duration::from_secs(60);
/// If a fifth of all requests is served, this many failures in a row happen by chance once in 250 times.
const FAILS_ALONE_AFTER: u32 = 25;
/// Like `SUCCESS_PUBLISHED_AGAIN_AFTER`, for a success of a registry: nodes that fail depend on how lately it has served others.
const REGISTRY_SUCCESS_PUBLISHED_AGAIN_AFTER: Duration = Duration::from_secs(3);

impl Knowledge {
    /// Takes the result of a whole pull, for one of its callers; returns the requests that it touches. The same report again changes nothing.
    pub(super) fn pull_ended(&mut self, now: Duration, report: ReportAttempt, effects: &mut Vec<Effect>) -> Vec<RequestId> {
        let Some(failure) = report.failure.as_ref().map(Failure::from) else {
            self.floors.clear(&report.key);
            self.retry_pauses.succeeded(&report.key);
            effects.push(Effect::Reported(self.local.report(now, report)));
            return vec![];
        };
        if self.recent_attempts.is_abandoned(report.attempt) {
            self.local.report_abandoned(report.attempt, &report.key);
            effects.push(Effect::Reported(AttemptReported { next_attempt_ms: Some(0), entry: None }));
            return vec![];
        }
        let touched = self.failed_late(now, report.attempt, &failure, effects);
        let backoff_keys = self.backoff_keys_of(&report, &failure);
        if let Some(running) = self.recent_attempts.running_of(report.attempt) {
            let kept = own_failure(now, &failure, report.attempt_span);
            self.note_floor(&report.key, report.attempt, &running, &backoff_keys, &kept);
        }
        let own = self.recent_attempts.is_by_own_rule(report.attempt)
            || self.recent_attempts.view_of(report.attempt).is_none_or(|view| self.is_exempt(now, view));
        let bound = self.binding_of(now, backoff_keys.iter().map(|backoff_key| backoff_key.id())).filter(|_| !own);
        let reported = match bound {
            Some(entry) => {
                let failing = Failing { since: entry.failing_since, took: Duration::ZERO };
                self.local.report_shared(now, report, backoff_keys, failing);
                let left = entry.next_attempt.saturating_sub(now);
                AttemptReported { next_attempt_ms: Some(milliseconds(left)), entry: Some(format!("{:032x}", entry.backoff_key.id().0)) }
            }
            None => {
                let pauses = backoff_keys.iter().filter_map(|backoff_key| self.retry_pauses.until(now, backoff_key.id(), &report.key));
                let paused = pauses.map(|(until, _)| milliseconds(until.saturating_sub(now))).max();
                let by_own_rule = self.local.report_about(now, report, backoff_keys, None);
                AttemptReported { next_attempt_ms: by_own_rule.next_attempt_ms.max(paused), ..by_own_rule }
            }
        };
        effects.push(Effect::Reported(reported));
        touched
    }

    /// The back-off keys of a failure. If this tracker did not answer, the pull coordinator made the attempt without its clearance. Then a
    /// request with the same local key gives the keys, so that a success on them releases it.
    fn backoff_keys_of(&self, report: &ReportAttempt, failure: &Failure) -> Vec<Arc<BackoffKey>> {
        let wanted = || {
            self.requests
                .iter()
                .find(|(_, request)| request.has_key(&report.key))
                .map(|(_, request)| request.target_keys.backoff_keys_of(failure))
        };
        self.recent_attempts.backoff_keys_of(report.attempt).or_else(wanted).unwrap_or_default()
    }

    /// Publishes a failure after the manifest was answered, once: another host, a limit, or wrong content.
    fn failed_late(&mut self, now: Duration, attempt: AttemptId, failure: &Failure, effects: &mut Vec<Effect>) -> Vec<RequestId> {
        let Some((target_keys, running)) = self.recent_attempts.take_resolved(attempt) else { return vec![] };
        let backoff_keys = target_keys.backoff_keys_of(failure);
        let running = RunningAttempt { begun: now, ..running };
        let mut touched = Vec::new();
        for backoff_key in &backoff_keys {
            if self.replica.is_distrusted(now, &self.node, Some(backoff_key)) {
                self.replica.still_distrusted(now, &self.node, backoff_key);
                self.counts.kept_to_itself_total += 1;
                continue;
            }
            let finding = Finding::Failed(self.details(&target_keys, &running, backoff_key, failure));
            self.publish(now, &running, Arc::clone(backoff_key), finding, effects);
            touched.extend(self.requests.touching(backoff_key.id()));
        }
        self.recent_attempts.failed(attempt, &target_keys, backoff_keys, &running);
        touched
    }

    pub(super) fn resolved(
        &mut self,
        now: Duration,
        id: RequestId,
        attempt: AttemptId,
        outcome: Outcome,
        effects: &mut Vec<Effect>,
    ) -> Vec<RequestId> {
        let is_current = |request: &Request| matches!(&request.state, State::RunningAttempt(running) if running.attempt.is_some_and(|(begun, _)| begun == attempt));
        let current = self.requests.get(id).is_some_and(is_current);
        let failure = match outcome {
            Outcome::Reached(stage) if current => return self.reached(now, id, stage, effects),
            Outcome::Reached(stage) => return self.reached_late(now, attempt, stage, effects),
            Outcome::Failed(_) if !current => return vec![],
            Outcome::Failed(failure) => failure,
        };
        let touched = self.with_request(id, |knowledge, request| {
            let State::RunningAttempt(running) = std::mem::replace(&mut request.state, State::Fresh) else {
                return (BTreeSet::new(), Fate::Ends);
            };
            request.last_decision = None;
            request.wake = None;
            let backoff_keys = request.target_keys.backoff_keys_of(&failure);
            let mut touched = knowledge.failed(now, request, &running, &failure, &backoff_keys, effects);
            let ids = || backoff_keys.iter().map(|backoff_key| backoff_key.id());
            // The leases of keys with an open entry are kept, because a node that has not received the failure would ask in vain. The
            // others are released.
            let kept: Vec<BackoffKeyId> = knowledge.binding_of(now, ids()).map(|_| ids().collect()).unwrap_or_default();
            knowledge.give_back(now, id, |name| matches!(name, LeaseName::Slot(..)) || !kept.contains(&name.backoff_key()), effects);
            touched.insert(id);
            (touched, Fate::Stays)
        });
        touched.into_iter().flatten().collect()
    }

    /// A stage has answered the attempt of a request. If it is the stage that the clearance waits for, the request is over.
    fn reached(&mut self, now: Duration, id: RequestId, stage: Stage, effects: &mut Vec<Effect>) -> Vec<RequestId> {
        self.with_request(id, |knowledge, request| {
            let State::RunningAttempt(running) = &mut request.state else { return (vec![], Fate::Ends) };
            let touched = knowledge.publish_stages(now, &request.target_keys, running, stage, effects);
            let Some((attempt, _)) = running.attempt else { return (touched, Fate::Ends) };
            if running.reached.contains(&Stage::Manifest) {
                // The node's own delay ends only when the pull has succeeded: it may still fail, for example on this node's disk.
                knowledge.recent_attempts.resolved(attempt, &request.target_keys, running);
            }
            if stage >= running.until {
                knowledge.give_back(now, id, |name| matches!(name, LeaseName::Slot(..)), effects);
                return (touched, Fate::Ends);
            }
            if stage != Stage::Token {
                (running.begun, running.reported_unanswered) = (now, stage >= Stage::Blob);
                request.wake = Some(now + UNANSWERED_AFTER);
            }
            if stage >= Stage::Blob {
                // No deadline: the rest takes as long as the image is large.
                running.deadline = None;
            }
            (touched, Fate::Stays)
        })
        .unwrap_or_default()
    }

    /// A stage has answered an attempt whose clearance is over.
    fn reached_late(&mut self, now: Duration, attempt: AttemptId, stage: Stage, effects: &mut Vec<Effect>) -> Vec<RequestId> {
        let Some((target_keys, mut running)) = self.recent_attempts.resolved_one(attempt) else { return vec![] };
        let touched = self.publish_stages(now, &target_keys, &mut running, stage, effects);
        self.recent_attempts.resolved(attempt, &target_keys, &running);
        touched
    }

    fn publish_stages(
        &mut self,
        now: Duration,
        target_keys: &TargetKeys,
        running: &mut RunningAttempt,
        stage: Stage,
        effects: &mut Vec<Effect>,
    ) -> Vec<RequestId> {
        let mut touched = BTreeSet::new();
        for shown in running.reach(stage) {
            touched.extend(self.succeeded(now, target_keys, running, shown, effects));
        }
        touched.into_iter().collect()
    }

    /// Publishes only what is new of a success, so that 1,000 nodes that succeed do not publish 1,000 reports.
    fn succeeded(
        &mut self,
        now: Duration,
        target_keys: &TargetKeys,
        running: &RunningAttempt,
        stage: Stage,
        effects: &mut Vec<Effect>,
    ) -> BTreeSet<RequestId> {
        let mut touched = BTreeSet::new();
        let backoff_keys = target_keys.backoff_keys();
        let view_id = backoff_keys.first().map(|backoff_key| backoff_key.view_id()).unwrap_or_default();
        let any_repository_fails = self.replica.fails_in(view_id, FailureClass::RegistryUnavailable);
        // The narrowest key comes first: a node that receives that the registry is back then knows that the image is resolved, and asks for
        // no lead lease.
        for backoff_key in backoff_keys.iter().rev().filter(|backoff_key| backoff_key.about().stage() == stage) {
            let watched = [target_keys.owner, target_keys.endpoint, target_keys.image, target_keys.blobs].contains(&backoff_key.id())
                || (backoff_key.id() == target_keys.content && !running.reached.contains(&Stage::Blob))
                || (any_repository_fails && backoff_key.class() == FailureClass::RegistryUnavailable);
            touched.extend(self.publish_success(now, backoff_key, watched, running, effects));
        }
        touched
    }

    fn publish_success(
        &mut self,
        now: Duration,
        backoff_key: &Arc<BackoffKey>,
        watched: bool,
        running: &RunningAttempt,
        effects: &mut Vec<Effect>,
    ) -> Vec<RequestId> {
        let own_report_fails = self.replica.last_report(backoff_key.id(), &self.node).is_some_and(|own| own.finding.details().is_some());
        // The failure was not published, so this success is news only if no recent one is known, or if it is kept as well.
        let failed_unpublished = self.unpublished.failure(backoff_key.id()).is_some();
        let is_first = || (watched || failed_unpublished) && self.is_newer_success(backoff_key, now);
        let is_news = own_report_fails
            || (failed_unpublished && self.unpublished.is_without_bus())
            || self.replica.is_failing(backoff_key.id())
            || is_first();
        if !is_news {
            self.unpublished.forget(backoff_key.id());
            return vec![];
        }
        self.publish(now, running, Arc::clone(backoff_key), Finding::Succeeded, effects);
        self.lift_own_delays(now, backoff_key.id());
        self.requests.touching(backoff_key.id())
    }

    fn failed(
        &mut self,
        now: Duration,
        request: &Request,
        running: &RunningAttempt,
        failure: &Failure,
        backoff_keys: &[Arc<BackoffKey>],
        effects: &mut Vec<Effect>,
    ) -> BTreeSet<RequestId> {
        let mut touched = BTreeSet::new();
        let late = running.deadline.is_some_and(|deadline| now > deadline);
        self.counts.late_results_total += u64::from(late);
        for backoff_key in backoff_keys.iter().filter(|_| !late) {
            if self.replica.is_distrusted(now, &self.node, Some(backoff_key)) {
                self.replica.still_distrusted(now, &self.node, backoff_key);
                self.counts.kept_to_itself_total += 1;
                continue;
            }
            let finding = Finding::Failed(self.details(&request.target_keys, running, backoff_key, failure));
            self.publish(now, running, Arc::clone(backoff_key), finding, effects);
            touched.extend(self.requests.touching(backoff_key.id()));
        }
        if !late {
            self.note_probe(now, running, backoff_keys, effects);
        }
        if failure.shows_reachable() && !late {
            let endpoint = request.target_keys.stage_backoff_key(failure.stage);
            touched.extend(self.publish_success(now, &endpoint, true, running, effects));
        }
        if let Some((attempt, span)) = running.attempt {
            let own = own_failure(now, failure, span);
            self.recent_attempts.failed(attempt, &request.target_keys, backoff_keys.to_vec(), running);
            self.note_floor(&request.key, attempt, running, backoff_keys, &own);
            self.note_retry_pause(now, request, failure, backoff_keys, &own);
            self.move_own_delay(now, request, running, failure, backoff_keys.to_vec());
        }
        touched
    }

    /// Sets the floor: the next attempt of this key is not sooner than by kubelet's rule, whatever other nodes report.
    fn note_floor(
        &mut self,
        key: &LocalKey,
        attempt: AttemptId,
        running: &RunningAttempt,
        backoff_keys: &[Arc<BackoffKey>],
        failure: &Arc<OwnFailure>,
    ) {
        let backoff_keys = backoff_keys.iter().map(|backoff_key| backoff_key.id()).collect();
        let failed = FailedAttempt { attempt, began: running.begun, exempt: running.exempt, backoff_keys, failure: Arc::clone(failure) };
        self.floors.failed(key, failed);
    }

    /// Sets a pause of this image if the registry serves others, and a pause of all pulls on the budget if the registry sent `Retry-After`.
    fn note_retry_pause(
        &mut self,
        now: Duration,
        request: &Request,
        failure: &Failure,
        backoff_keys: &[Arc<BackoffKey>],
        own: &Arc<OwnFailure>,
    ) {
        if self.is_without_bus() || self.is_exempt(now, &request.target_keys.target.view) {
            return;
        }
        if let (Some(asked), Some(owner)) =
            (failure.retry_after, backoff_keys.iter().find(|backoff_key| backoff_key.id() == request.target_keys.owner))
        {
            self.retry_pauses.stay_away(owner.id(), now + cadence::delay(owner, 1, Some(asked)), own);
        }
        if self.pauses_after(now, &request.key, backoff_keys) {
            self.retry_pauses.failed(&request.key, backoff_keys.iter().map(|backoff_key| backoff_key.id()).collect(), own);
        }
    }

    /// True if the node pauses for seconds after a failure, because the registry has served another node within a minute and no entry of its own
    /// binds. Otherwise kubelet's rule applies, also if an image has failed many times in a row here, because this node may be the cause.
    fn pauses_after(&self, now: Duration, key: &LocalKey, backoff_keys: &[Arc<BackoffKey>]) -> bool {
        let may_be_overloaded = || backoff_keys.iter().filter(|backoff_key| backoff_key.about().may_be_overloaded());
        let distrusted = self.retry_pauses.failures(now, key) >= FAILS_ALONE_AFTER
            && may_be_overloaded().any(|backoff_key| self.replica.is_distrusted(now, &self.node, Some(backoff_key)));
        let served = may_be_overloaded().filter_map(|backoff_key| self.replica.succeeded_at(backoff_key.id())).max();
        let serves = served.is_some_and(|at| now <= at + SERVED_WITHIN);
        serves && !distrusted && self.binding_of(now, backoff_keys.iter().map(|backoff_key| backoff_key.id())).is_none()
    }

    fn details(&self, target_keys: &TargetKeys, running: &RunningAttempt, backoff_key: &BackoffKey, failure: &Failure) -> FailureDetails {
        let (message, repository) = (failure.cause.clone(), target_keys.target.repository.clone());
        let id = backoff_key.id();
        let last_report = || self.replica.last_report(id, &self.node).filter(|_| self.replica.is_standing(id, &self.node));
        let before = match self.unpublished.failure(id) {
            Some((details, date)) => self.replica.succeeded_at(id).is_none_or(|success| success < date).then_some(details),
            None => last_report().and_then(|report| report.finding.details()),
        };
        let in_a_row = before.map_or(1, |before| before.in_a_row.saturating_add(1));
        let (step, failing_for) = (running.step_of(id), self.failing_for(id, running.begun));
        FailureDetails { message, step, retry_after: failure.retry_after, repository, in_a_row, failing_for }.bounded()
    }

    /// How long before `date` this node has had nothing but failures.
    pub(super) fn failing_for(&self, backoff_key: BackoffKeyId, date: Duration) -> Duration {
        let since = match self.unpublished.failure(backoff_key) {
            Some((details, failed_at)) => Some(failed_at.saturating_sub(details.failing_for)),
            None if self.unpublished.has_succeeded(backoff_key) => None,
            None => self.replica.failing_since(backoff_key, &self.node),
        };
        since.map(|since| date.saturating_sub(since)).unwrap_or_default()
    }

    /// Moves the node's own delay by a failure. The delay itself refuses nothing if the fleet allowed the attempt and an entry or a pause
    /// decides. After an attempt by the node's own rule it does, so that a node without answers of the bus makes no more attempts than
    /// kubelet.
    fn move_own_delay(
        &mut self,
        now: Duration,
        request: &Request,
        running: &RunningAttempt,
        failure: &Failure,
        backoff_keys: Vec<Arc<BackoffKey>>,
    ) {
        let Some((attempt, attempt_span)) = running.attempt else { return };
        let exempt = self.is_exempt(now, &request.target_keys.target.view);
        let failing = |since: Duration| Failing { since, took: now.saturating_sub(running.begun) };
        let by_fleet = !running.by_own_rule && !exempt;
        let report = ReportAttempt { key: request.key.clone(), attempt, attempt_span, failure: Some(failure.to_message()) };
        let entry = self.binding_of(now, backoff_keys.iter().map(|backoff_key| backoff_key.id())).filter(|_| by_fleet);
        if let Some(entry) = entry {
            self.local.report_shared(now, report, backoff_keys, failing(entry.failing_since));
        } else if by_fleet && !self.is_without_bus() && self.pauses_after(now, &request.key, &backoff_keys) {
            self.local.report_paused(now, report, backoff_keys);
        } else {
            let was_held = !exempt && (running.by_own_rule || self.is_without_bus());
            let since = self.failing_for_others(now, &backoff_keys).filter(|since| was_held && *since < running.begun);
            self.local.report_about(now, report, backoff_keys, since.map(failing));
        }
    }

    /// Since when other nodes have failed: by kubelet's rule this node would have made attempts since then.
    fn failing_for_others(&self, now: Duration, backoff_keys: &[Arc<BackoffKey>]) -> Option<Duration> {
        let entries = backoff_keys.iter().filter_map(|backoff_key| self.entry(now, backoff_key.id()));
        entries.filter(|entry| entry.reporters > usize::from(entry.mine)).map(|entry| entry.failing_since).min()
    }

    /// The first entry of these keys that this node reports and that refuses all nodes.
    pub(super) fn binding_of(&self, now: Duration, mut backoff_keys: impl Iterator<Item = BackoffKeyId>) -> Option<Entry> {
        let shared = |backoff_key| self.entry(now, backoff_key).filter(|entry| entry.mine && entry.binding == Binding::Everybody);
        if self.is_without_bus() { None } else { backoff_keys.find_map(shared) }
    }

    /// Publishes a report under this node's name. A failure is as old as its attempt, and so is a success that came after its lease had
    /// expired, because other nodes may have made attempts in its place.
    pub(super) fn publish(
        &mut self,
        now: Duration,
        running: &RunningAttempt,
        backoff_key: Arc<BackoffKey>,
        finding: Finding,
        effects: &mut Vec<Effect>,
    ) {
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
            self.publish_report(now, report, age, effects);
        }
    }

    /// True if no node is known to have published a success of a key shortly before that time.
    pub(super) fn is_newer_success(&self, backoff_key: &BackoffKey, date: Duration) -> bool {
        let again_after =
            if backoff_key.about().may_be_overloaded() { REGISTRY_SUCCESS_PUBLISHED_AGAIN_AFTER } else { SUCCESS_PUBLISHED_AGAIN_AFTER };
        self.replica.succeeded_at(backoff_key.id()).is_none_or(|at| at + again_after <= date)
    }

    /// Gives a report to the bus. The bus keeps the last one that is written, and nodes the newest one, so a report that is older than this node's
    /// last one is not given.
    pub(super) fn publish_report(&mut self, now: Duration, report: Arc<Report>, age: Duration, effects: &mut Vec<Effect>) {
        self.unpublished.forget(report.backoff_key.id());
        if !self.replica.is_news(now, &report, now.saturating_sub(age)) {
            return;
        }
        self.note_unstored(&report);
        self.replica.receive(now, Arc::clone(&report), age);
        effects.push(Effect::Publish(report, age));
    }
}

/// A failure as this node's own back-off keeps it.
fn own_failure(now: Duration, failure: &Failure, trace: Option<TraceContext>) -> Arc<OwnFailure> {
    let FailureDetails { message: cause, .. } = FailureDetails { message: failure.cause.clone(), ..FailureDetails::default() }.bounded();
    Arc::new(OwnFailure { at: now, class: failure.class, cause, trace })
}

impl RunningAttempt {
    pub(super) fn step_of(&self, backoff_key: BackoffKeyId) -> u32 {
        self.steps.get(&backoff_key).copied().unwrap_or(1)
    }
}
