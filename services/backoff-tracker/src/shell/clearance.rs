//! Clearance for a flight: the core's inputs and effects, deferred replies, and the timer.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use actix::{ActorFutureExt as _, AsyncContext as _, Context, Handler, MessageResult, WrapFuture as _};
use actors::{Ask, DeferredReply, deferred_reply};
use bus::{BusError, KeyValueError};
use contract::messages::backoff_tracker::{
    AttemptBegun, AttemptResolved, BeginAttempt, Clearance, ClearanceWithdrawn, RequestClearance, ResolveAttempt, WithdrawClearance,
};
use contract::{ClearanceId, DEADLINES, TraceContext};
use lease::{Held, Looked};
use metrics::Lease;

use super::requests::{self, Resolved, Stage};
use crate::actor::BackoffTracker;
use crate::core::knowledge::{Effect, Input, LeaseAnswer, LeaseName, Outcome, Reply};
use crate::outbound::{self, Value, Write};

/// tokio's timers count milliseconds: a shorter wait is none.
const SHORTEST_WAIT: Duration = Duration::from_millis(1);

/// The text stored with a lease: none, because the key names the lease.
const NO_TEXT: &str = "";

impl Handler<Ask<RequestClearance>> for BackoffTracker {
    type Result = DeferredReply<Ask<RequestClearance>>;

    fn handle(&mut self, Ask(asked): Ask<RequestClearance>, context: &mut Self::Context) -> Self::Result {
        let (answer, deferred) = deferred_reply();
        let own_rule = requests::Grant::default().clearance(Duration::ZERO);
        if self.sharing.is_none() {
            // Kubelet's rule alone applies, and the caller has checked it before.
            answer.give(Ok(own_rule));
            return deferred;
        }
        let now = self.clock.now().monotonic;
        let RequestClearance { clearance: request, attempt, attempt_span, key, other_keys, target, standing, patience_ms } = asked.body;
        if self.requests.is_full_for(request) {
            // A caller that waits for an answer uses kubelet's rule, which it has checked before, because other requests must not refuse
            // it. A standing pull makes an attempt each time that it has clearance, so it has to wait for room.
            let refusal = self.core.refusal_message(now, self.core.no_room(now));
            answer.give(Ok(if standing { Clearance::Waiting { held: Some(refusal) } } else { own_rule }));
            return deferred;
        }
        if let Some(overtaken) = self.requests.overtaken(request, attempt) {
            self.step(Input::Withdraw(overtaken), context);
        }
        let patience = Duration::from_millis(patience_ms);
        let trace = attempt_span.unwrap_or(asked.meta.trace);
        let (number, anew) = self.requests.ask(now, request, attempt, trace, standing);
        self.requests.defer(now, request, patience, answer);
        let resolved = self.requests.get(request).is_some_and(|request| request.stage == Stage::Resolved);
        if self.requests.get(request).is_some_and(requests::Request::is_abandoned) {
            self.requests.answer(request, Clearance::Abandoned);
        } else if anew || !resolved && !self.core.has_request(number) {
            let ask = Input::Request { request: number, key: key.clone(), target };
            self.step_all(now, [ask, Input::LocalKeys { request: number, key, other_keys }], context);
        } else {
            self.step(Input::LocalKeys { request: number, key, other_keys }, context);
        }
        let now = self.clock.now().monotonic;
        let effects = self.settled(now, request);
        self.carry_out(now, effects, context);
        self.set_alarm(context);
        deferred
    }
}

impl Handler<Ask<ResolveAttempt>> for BackoffTracker {
    type Result = MessageResult<Ask<ResolveAttempt>>;

    fn handle(&mut self, Ask(resolve): Ask<ResolveAttempt>, context: &mut Self::Context) -> Self::Result {
        let ResolveAttempt { clearance: request, attempt, failure, stage } = resolve.body;
        let (has_failed, reached) = (failure.is_some(), failure.is_none().then_some(stage));
        let outcome = failure.map_or(Outcome::Reached(stage), Outcome::Failed);
        if let Some(Resolved { number, trace, standing, over }) = self.requests.resolved(request, attempt, reached) {
            if over {
                self.requests.answer(request, requests::Grant::default().clearance(Duration::ZERO));
            }
            // The message that the attempt has started may have been lost.
            let planned = Input::AttemptPlanned { request: number, attempt, trace: Some(trace).filter(TraceContext::has_span) };
            let now = self.clock.now().monotonic;
            self.step_all(now, [planned, Input::AttemptResolved { request: number, attempt, outcome }], context);
            if has_failed && !standing {
                // The caller has its answer. The core would otherwise plan another attempt.
                self.step(Input::Withdraw(number), context);
            }
        }
        MessageResult(Ok(AttemptResolved {}))
    }
}

