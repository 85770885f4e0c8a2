//! Records the events of a request one after the other, and answers it after the last of them.

use clock::Now;
use contract::messages::pull_coordinator::PullOutcome;
use contract::{EventReason, MessageId, PullEvent};

use super::coordinator::Coordinator;
use super::kubelet_messages;
use super::outcomes;
use super::request::{Fact, Request, Stage, milliseconds};
use super::step::{Effect, RequestId};

impl Coordinator {
    /// Records that a request's pull begins; kubelet counts the waiting from here.
    pub(super) fn note_pulling(&mut self, now: Now, id: RequestId, effects: &mut Vec<Effect>) {
        let Some(request) = self.requests.get_mut(&id).filter(|request| request.pulling_since.is_none()) else { return };
        request.pulling_since = Some(now);
        let fact = Fact::plain(EventReason::Pulling, kubelet_messages::pulling(&request.ask.image));
        self.record(now, id, fact, effects);
    }

    pub(super) fn reported(&mut self, now: Now, id: RequestId, next_attempt_ms: Option<u64>, effects: &mut Vec<Effect>) {
        let Some(request) = self.requests.get_mut(&id) else { return };
        let Stage::Ending { outcome, reporting: reporting @ true } = &mut request.stage else { return };
        *reporting = false;
        outcome.next_attempt_ms = next_attempt_ms;
        self.answer_if_done(now, id, effects);
    }

    pub(super) fn recorded(&mut self, now: Now, id: RequestId, effects: &mut Vec<Effect>) {
        if let Some(outcome) = self.unparsed.remove(&id) {
            return effects.push(Effect::Answer { request: id, outcome });
        }
        let Some(request) = self.requests.get_mut(&id) else { return };
        request.recording = false;
        if let Some(event) = request.events.pop_front() {
            request.recording = true;
            effects.push(Effect::Record { request: id, event });
        }
        self.answer_if_done(now, id, effects);
    }

    pub(super) fn time_over(&mut self, now: Now, id: RequestId, effects: &mut Vec<Effect>) {
        self.leave_standing_pull(id, effects);
        let Some(request) = self.requests.get(&id) else { return };
        let stage = request.stage.clone();
        if let Stage::Ending { .. } = stage {
            return;
        }
        let mut outcome = outcomes::time_over(request.ask.timeout_ms);
        outcome.trace_id = request.trace.trace_id_hex();
        outcome.waiting_ms = milliseconds(request.waited(now));
        // The flight ends before the answer, so that an answered caller never sees its flight.
        if let Stage::InFlight(flight) = stage {
            self.leave_flight(flight, id, effects);
            self.callers_changed(now, flight, effects);
        }
        self.end(now, id, outcome, None, effects);
    }

    pub(super) fn end(&mut self, now: Now, id: RequestId, outcome: PullOutcome, fact: Option<Fact>, effects: &mut Vec<Effect>) {
        self.set_stage(id, Stage::Ending { outcome, reporting: false });
        match fact {
            Some(fact) => self.record(now, id, fact, effects),
            None => self.answer_if_done(now, id, effects),
        }
    }

    pub(super) fn record(&mut self, now: Now, id: RequestId, fact: Fact, effects: &mut Vec<Effect>) {
        let Some(request) = self.requests.get_mut(&id) else { return };
        let event = PullEvent {
            pod: request.ask.pod.clone(),
            image: request.ask.image.clone(),
            registry: Some(request.reference.registry().to_owned()),
            duration_ms: fact.fields.duration.map(milliseconds),
            waiting_ms: fact.fields.waiting.map(milliseconds),
            size_bytes: fact.fields.size_bytes,
            class: fact.fields.class,
            attempt: fact.fields.attempt,
            next_attempt_ms: fact.fields.next_attempt_ms,
            learned_by: fact.fields.learned_by,
            learned_ms_ago: fact.fields.learned_ms_ago,
            learned_trace: fact.fields.learned_trace,
            entry: fact.fields.entry,
            details: fact.fields.details,
            ..PullEvent::new(
                MessageId::random(&mut self.random),
                now.wall_ms(),
                self.node.clone(),
                fact.reason,
                fact.message,
                request.trace,
            )
        };
        if request.recording {
            request.events.push_back(event);
        } else {
            request.recording = true;
            effects.push(Effect::Record { request: id, event });
        }
    }

    fn answer_if_done(&mut self, now: Now, id: RequestId, effects: &mut Vec<Effect>) {
        let Some(request) = self.requests.get(&id) else { return };
        let Stage::Ending { reporting: false, .. } = request.stage else { return };
        if request.recording {
            return;
        }
        let Some(Request { stage: Stage::Ending { outcome, .. }, fleet_decides, standing, .. }) = self.requests.remove(&id) else { return };
        if standing {
            self.run_ended(now, id, outcome, fleet_decides, effects);
        } else {
            effects.push(Effect::Answer { request: id, outcome });
        }
    }

    fn set_stage(&mut self, id: RequestId, stage: Stage) {
        if let Some(request) = self.requests.get_mut(&id) {
            request.stage = stage;
        }
    }
}
