//! An attempt of a simulated node, as in the pull coordinator: clearance, permit, one request to each stage, and the reports.

use std::time::Duration;

use backoff_tracker::core::knowledge::{self, Effect, Input, Outcome};
use clock::Now;
use contract::messages::backoff_tracker::{AttemptFailure, ReportAttempt};
use contract::{AttemptId, PermitId, Stage};
use throttler::core as throttle;

use super::budget::PullFeedback;
use super::node::{ClearedRequest, failure, key, refused, served};
use super::{Event, Simulation};
use crate::registry::Reply;
use crate::scenario::Answer;

/// How often a node renews a permit that it waits for or uses: three times within the time after which the permit lapses.
const RENEW_EVERY: Duration = Duration::from_secs(10);
/// The shortest time between two requests of a standing pull for clearance.
const RUN_EVERY_AT_LEAST: Duration = Duration::from_secs(1);
/// The time between them if the answer names no next attempt.
const RUN_AGAIN_AFTER: Duration = Duration::from_secs(10);
/// How long a node keeps its permit while it asks for another clearance, because the first has nearly expired.
const PATIENCE_WITH_PERMIT: Duration = Duration::from_millis(100);

impl Simulation {
    /// Handles clearance: without a permit, the node's own token bucket and slots are asked.
    pub(super) fn cleared(&mut self, node: usize, answer_by: Option<Duration>, until: Stage) {
        let granted_at = self.now;
        let cleared = ClearedRequest {
            permit: PermitId::random(&mut self.random),
            granted_at,
            answer_by,
            until,
            resolve_sent: false,
            expired: false,
            asks_again: false,
            throttled: false,
            attempt: None,
        };
        let held = self.nodes[node].cleared.as_ref().filter(|cleared| cleared.asks_again).map(|cleared| cleared.permit);
        if let Some(permit) = held {
            self.nodes[node].cleared = Some(ClearedRequest { permit, throttled: true, ..cleared });
            return self.attempt(node, permit, None);
        }
        self.give_up(node);
        let permit = cleared.permit;
        self.nodes[node].cleared = Some(cleared);
        if let Some(by) = answer_by {
            self.queue.plan(by, Event::Due(node, permit));
        }
        self.throttle(node, throttle::Input::Acquire { permit, image: key(self.image_of(node)).image });
    }

    /// Handles a clearance that expired before the permit was granted: other nodes may attempt instead. The node still learns of failures.
    pub(super) fn due(&mut self, node: usize, permit: PermitId) {
        let waits = |cleared: &&mut ClearedRequest| cleared.permit == permit && cleared.attempt.is_none() && !cleared.asks_again;
        if let Some(cleared) = self.nodes[node].cleared.as_mut().filter(waits) {
            cleared.expired = true;
        }
    }

    /// Asks for another clearance, because the permit was granted too late for the present one.
    fn ask_again(&mut self, node: usize, permit: PermitId) {
        let Some(cleared) = self.nodes[node].cleared.as_mut().filter(|cleared| !cleared.asks_again) else { return };
        cleared.asks_again = true;
        self.withdraw(node);
        self.queue.plan(self.now + PATIENCE_WITH_PERMIT, Event::Patience(node, permit));
        self.ask(node);
    }

    /// Gives the permit back if there is no other clearance yet.
    pub(super) fn patience_over(&mut self, node: usize, permit: PermitId) {
        if self.nodes[node].cleared.as_ref().is_some_and(|cleared| cleared.permit == permit && cleared.asks_again) {
            self.give_up(node);
        }
    }

    /// Withdraws the request; the node's next one has another id.
    fn withdraw(&mut self, node: usize) {
        self.step(node, Input::Withdraw(self.nodes[node].request));
        self.nodes[node].request.0 += 1;
    }

    /// Renews the permit that the node waits for or uses, so that it does not lapse.
    pub(super) fn renew(&mut self, node: usize) {
        let image = key(self.image_of(node)).image;
        let Some((permit, throttled)) = self.nodes[node].cleared.as_ref().map(|cleared| (cleared.permit, cleared.throttled)) else {
            return self.throttle(node, throttle::Input::Tick);
        };
        self.throttle(node, throttle::Input::Acquire { permit, image });
        if throttled && self.options.policy.shares {
            self.want(node, permit);
        }
    }

    fn throttle(&mut self, node: usize, input: throttle::Input) {
        let now = Now { monotonic: self.now, wall: self.now };
        for effect in self.nodes[node].throttle.step(now, input) {
            match effect {
                throttle::Effect::Grant { permit } => self.granted_here(node, permit),
                throttle::Effect::Refuse { permit, text } => self.attempt(node, permit, Some(text)),
            }
        }
        let at = &mut self.nodes[node];
        let again = at.cleared.is_some().then_some(RENEW_EVERY);
        let wake = at.throttle.wake_in(now).into_iter().chain(again).min().map(|wait| self.now + wait);
        if let Some(wake) = wake
            && at.throttle_tick.is_none_or(|tick| wake < tick)
        {
            at.throttle_tick = Some(wake);
            self.queue.plan(wake, Event::Throttle(node));
        }
    }

    /// Handles the grant of the node's own token bucket and slots: the fleet's budget is asked next, if there is one.
    fn granted_here(&mut self, node: usize, permit: PermitId) {
        let Some(cleared) = self.nodes[node].cleared.as_mut().filter(|cleared| cleared.permit == permit && !cleared.throttled) else {
            return;
        };
        cleared.throttled = true;
        if self.options.policy.shares { self.want(node, permit) } else { self.attempt(node, permit, None) }
    }

