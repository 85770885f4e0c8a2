//! The requests that callers ask clearance for, and the answers that are held back.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use actors::Answer;
use contract::messages::backoff_tracker::{CLEARANCE_LAPSES_AFTER_MS, Clearance, RequestClearance};
use contract::{AttemptId, ClearanceId, TraceContext};

use crate::core::knowledge::{self, BackoffKeyId, Decision, Duty, Knowledge, MAX_REQUESTS};

/// The longest that an answer is held back, whatever the caller's patience: well before its request would lapse.
const LONGEST_PATIENCE: Duration = Duration::from_millis(CLEARANCE_LAPSES_AFTER_MS / 2);
/// Who is not heard of for so long requests no more.
const LAPSES_AFTER: Duration = Duration::from_millis(CLEARANCE_LAPSES_AFTER_MS);

/// All requests of the node, by the caller's id and by the core's.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    by_id: BTreeMap<ClearanceId, Box<Request>>,
    by_number: BTreeMap<knowledge::RequestId, ClearanceId>,
    /// When the patience of each is over, or it lapses.
    due: BTreeSet<(Duration, ClearanceId)>,
    last_number: u64,
}

/// One of them.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) number: knowledge::RequestId,
    pub(super) attempt: AttemptId,
    pub(super) trace: TraceContext,
    pub(super) standing: bool,
    pub(super) stage: Stage,
    waiting: Option<HeldBack>,
    /// Whether the core has had `Input::AttemptPlanned`.
    begun: bool,
    /// The last attempt that was abandoned.
    abandoned: Option<AttemptId>,
    /// The shared entry that last held it.
    refused_by: Option<BackoffKeyId>,
    heard: Duration,
}

/// An answer that is held back until there is something to say, or until then. Who is given none, as its request is asked for again or has
/// ended, is to ask again.
#[derive(Debug)]
struct HeldBack {
    answer: Option<Answer<actors::Ask<RequestClearance>>>,
    until: Duration,
}

/// How far it is.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Stage {
    /// Nothing is decided.
    Waiting,
    /// A standing pull is held.
    Refused(knowledge::Refusal),
    /// It may go ahead, and nobody has been told yet.
    Cleared(Grant),
    /// It goes ahead.
    Granted(Grant),
    /// Its attempt is to end without a word.
    Abandoned,
    /// Its attempt has come to something.
    Resolved,
}

/// What an attempt is known by that has come to something.
pub(super) struct Resolved {
    pub(super) number: knowledge::RequestId,
    /// Its span, if the core does not know that it has begun.
    pub(super) not_begun: Option<TraceContext>,
    pub(super) standing: bool,
    /// Its clearance is over by that.
    pub(super) over: bool,
}

/// How a request may go ahead.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Grant {
    pub(super) for_all: bool,
    pub(super) answer_by: Option<Duration>,
    /// The stage that must have answered by then.
    pub(super) until: contract::Stage,
}

/// An ask for clearance.
#[derive(Debug)]
pub(super) struct Ask {
    pub(super) attempt: AttemptId,
    pub(super) trace: TraceContext,
    pub(super) standing: bool,
}

impl Requests {
    /// Takes note of an ask: the request's number, and whether the core does not know of it yet.
    pub(super) fn ask(&mut self, now: Duration, id: ClearanceId, ask: &Ask) -> (knowledge::RequestId, bool) {
        let known = self.change(id, |request| {
            let anew = request.attempt != ask.attempt;
            if anew && !request.takes_another_attempt() {
                return None;
            }
            if anew && matches!(request.stage, Stage::Resolved | Stage::Abandoned) {
                request.stage = Stage::Waiting;
            }
            (request.attempt, request.trace, request.standing, request.heard) = (ask.attempt, ask.trace, ask.standing, now);
            Some((request.number, anew))
        });
        if let Some(known) = known.flatten() {
            return known;
        }
        self.last_number += 1;
        let number = knowledge::RequestId(self.last_number);
        let (attempt, trace, standing) = (ask.attempt, ask.trace, ask.standing);
        let request = Request {
            number,
            attempt,
            trace,
            standing,
            stage: Stage::Waiting,
            waiting: None,
            begun: false,
            abandoned: None,
            refused_by: None,
            heard: now,
        };
        // The caller has given one with another attempt up before (`overtaken`).
        self.remove(id);
        self.due.insert((request.due(), id));
        self.by_id.insert(id, Box::new(request));
        self.by_number.insert(number, id);
        (number, true)
    }

    /// The number of a request that is given up because its caller has begun another attempt without a word on the last.
    pub(super) fn overtaken(&mut self, id: ClearanceId, attempt: AttemptId) -> Option<knowledge::RequestId> {
        let request = self.by_id.get(&id)?;
        if request.attempt == attempt || request.takes_another_attempt() { None } else { self.remove(id) }
    }

