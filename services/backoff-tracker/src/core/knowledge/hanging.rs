//! Attempts that the registry does not answer: they are reported once, and ended if others are answered.

use std::time::Duration;

use contract::{DEADLINES, Stage};

use super::backoff_key::BackoffKeyId;
use super::input::Duty;
use super::lease::RequestId;
use super::node::Knowledge;
use super::report::Finding;
use super::request::{Request, RunningAttempt, State};
use super::requests::Fate;

/// An attempt without an answer for this long hangs, if other nodes had one meanwhile. A slow registry answers within it.
const HANGS_AFTER: Duration = Duration::from_secs(5);

impl Knowledge {
    /// Ends attempts that hang while other nodes are answered, after [`HANGS_AFTER`] and once per request, so that they begin anew. Answers
    /// from before an attempt began do not count, because a node that joins reads old reports. Exempt requests are left alone.
    pub(super) fn abandon_hanging(&mut self, now: Duration, backoff_key: BackoffKeyId, answered_at: Duration) {
        for id in self.requests.touching(backoff_key) {
            let hangs = |request: &Request| {
                let State::RunningAttempt(running) = &request.state else { return false };
                let keys = &request.target_keys;
                let waits_for = if running.stage() == Stage::Blob { keys.blobs } else { keys.endpoint };
                let silent = waits_for == backoff_key && running.reported_unanswered && answered_at >= running.begun;
                silent && !request.abandoned && !self.is_exempt(now, &keys.target.view)
            };
            if self.requests.get(id).is_some_and(hangs) {
                self.with_request(id, |knowledge, request| {
                    if let State::RunningAttempt(running) = &mut request.state {
                        running.others_answered = true;
                        request.wake = Some(running.begun + HANGS_AFTER);
                    }
                    knowledge.abandon_if_hanging(now, id, request);
                    Fate::Stays
                });
            }
        }
    }

    pub(super) fn abandon_if_hanging(&mut self, now: Duration, id: RequestId, request: &mut Request) {
        let State::RunningAttempt(RunningAttempt { others_answered: true, attempt, begun, .. }) = &request.state else { return };
        if now < *begun + HANGS_AFTER {
            return;
        }
        attempt.iter().for_each(|(attempt, _)| self.recent_attempts.abandoned(*attempt));
        request.state = State::Fresh;
        request.last_decision = None;
        request.abandoned = true;
        self.abandon(id);
        self.give_back(now, id, |_| true);
    }

    /// Reports an attempt without an answer, once.
    pub(super) fn watch(&mut self, now: Duration, request: &mut Request) {
        let State::RunningAttempt(running) = &mut request.state else { return };
        if running.attempt.is_none() {
            // It waits in a queue of this node, so it shows nothing about the registry. See `has_lapsed`.
            if running.deadline.is_some_and(|deadline| now >= deadline) {
                // Another node may make the attempt for all instead.
                (running.duty, running.deadline, running.for_all) = (Duty::None, None, false);
            }
            let outdated = running.by_own_rule.then_some(running.begun + DEADLINES.bus_back_within).filter(|at| now < *at);
            request.wake = outdated.into_iter().chain(running.deadline).min();
            return;
        }
        let late_at = running.begun + DEADLINES.unanswered_after;
        request.wake = match running.reported_unanswered {
            false => (now < late_at).then_some(late_at),
            true => running.others_answered.then_some(running.begun + HANGS_AFTER),
        };
        if running.reported_unanswered || now < late_at {
            return;
        }
        running.reported_unanswered = true;
        let stage = running.stage();
        let endpoint = request.target_keys.stage_backoff_key(stage);
        let answered_since = self.replica.succeeded_at(endpoint.id()).is_some_and(|at| at >= running.begun);
        if !answered_since {
            let of = if stage == Stage::Blob { "no blob" } else { "no answer" };
            let message = format!("{of} from {} for {} s", request.target_keys.target.endpoint, DEADLINES.unanswered_after.as_secs());
            let details = self.details_without_answer(running, endpoint.id(), message).bounded();
            self.publish(now, running, endpoint, Finding::Unanswered(details));
        }
    }
}