    /// Begins an attempt, or ends it at once with the throttler's refusal.
    pub(super) fn attempt(&mut self, node: usize, permit: PermitId, refusal: Option<String>) {
        let attempt = AttemptId::random(&mut self.random);
        let request = self.nodes[node].request;
        let Some(cleared) = self.nodes[node].cleared.as_mut().filter(|cleared| cleared.permit == permit && cleared.attempt.is_none())
        else {
            return;
        };
        if refusal.is_none() && !cleared.is_in_time(self.now) {
            return self.ask_again(node, permit);
        }
        cleared.attempt = Some(attempt);
        self.step(node, Input::AttemptStarted { request, attempt, trace: None });
        if let Some(text) = refusal {
            self.give_up(node);
            self.step(node, Input::AttemptResolved { request, attempt, outcome: refused(text) });
        } else if let Some(first) = self.scenario.stages().first() {
            self.ask_stage(node, attempt, *first);
        }
    }

    fn ask_stage(&mut self, node: usize, attempt: AttemptId, stage: Stage) {
        let Some(cleared) = self.nodes[node].cleared.as_ref().filter(|cleared| cleared.attempt == Some(attempt)) else { return };
        let answer_by = cleared.answer_by.unwrap_or(Duration::MAX);
        let reply = self.registry.request(self.now, node, stage);
        if reply.answer == Answer::Nothing {
            self.hanging.insert(attempt);
            self.most_hanging = self.most_hanging.max(self.hanging.len());
        }
        let ends = (self.now + reply.takes).min(answer_by).max(self.now);
        self.queue.plan(ends, Event::Answered(node, attempt, stage, reply));
    }

    /// Handles the reply of a stage; ignored if the attempt has been abandoned.
    pub(super) fn answered(&mut self, node: usize, attempt: AttemptId, stage: Stage, reply: &Reply) {
        self.hanging.remove(&attempt);
        let Some(cleared) = self.nodes[node].cleared.as_ref().filter(|cleared| cleared.attempt == Some(attempt)) else { return };
        let (permit, resolve_sent) = (cleared.permit, cleared.resolve_sent);
        let next = self.scenario.stages().iter().find(|next| **next > stage).filter(|_| reply.answer == Answer::Served);
        if let Some(next) = next {
            self.reached(node, attempt, stage);
            return self.ask_stage(node, attempt, *next);
        }
        let served = served(reply);
        if served == Some(true) {
            self.report_limits(node, permit, reply.limits.clone());
        }
        self.give_up_with(node, (reply.limits.clone(), served));
        let failure = failure(reply.answer, stage);
        match &failure {
            None => self.resolve(node, attempt, Outcome::Reached(stage)),
            Some(failure) if !resolve_sent => self.resolve(node, attempt, Outcome::Failed(failure.clone())),
            Some(_) => {}
        }
        if self.scenario.stages().len() > 1 {
            self.finish_pull(node, attempt, failure, resolve_sent);
        }
    }

    /// Handles the answer of a stage. After the stage that the clearance was for, the fleet no longer waits for the attempt.
    fn reached(&mut self, node: usize, attempt: AttemptId, stage: Stage) {
        if let Some(cleared) = self.nodes[node].cleared.as_mut().filter(|cleared| stage >= cleared.until) {
            (cleared.resolve_sent, cleared.answer_by) = (true, None);
        }
        self.resolve(node, attempt, Outcome::Reached(stage));
    }

    fn resolve(&mut self, node: usize, attempt: AttemptId, outcome: Outcome) {
        self.step(node, Input::AttemptResolved { request: self.nodes[node].request, attempt, outcome });
    }

    /// Ends the pull and reports it. If it has failed, the standing pull remains.
    fn finish_pull(&mut self, node: usize, attempt: AttemptId, failure: Option<AttemptFailure>, resolve_sent: bool) {
        let has_failed = failure.is_some();
        if !has_failed {
            self.resolve(node, attempt, Outcome::Reached(Stage::Whole));
        }
        self.withdraw(node);
        let report = ReportAttempt { key: key(self.image_of(node)), attempt, attempt_span: None, failure, target: None };
        let effects = self.nodes[node].core.step(self.now, Input::PullEnded(report));
        let next_attempt_ms = effects.iter().find_map(|effect| match effect {
            Effect::Reply(knowledge::Reply::Reported(reported)) => reported.next_attempt_ms,
            _ => None,
        });
        self.apply(node, effects);
        if has_failed {
            let next = match next_attempt_ms {
                // The tracker names the next attempt when it is asked for clearance.
                Some(_) if !resolve_sent => self.nodes[node].asked_at + RUN_EVERY_AT_LEAST,
                Some(left) => self.now + Duration::from_millis(left).max(RUN_EVERY_AT_LEAST),
                None => self.now + RUN_AGAIN_AFTER,
            };
            self.queue.plan(next.max(self.now), Event::Ask(node));
        }
    }

    /// Abandons an attempt that the registry has not answered: gives back its permit and clearance.
    pub(super) fn give_up(&mut self, node: usize) {
        self.give_up_with(node, PullFeedback::default());
    }

    fn give_up_with(&mut self, node: usize, feedback: PullFeedback) {
        if let Some(cleared) = self.nodes[node].cleared.take() {
            self.throttle(node, throttle::Input::Release { permit: cleared.permit });
            self.give_back(node, cleared.permit, feedback);
        }
    }
}