    /// Holds the answer to a request back. A caller that waited before gets none.
    pub(super) fn hold_back(&mut self, now: Duration, id: ClearanceId, patience: Duration, answer: Answer<actors::Ask<RequestClearance>>) {
        let held_back = HeldBack { answer: Some(answer), until: clock::end_of_wait(now, patience.min(LONGEST_PATIENCE)) };
        self.change(id, |request| request.waiting = Some(held_back));
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

    /// What the core says of a request.
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

    /// The attempt under way hangs while others are answered.
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
        let not_begun = (!std::mem::replace(&mut request.begun, true)).then_some(request.trace);
        Some(Resolved { number: request.number, not_begun, standing: request.standing, over })
    }

    /// The attempt under way asks the registry from now on; its number and span.
    pub(super) fn started(&mut self, id: ClearanceId, attempt: AttemptId) -> Option<(knowledge::RequestId, TraceContext)> {
        let request = self.by_id.get_mut(&id).filter(|request| request.is_granted(attempt))?;
        request.begun = true;
        Some((request.number, request.trace))
    }

    /// Has clearance from now on; whether on behalf of all.
    pub(super) fn grant(&mut self, id: ClearanceId) -> Option<bool> {
        let request = self.by_id.get_mut(&id)?;
        let Stage::Cleared(grant) = request.stage else { return None };
        if request.is_abandoned() {
            return None;
        }
        request.stage = Stage::Granted(grant);
        request.begun = false;
        Some(grant.for_all)
    }

    /// Answers the caller that waits.
    pub(super) fn answer(&mut self, id: ClearanceId, clearance: Clearance) {
        self.change(id, |request| request.answer(clearance));
    }

    pub(super) fn waits(&self, id: ClearanceId) -> bool {
        self.by_id.get(&id).is_some_and(|request| request.waiting.is_some())
    }

    /// Forgets a request; its number.
    pub(super) fn remove(&mut self, id: ClearanceId) -> Option<knowledge::RequestId> {
        self.take(id).map(|request| request.number)
    }

    /// Gives a request up to who asks for it.
    pub(super) fn take(&mut self, id: ClearanceId) -> Option<Box<Request>> {
        let request = self.by_id.remove(&id)?;
        self.due.remove(&(request.due(), id));
        self.by_number.remove(&request.number);
        Some(request)
    }

    /// Those whose patience is over.
    pub(super) fn impatient(&self, now: Duration) -> Vec<ClearanceId> {
        self.due(now).filter(|id| self.waits(*id)).collect()
    }

    /// Those that nobody has asked for in a long time.
    pub(super) fn lapsed(&self, now: Duration) -> Vec<ClearanceId> {
        self.due(now).filter(|id| !self.waits(*id)).collect()
    }

    /// When somebody's patience is over or a request lapses next.
    pub(super) fn next_wake(&self) -> Option<Duration> {
        self.due.first().map(|(due, _)| *due)
    }

    fn due(&self, now: Duration) -> impl Iterator<Item = ClearanceId> {
        self.due.iter().take_while(move |(due, _)| *due <= now).map(|(_, id)| *id)
    }

    /// Changes a request, if it is there.
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

    /// The caller was heard from now.
    pub(super) fn heard(&mut self, now: Duration, id: ClearanceId) {
        self.change(id, |request| request.heard = now);
    }
}

impl Request {
    /// When the patience of who waits is over, or it lapses.
    fn due(&self) -> Duration {
        self.waiting.as_ref().map_or(self.heard + LAPSES_AFTER, |waiting| waiting.until)
    }

    /// Whether its caller still goes on with an attempt that is to end.
    pub(super) fn is_abandoned(&self) -> bool {
        self.abandoned == Some(self.attempt)
    }

    fn is_granted(&self, attempt: AttemptId) -> bool {
        self.attempt == attempt && matches!(self.stage, Stage::Granted(_))
    }

    /// Between attempts another one may begin.
    fn takes_another_attempt(&self) -> bool {
        !matches!(self.stage, Stage::Granted(_))
    }

    pub(super) fn answer(&mut self, clearance: Clearance) {
        if let Some(answer) = self.waiting.take().and_then(|mut waiting| waiting.answer.take()) {
            // A caller that gave up waiting asks again, or its request lapses.
            answer.give(Ok(clearance));
        }
    }

    /// The answer to a caller whose patience is over, by what the node knows.
    pub(super) fn as_it_stands(&self, now: Duration, knowledge: &Knowledge) -> Clearance {
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

impl Drop for HeldBack {
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
        let left = |by: Duration| u64::try_from(by.saturating_sub(now).as_millis()).unwrap_or(u64::MAX);
        Clearance::Granted { for_all: self.for_all, answer_within_ms: self.answer_by.map(left), until: self.until, released_by }
    }
}
