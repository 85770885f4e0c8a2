//! Callers' requests for clearance, and their deferred replies.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use actors::Answer;
use contract::messages::backoff_tracker::{Clearance, RequestClearance};
use contract::{AttemptId, ClearanceId, DEADLINES, TraceContext};

use crate::core::knowledge::{self, BackoffKeyId, Decision, Duty, Knowledge, MAX_REQUESTS};
use crate::core::milliseconds;

/// The longest that a reply is deferred, for any patience of the caller: well before the request would lapse.
const LONGEST_PATIENCE: Duration = Duration::from_millis(DEADLINES.clearance_lapses_after.as_millis() as u64 / 2);

/// All requests of the node, by the caller's id and by the core's.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    by_id: BTreeMap<ClearanceId, Box<Request>>,
    by_number: BTreeMap<knowledge::RequestId, ClearanceId>,
    /// When the caller's patience ends or the request lapses.
    due: BTreeSet<(Duration, ClearanceId)>,
    last_number: u64,
}

/// A caller's request.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) number: knowledge::RequestId,
    pub(super) attempt: AttemptId,
    pub(super) trace: TraceContext,
    pub(super) standing: bool,
    pub(super) stage: Stage,
    waiting: Option<Deferred>,
    abandoned: Option<AttemptId>,
    refused_by: Option<BackoffKeyId>,
    last_contact: Duration,
}

/// A reply that is deferred until a decision, or until `until`. If it is dropped, because the request is asked for again or has ended, the
/// caller is answered that it must ask again.
#[derive(Debug)]
struct Deferred {
    answer: Option<Answer<actors::Ask<RequestClearance>>>,
    until: Duration,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Stage {
    /// Nothing is decided.
    Waiting,
    /// The core refuses it. A standing pull stays in this state.
    Refused(knowledge::Refusal),
    /// It has clearance, and the caller is not answered yet.
    Cleared(Grant),
    /// It has clearance, and the caller was answered.
    Granted(Grant),
    /// Its attempt is to be ended without a report.
    Abandoned,
    /// Its attempt has a result.
    Resolved,
}

/// An attempt that has a result.
pub(super) struct Resolved {
    pub(super) number: knowledge::RequestId,
    pub(super) trace: TraceContext,
    pub(super) standing: bool,
    /// Whether its clearance is over.
    pub(super) over: bool,
}

/// The terms of a clearance.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Grant {
    pub(super) for_all: bool,
    pub(super) answer_by: Option<Duration>,
    /// The stage that must have answered by then.
    pub(super) until: contract::Stage,
}

impl Requests {
    /// Notes a request for clearance; returns its number, and whether the core does not know it yet.
    pub(super) fn ask(
        &mut self,
        now: Duration,
        id: ClearanceId,
        attempt: AttemptId,
        trace: TraceContext,
        standing: bool,
    ) -> (knowledge::RequestId, bool) {
        let known = self.change(id, |request| {
            let anew = request.attempt != attempt;
            if anew && !request.takes_another_attempt() {
                return None;
            }
            if anew && matches!(request.stage, Stage::Resolved | Stage::Abandoned) {
                request.stage = Stage::Waiting;
            }
            (request.attempt, request.trace, request.standing, request.last_contact) = (attempt, trace, standing, now);
            Some((request.number, anew))
        });
        if let Some(known) = known.flatten() {
            return known;
        }
        self.last_number += 1;
        let number = knowledge::RequestId(self.last_number);
        let request = Request {
            number,
            attempt,
            trace,
            standing,
            stage: Stage::Waiting,
            waiting: None,
            abandoned: None,
            refused_by: None,
            last_contact: now,
        };
        // A request with another attempt was given up before (`overtaken`).
        self.remove(id);
        self.due.insert((request.due(), id));
        self.by_id.insert(id, Box::new(request));
        self.by_number.insert(number, id);
        (number, true)
    }

    /// Gives a request up if its caller has begun another attempt without the result of the last; returns its number.
    pub(super) fn overtaken(&mut self, id: ClearanceId, attempt: AttemptId) -> Option<knowledge::RequestId> {
        let request = self.by_id.get(&id)?;
        if request.attempt == attempt || request.takes_another_attempt() { None } else { self.remove(id) }
    }