impl Handler<Ask<BeginAttempt>> for BackoffTracker {
    type Result = MessageResult<Ask<BeginAttempt>>;

    fn handle(&mut self, Ask(begin): Ask<BeginAttempt>, context: &mut Self::Context) -> Self::Result {
        let BeginAttempt { clearance: request, attempt } = begin.body;
        if let Some((number, trace)) = self.requests.started(request, attempt) {
            self.step(Input::AttemptStarted { request: number, attempt, trace: Some(trace).filter(TraceContext::has_span) }, context);
        }
        MessageResult(Ok(AttemptBegun {}))
    }
}

impl Handler<Ask<WithdrawClearance>> for BackoffTracker {
    type Result = MessageResult<Ask<WithdrawClearance>>;

    fn handle(&mut self, Ask(withdraw): Ask<WithdrawClearance>, context: &mut Self::Context) -> Self::Result {
        if let Some(number) = self.requests.remove(withdraw.body.clearance) {
            self.step(Input::Withdraw(number), context);
        }
        MessageResult(Ok(ClearanceWithdrawn {}))
    }
}

impl BackoffTracker {
    /// Passes one input to the core and carries out the effects. Returns the reply if the input asks for one.
    pub(crate) fn step(&mut self, input: Input, context: &mut Context<Self>) -> Option<Reply> {
        self.step_all(self.clock.now().monotonic, [input], context)
    }

    /// Passes several inputs of the same moment to the core and carries out the effects. Returns the reply to the last that asks for one.
    pub(crate) fn step_all(
        &mut self,
        now: Duration,
        inputs: impl IntoIterator<Item = Input>,
        context: &mut Context<Self>,
    ) -> Option<Reply> {
        let effects = self.core.step_all(now, inputs);
        let reply = self.carry_out(now, effects, context);
        self.set_alarm(context);
        reply
    }

    fn carry_out(&mut self, now: Duration, effects: Vec<Effect>, context: &mut Context<Self>) -> Option<Reply> {
        let (mut effects, mut reply) = (VecDeque::from(effects), None);
        while let Some(effect) = effects.pop_front() {
            match effect {
                Effect::Reply(to_caller) => reply = Some(to_caller),
                Effect::Answer(number, decision) => {
                    if let Some(request) = self.requests.note_decision(number, decision) {
                        effects.extend(self.settled(now, request));
                    }
                }
                Effect::Abandon(number) => self.requests.abandon(number),
                Effect::Publish(report, age) => {
                    if let Some(sharing) = &mut self.sharing {
                        sharing.write(Write::Store(Value::Report { report, date: now.saturating_sub(age) }));
                    }
                }
                Effect::AcquireLease(name) => self.acquire(name, context),
                Effect::ReleaseLease(name) => self.release(name, context),
                Effect::Announce(news) => self.announce(now, &news, context),
            }
        }
        reply
    }

    /// Answers a decided request; returns the effects.
    fn settled(&mut self, now: Duration, id: ClearanceId) -> Vec<Effect> {
        if !self.requests.waits(id) {
            return vec![];
        }
        if let Some(for_all) = self.requests.grant(id) {
            // The attempt begins when its caller reports that, because it may wait for its permit first.
            self.requests.answer_as_now(now, id, &self.core);
            if let Some(sharing) = &mut self.sharing {
                sharing.counts.for_all_total += u64::from(for_all);
            }
            return vec![];
        }
        let refused = self
            .requests
            .get(id)
            .is_some_and(|request| !request.standing && matches!(&request.stage, Stage::Refused(refusal) if !refusal.unconfirmed));
        // The caller has its answer. If the request were kept, it could take a probe lease for an attempt that no caller makes.
        let Some(mut request) = refused.then(|| self.requests.take(id)).flatten() else { return vec![] };
        if let Stage::Refused(refusal) = std::mem::replace(&mut request.stage, Stage::Resolved) {
            request.answer(Clearance::Refused(self.core.refusal_message(now, refusal)));
        }
        self.core.step(now, Input::Withdraw(request.number))
    }

    /// Sets the timer for the core's next wake or the end of a caller's patience. A timer that is too early is kept and set again when it
    /// fires, because most refusals move the next wake later.
    pub(crate) fn set_alarm(&mut self, context: &mut Context<Self>) {
        let Some(next) = [self.core.next_wake(), self.requests.next_wake()].into_iter().flatten().min() else { return };
        if self.alarm.as_ref().is_some_and(|(_, at)| *at <= next) {
            return;
        }
        if let Some((alarm, _)) = self.alarm.take() {
            context.cancel_future(alarm);
        }
        let wait = next.saturating_sub(self.clock.now().monotonic).max(SHORTEST_WAIT);
        let alarm = context.run_later(wait, |tracker, context| {
            tracker.alarm = None;
            tracker.wake(context);
        });
        self.alarm = Some((alarm, next));
    }

    fn wake(&mut self, context: &mut Context<Self>) {
        let now = self.clock.now().monotonic;
        self.step(Input::Tick, context);
        for id in self.requests.impatient(now) {
            self.requests.answer_as_now(now, id, &self.core);
            self.requests.note_contact(now, id);
        }
        for id in self.requests.lapsed(now) {
            if let Some(number) = self.requests.remove(id) {
                tracing::debug!(request = %id, "a request for clearance was not repeated: it is withdrawn");
                if let Some(sharing) = &mut self.sharing {
                    sharing.counts.lapsed_total += 1;
                }
                self.step(Input::Withdraw(number), context);
            }
        }
        self.find_the_bus(context);
        self.time_the_bus_if_it_missed(context);
        self.set_alarm(context);
    }

    fn acquire(&mut self, name: LeaseName, context: &mut Context<Self>) {
        let Some(sharing) = &mut self.sharing else { return };
        if sharing.link.is_none() {
            return;
        }
        sharing.asked.insert(name, false);
        sharing.leases.write_in(sharing.version());
        let (leases, key) = (Arc::clone(&sharing.leases), outbound::lease_key(name));
        // Without a timeout of its own: the core decides how long to wait, and releases a lease that comes too late.
        let asking = async move { leases.create(&key, NO_TEXT, 0).await };
        let asked = self.clock.now().monotonic;
        context.spawn(asking.into_actor(self).map(move |answer, tracker, context| {
            tracker.step(Input::BusAnswered { asked }, context);
            tracker.lease_answered(name, answer, context);
        }));
    }

    fn lease_answered(&mut self, name: LeaseName, answer: Result<Option<Held>, KeyValueError>, context: &mut Context<Self>) {
        let now = self.clock.now().monotonic;
        let Some(sharing) = &mut self.sharing else { return };
        let freed_since = sharing.asked.remove(&name).unwrap_or_default();
        match answer {
            Ok(Some(_)) => {
                self.instruments.lease_taken(match name {
                    LeaseName::Probe(..) => Lease::Probe,
                    LeaseName::Lead(..) => Lease::Lead,
                    LeaseName::Slot(..) => Lease::Slot,
                });
                self.step(Input::Lease(name, LeaseAnswer::Won), context);
            }
            Ok(None) => {
                let lost = Input::Lease(name, LeaseAnswer::Lost(DEADLINES.attempt_lease));
                let freed = freed_since.then_some(Input::LeaseFreed(name));
                self.step_all(now, [lost].into_iter().chain(freed), context);
                self.look_at_holder(name, context);
            }
            Err(error) => {
                tracing::debug!(%error, "the bus did not grant a lease");
                // The bus answers at once that it cannot do this, so requests do not wait for leases.
                if matches!(error, KeyValueError::Full { .. } | KeyValueError::Bus(BusError::Unsupported { .. })) {
                    self.step(Input::NoLeases, context);
                    self.find_the_bus(context);
                }
            }
        }
    }

    /// Looks at a lease that another node holds. A lease that has outlived its term is deleted, and is free then.
    fn look_at_holder(&mut self, name: LeaseName, context: &mut Context<Self>) {
        let Some(sharing) = &self.sharing else { return };
        let (leases, key) = (Arc::clone(&sharing.leases), outbound::lease_key(name));
        let looking = async move { leases.look(&key, NO_TEXT).await };
        context.spawn(looking.into_actor(self).map(move |looked, tracker, context| {
            if matches!(looked, Ok(Looked::Free)) {
                tracker.step(Input::LeaseFreed(name), context);
            }
        }));
    }

    fn release(&mut self, name: LeaseName, context: &mut Context<Self>) {
        let Some(sharing) = &mut self.sharing else { return };
        if let Some(owned) = sharing.leases.give_up(&outbound::lease_key(name), None) {
            sharing.write(Write::Release(owned));
        } else if sharing.asked.remove(&name).is_some() {
            self.release_unanswered(name, context);
        }
    }

    /// Releases a lease that this process acquired, although it has had no answer. A later request for the same lease decides about it
    /// instead.
    fn release_unanswered(&mut self, name: LeaseName, context: &mut Context<Self>) {
        let Some(sharing) = &self.sharing else { return };
        let (leases, key) = (Arc::clone(&sharing.leases), outbound::lease_key(name));
        let looking = async move { leases.unanswered(&key, NO_TEXT).await };
        context.spawn(looking.into_actor(self).map(move |found, tracker, _| {
            if let (Ok(Some(owned)), Some(sharing)) = (found, &mut tracker.sharing)
                && !sharing.asked.contains_key(&name)
            {
                sharing.write(Write::Release(owned));
            }
        }));
    }
}