    /// Defers the reply to a request. A caller that waited before gets none.
    pub(super) fn defer(&mut self, now: Duration, id: ClearanceId, patience: Duration, answer: Answer<actors::Ask<RequestClearance>>) {
        let deferred = Deferred { answer: Some(answer), until: clock::end_of_wait(now, patience.min(LONGEST_PATIENCE)) };
        self.change(id, |request| request.waiting = Some(deferred));
    }

    /// Whether there is no room for a request that is not known yet.
    pub(super) fn is_full_for(&self, id: ClearanceId) -> bool {
        self.by_id.len() >= MAX_REQUESTS && !self.by_id.contains_key(&id)
    }

    pub(super) fn get(&self, id: ClearanceId) -> Option<&Request> {
        self.by_id.get(&id).map(Box::as_ref)
    }

    pub(super) fn id_of(&self, number: knowledge::RequestId) -> Option<ClearanceId> {
        self.by_number.get(&number).copied()
    }

    pub(super) fn note_decision(&mut self, number: knowledge::RequestId, decision: Decision) -> Option<ClearanceId> {
        let id = self.id_of(number)?;
        let request = self.by_id.get_mut(&id)?;
        request.stage = match decision {
            Decision::Granted { duty, answer_by, until } => Stage::Cleared(Grant { for_all: duty != Duty::None, answer_by, until }),
            Decision::Refused(refusal) => {
                request.refused_by = refusal.entry.or(request.refused_by);
                Stage::Refused(refusal)
            }
            Decision::Wait => Stage::Waiting,
        };
        Some(id)
    }

    /// The core abandons the running attempt.
    pub(super) fn abandon(&mut self, number: knowledge::RequestId) {
        if let Some(id) = self.id_of(number) {
            self.change(id, |request| {
                request.stage = Stage::Abandoned;
                request.abandoned = Some(request.attempt);
                request.answer(Clearance::Abandoned);
            });
        }
    }

    /// A stage has answered the attempt, or it has failed.
    pub(super) fn resolved(&mut self, id: ClearanceId, attempt: AttemptId, reached: Option<contract::Stage>) -> Option<Resolved> {
        let request = self.by_id.get_mut(&id).filter(|request| request.attempt == attempt)?;
        let over = match &request.stage {
            Stage::Granted(grant) => reached.is_none_or(|reached| reached >= grant.until),
            Stage::Resolved if reached.is_some() => false,
            _ => return None,
        };
        if over {
            request.stage = Stage::Resolved;
        }
        Some(Resolved { number: request.number, trace: request.trace, standing: request.standing, over })
    }

    /// The running attempt asks the registry from now on; returns its number and span.
    pub(super) fn started(&self, id: ClearanceId, attempt: AttemptId) -> Option<(knowledge::RequestId, TraceContext)> {
        let request = self.by_id.get(&id).filter(|request| request.is_granted(attempt))?;
        Some((request.number, request.trace))
    }

    /// Grants the clearance; returns whether the attempt is made for all nodes.
    pub(super) fn grant(&mut self, id: ClearanceId) -> Option<bool> {
        let request = self.by_id.get_mut(&id)?;
        let Stage::Cleared(grant) = request.stage else { return None };
        if request.is_abandoned() {
            return None;
        }
        request.stage = Stage::Granted(grant);
        Some(grant.for_all)
    }

    /// Answers the caller that waits.
    pub(super) fn answer(&mut self, id: ClearanceId, clearance: Clearance) {
        self.change(id, |request| request.answer(clearance));
    }

    /// Answers the caller that waits by the present state.
    pub(super) fn answer_as_now(&mut self, now: Duration, id: ClearanceId, knowledge: &Knowledge) {
        self.change(id, |request| request.answer(request.present_answer(now, knowledge)));
    }

    pub(super) fn waits(&self, id: ClearanceId) -> bool {
        self.by_id.get(&id).is_some_and(|request| request.waiting.is_some())
    }

    pub(super) fn remove(&mut self, id: ClearanceId) -> Option<knowledge::RequestId> {
        self.take(id).map(|request| request.number)
    }

    pub(super) fn take(&mut self, id: ClearanceId) -> Option<Box<Request>> {
        let request = self.by_id.remove(&id)?;
        self.due.remove(&(request.due(), id));
        self.by_number.remove(&request.number);
        Some(request)
    }

    /// The requests whose caller's patience is over.
    pub(super) fn impatient(&self, now: Duration) -> Vec<ClearanceId> {
        self.due(now).filter(|id| self.waits(*id)).collect()
    }

    pub(super) fn lapsed(&self, now: Duration) -> Vec<ClearanceId> {
        self.due(now).filter(|id| !self.waits(*id)).collect()
    }

    /// When a caller's patience ends or a request lapses next.
    pub(super) fn next_wake(&self) -> Option<Duration> {
        self.due.first().map(|(due, _)| *due)
    }

    fn due(&self, now: Duration) -> impl Iterator<Item = ClearanceId> {
        self.due.iter().take_while(move |(due, _)| *due <= now).map(|(_, id)| *id)
    }

    fn change<T>(&mut self, id: ClearanceId, change: impl FnOnce(&mut Request) -> T) -> Option<T> {
        let request = self.by_id.get_mut(&id)?;
        let before = request.due();
        let result = change(request);
        let due = request.due();
        if due != before {
            self.due.remove(&(before, id));
            self.due.insert((due, id));
        }
        Some(result)
    }

    /// Notes that the caller asked, or was answered, now.
    pub(super) fn note_contact(&mut self, now: Duration, id: ClearanceId) {
        self.change(id, |request| request.last_contact = now);
    }
}

impl Request {
    /// When the waiting caller's patience ends, or the request lapses.
    fn due(&self) -> Duration {
        self.waiting.as_ref().map_or(self.last_contact + DEADLINES.clearance_lapses_after, |waiting| waiting.until)
    }

    /// Whether its caller still runs an attempt that is abandoned.
    pub(super) fn is_abandoned(&self) -> bool {
        self.abandoned == Some(self.attempt)
    }

    fn is_granted(&self, attempt: AttemptId) -> bool {
        self.attempt == attempt && matches!(self.stage, Stage::Granted(_))
    }

    /// True if another attempt may begin: no attempt is running.
    fn takes_another_attempt(&self) -> bool {
        !matches!(self.stage, Stage::Granted(_))
    }

    pub(super) fn answer(&mut self, clearance: Clearance) {
        if let Some(answer) = self.waiting.take().and_then(|mut waiting| waiting.answer.take()) {
            // A caller that gave up waiting asks again, or its request lapses.
            answer.give(Ok(clearance));
        }
    }

    /// The answer to a caller by the present state.
    fn present_answer(&self, now: Duration, knowledge: &Knowledge) -> Clearance {
        match &self.stage {
            Stage::Refused(refusal) => Clearance::Waiting { held: Some(knowledge.refusal_message(now, refusal.clone())) },
            Stage::Waiting | Stage::Cleared(_) => Clearance::Waiting { held: None },
            Stage::Granted(grant) => {
                let released_by = self.refused_by.and_then(|entry| knowledge.last_success_of(entry));
                grant.with_release(now, released_by)
            }
            Stage::Resolved => Grant::default().clearance(now),
            Stage::Abandoned => Clearance::Abandoned,
        }
    }
}

impl Drop for Deferred {
    fn drop(&mut self) {
        if let Some(answer) = self.answer.take() {
            answer.give(Ok(Clearance::Waiting { held: None }));
        }
    }
}

impl Grant {
    pub(super) fn clearance(self, now: Duration) -> Clearance {
        self.with_release(now, None)
    }

    fn with_release(self, now: Duration, released_by: Option<TraceContext>) -> Clearance {
        let answer_within_ms = self.answer_by.map(|by| milliseconds(by.saturating_sub(now)));
        Clearance::Granted { for_all: self.for_all, answer_within_ms, until: self.until, released_by }
    }
}
