//! The state machine: requests from their first check to their answer.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use clock::{Now, Random};
use contract::messages::backoff_tracker::BackoffAnswer;
use contract::messages::pull_coordinator::{EnsureImage, OutcomeKind, PullOutcome, PullPolicy};
use contract::{EventReason, FailureClass, MessageId, NodeName, PullEvent, Reason, StandingPullId, Target, TraceContext};
use image::{Platform, Reference};

use super::alarms::{Alarm, Alarms};
use super::bounds;
use super::flight::{Flight, FlightKey, FlightStage};
use super::kubelet_messages;
use super::outcomes::{self, present_fact};
use super::request::{Fact, Request, Stage, default_policy, milliseconds};
use super::standing_pulls::{self, StandingPulls};
use super::step::{Effect, Failure, FlightId, ImageFacts, Input, RequestId};

/// The usual number of effects. A `Vec` without capacity would allocate for four, each of some hundred bytes.
const EFFECTS_USUAL: usize = 2;

/// The shortest wait for the fleet. With less, a pull would give up before a healthy tracker can answer.
const CLEARANCE_WITHIN_AT_LEAST: Duration = Duration::from_secs(1);

/// What the coordinator does beyond kubelet's behaviour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// How long a caller without a standing pull waits for clearance and budget, at least 1 s; none: the node shares nothing and
    /// requests no clearance.
    pub clearance_within: Option<Duration>,
    /// Bytes that a pull without a pod must leave free; none: no limit.
    pub keep_free: Option<u64>,
    /// Standing pulls are stored, and a detached one is confirmed only when that is done.
    pub writes_standing_pulls: bool,
}

impl Policy {
    fn bounded(self) -> Self {
        Self { clearance_within: self.clearance_within.map(|limit| limit.max(CLEARANCE_WITHIN_AT_LEAST)), ..self }
    }
}

/// All requests and flights of a node.
#[derive(Debug)]
pub struct Coordinator {
    pub(super) node: NodeName,
    pub(super) policy: Policy,
    pub(super) random: Random,
    pub(super) alarms: Alarms,
    pub(super) standing_pulls: StandingPulls,
    pub(super) requests: BTreeMap<RequestId, Request>,
    pub(super) flights: BTreeMap<FlightId, Flight>,
    /// Flights by their key.
    pub(super) flights_of: BTreeMap<FlightKey, BTreeSet<FlightId>>,
    /// Requests whose image cannot be parsed, with the answer that follows their event.
    unparsed: BTreeMap<RequestId, PullOutcome>,
    pub(super) last_flight: u64,
    /// How many flights have pulled an image.
    pub(super) images_pulled: u64,
}

impl Coordinator {
    /// A coordinator without requests.
    #[must_use]
    pub fn new(node: NodeName, policy: Policy, random: Random) -> Self {
        Self {
            node,
            policy: policy.bounded(),
            random,
            alarms: Alarms::default(),
            standing_pulls: StandingPulls::default(),
            requests: BTreeMap::new(),
            flights: BTreeMap::new(),
            flights_of: BTreeMap::new(),
            unparsed: BTreeMap::new(),
            last_flight: 0,
            images_pulled: 0,
        }
    }

    /// Sets the policy. Call it before the first request.
    pub fn set_policy(&mut self, policy: Policy) {
        self.policy = policy.bounded();
    }

    /// How long a caller without a standing pull waits for the fleet; none: this node shares nothing.
    #[must_use]
    pub fn waits_for_fleet(&self) -> Option<Duration> {
        self.policy.clearance_within
    }

    /// Whether a flight is under way.
    #[must_use]
    pub fn has_flight(&self, flight: FlightId) -> bool {
        self.flights.contains_key(&flight)
    }

    /// When [`Input::AlarmRang`] is due, on the monotonic clock.
    #[must_use]
    pub fn next_alarm(&self) -> Option<Duration> {
        self.alarms.next()
    }

    /// Takes one input and returns its effects. An input for a request or flight that is over changes nothing.
    pub fn step(&mut self, now: Now, input: Input) -> Vec<Effect> {
        let mut effects = Vec::with_capacity(EFFECTS_USUAL);
        match input {
            Input::Asked { request, ask, trace } => match standing_pulls::wait_of(&ask) {
                Some(wait) => self.begin_standing_pull(now, request, ask, wait, trace, &mut effects),
                None => self.asked(now, request, ask, trace, &mut effects),
            },
            Input::Inspected { request, found } => self.inspected(now, request, found, &mut effects),
            Input::BackoffChecked { request, answer } => self.backoff_checked(now, request, answer, &mut effects),
            Input::Permitted { flight, answer } => self.permitted(now, flight, answer, &mut effects),
            Input::Rechecked { flight, found } => self.rechecked(now, flight, found, &mut effects),
            Input::TargetFound { request, target, free_bytes } => self.target_found(now, request, target, free_bytes, &mut effects),
            Input::ClearanceAnswered { flight, turn, answer } => self.clearance_answered(now, flight, turn, answer, &mut effects),
            Input::Resolved { flight, seen } => self.resolved(flight, seen, &mut effects),
            Input::Reached { flight, stage } => self.resolve_answered(flight, stage, &mut effects),
            Input::BlobAwaited { flight } => self.blob_awaited(flight),
            Input::Sized { flight, missing_bytes, free_bytes } => self.sized(now, flight, missing_bytes, free_bytes, &mut effects),
            Input::Pulled { flight, result } => self.pulled(now, flight, result, &mut effects),
            Input::Verified { flight, found } => self.verified(now, flight, found, &mut effects),
            Input::Reported { request, next_attempt_ms } => self.reported(now, request, next_attempt_ms, &mut effects),
            Input::Recorded { request } => self.recorded(now, request, &mut effects),
            Input::CallerAbandoned { request } => self.caller_abandoned(now, request, &mut effects),
            Input::TimeOver { request } => self.time_over(now, request, &mut effects),
            Input::StandingPullsLoaded { standing_pulls } => self.standing_pulls_loaded(now, standing_pulls),
            Input::StandingPullsKept { error } => self.standing_pulls_kept(error.as_deref(), &mut effects),
            Input::StandingPullCancelled { standing_pull, by } => self.standing_pull_cancelled(now, standing_pull, &by, &mut effects),
            Input::AlarmRang => self.alarm_rang(now, &mut effects),
        }
        self.assert_invariants();
        effects
    }

    fn alarm_rang(&mut self, now: Now, effects: &mut Vec<Effect>) {
        while let Some(alarm) = self.alarms.take_due(now.monotonic) {
            match alarm {
                Alarm::Patience(flight) => self.patience_over(now, flight, effects),
                Alarm::Manifest(flight) => self.manifest_due(now, flight, effects),
                Alarm::Clearance(flight) => self.clearance_due(now, flight, effects),
                Alarm::StandingPull(standing_pull) => self.standing_pull_due(now, standing_pull, effects),
            }
        }
    }

    /// The span of a request.
    #[must_use]
    pub fn request_span(&self, request: RequestId) -> Option<TraceContext> {
        self.requests.get(&request).map(|request| request.trace)
    }

    /// The flight that a request waits for.
    #[must_use]
    pub fn flight_of(&self, request: RequestId) -> Option<FlightId> {
        match self.requests.get(&request)?.stage {
            Stage::InFlight(flight) => Some(flight),
            _ => None,
        }
    }

    /// The span of a standing pull and that of its run `run`.
    #[must_use]
    pub fn run_span(&self, run: RequestId) -> Option<(TraceContext, TraceContext)> {
        Some((self.standing_pulls.span_of_run(run)?, self.request_span(run)?))
    }

    /// Counts the beginnings and ends of standing pulls. [`Self::standing_spans`] changes only if this does.
    #[must_use]
    pub fn standing_changes(&self) -> u64 {
        self.standing_pulls.changes()
    }

    /// The spans of the standing pulls.
    pub fn standing_spans(&self) -> impl Iterator<Item = (StandingPullId, TraceContext)> {
        self.standing_pulls.spans()
    }

    /// Whether a request is known and not answered yet.
    #[must_use]
    pub fn is_pending(&self, request: RequestId) -> bool {
        self.requests.contains_key(&request) || self.unparsed.contains_key(&request) || self.standing_pulls.is_awaited_by(request)
    }

    /// Whether a flight waits for clearance. A flight with clearance also requests it, to learn whether it still holds.
    #[must_use]
    pub fn awaits_clearance(&self, flight: FlightId) -> bool {
        self.flights.get(&flight).is_some_and(|flight| flight.stage == FlightStage::AwaitingClearance)
    }

    /// The callers of a flight, in the order in which they joined.
    #[must_use]
    pub fn callers_of(&self, flight: FlightId) -> &[RequestId] {
        self.flights.get(&flight).map(|flight| flight.callers.as_slice()).unwrap_or_default()
    }

    /// Whether the runtime is pulling the image; a flight that waits does not count.
    #[must_use]
    pub fn is_in_flight(&self, reference: &Reference) -> bool {
        self.flights.values().any(|flight| flight.key.reference == reference.normalised() && flight.is_at_runtime())
    }

    pub(super) fn asked(&mut self, now: Now, id: RequestId, ask: EnsureImage, trace: TraceContext, effects: &mut Vec<Effect>) {
        if let Err(too_long) = bounds::check_image(&ask.image) {
            let ask = EnsureImage { image: bounds::shortened(&ask.image), ..ask };
            let text = kubelet_messages::invalid_name(&ask.image, &too_long.to_string());
            return self.refuse_unparsed(now, id, ask, trace, text, effects);
        }
        let reference = match Reference::parse(&ask.image) {
            Ok(reference) => reference,
            Err(error) => {
                let text = kubelet_messages::invalid_name(&ask.image, &error.kubelet_message(&ask.image));
                return self.refuse_unparsed(now, id, ask, trace, text, effects);
            }
        };
        let platform = match ask.platform.as_deref().map(Platform::parse).transpose() {
            Ok(platform) => platform,
            Err(error) => return self.refuse_unparsed(now, id, ask, trace, error.to_string(), effects),
        };
        let policy = ask.policy.unwrap_or_else(|| default_policy(&reference));
        let request = Request {
            ask,
            reference,
            platform,
            policy,
            trace,
            stage: Stage::Inspecting,
            standing: standing_pulls::is_run(id),
            target: None,
            fleet_waited_before: Duration::ZERO,
            fleet_decides: false,
            images_pulled_before: self.images_pulled,
            pulling_since: None,
            events: VecDeque::new(),
            recording: false,
        };
        if policy != PullPolicy::Always {
            effects.push(Effect::Inspect { request: id, reference: request.reference.clone(), platform: request.platform.clone() });
        }
        self.requests.insert(id, request);
        if policy == PullPolicy::Always {
            self.find_target_or_check(id, effects);
        }
    }

    /// Goes on to the back-off check; before it, finds the target if the node shares, and the free bytes if no pod asked for the pull.
    fn find_target_or_check(&mut self, id: RequestId, effects: &mut Vec<Effect>) {
        let Some(request) = self.requests.get_mut(&id) else { return };
        let room = self.policy.keep_free.is_some() && request.ask.pod.is_none();
        if room || self.policy.clearance_within.is_some() {
            request.stage = Stage::FindingTarget;
            let (reference, platform) = (request.reference.clone(), request.platform.clone());
            effects.push(Effect::FindTarget { request: id, reference, platform, room });
        } else {
            check_backoff(id, request, effects);
        }
    }

    fn target_found(&mut self, now: Now, id: RequestId, target: Option<Arc<Target>>, free: Option<u64>, effects: &mut Vec<Effect>) {
        let Some(request) = self.requests.get_mut(&id).filter(|request| request.stage == Stage::FindingTarget) else { return };
        request.target = target.filter(|_| self.policy.clearance_within.is_some());
        let room = self.policy.keep_free.filter(|_| request.ask.pod.is_none()).zip(free);
        if let Some((keep, free)) = room.filter(|(keep, free)| free < keep) {
            let (outcome, fact) = outcomes::no_room(request, free, keep);
            return self.end(now, id, outcome, Some(fact), effects);
        }
        if request.standing && request.target.is_some() {
            // A standing pull is not refused. It waits for clearance, and learns there why.
            return self.join_or_start_flight(now, id, effects);
        }
        check_backoff(id, request, effects);
    }

    /// Refuses a request that cannot be parsed (kubelet's outcome A); the event and the answer have the same text.
    fn refuse_unparsed(&mut self, now: Now, id: RequestId, ask: EnsureImage, trace: TraceContext, text: String, effects: &mut Vec<Effect>) {
        let event = PullEvent {
            pod: ask.pod,
            image: ask.image,
            class: Some(FailureClass::Unknown),
            ..PullEvent::new(
                MessageId::random(&mut self.random),
                now.wall_ms(),
                self.node.clone(),
                EventReason::InspectFailed,
                text.clone(),
                trace,
            )
        };
        effects.push(Effect::Record { request: id, event });
        let outcome = PullOutcome {
            outcome: OutcomeKind::Failed,
            reason: Some(Reason::InvalidImageName),
            message: text,
            class: Some(FailureClass::Unknown),
            trace_id: trace.trace_id_hex(),
            ..PullOutcome::default()
        };
        self.unparsed.insert(id, outcome);
    }

    fn inspected(&mut self, now: Now, id: RequestId, found: Result<Option<ImageFacts>, Failure>, effects: &mut Vec<Effect>) {
        let Some(request) = self.requests.get(&id).filter(|request| request.stage == Stage::Inspecting) else { return };
        match found {
            Err(failure) => {
                let text = kubelet_messages::inspect_failed(&failure.text);
                let outcome = request.refused(Reason::ImageInspectError, text.clone(), failure.class);
                let mut fact = Fact::plain(EventReason::InspectFailed, text);
                fact.fields.class = Some(failure.class);
                self.end(now, id, outcome, Some(fact), effects);
            }
            Ok(Some(facts)) => {
                let fact = present_fact(request, &facts);
                let outcome = request.present(facts, &fact);
                self.end(now, id, outcome, Some(fact), effects);
            }
            Ok(None) if request.policy == PullPolicy::Never => {
                let text = kubelet_messages::never_pull(&request.ask.image);
                let outcome = request.refused(Reason::ErrImageNeverPull, text.clone(), FailureClass::NodeLocal);
                self.end(now, id, outcome, Some(Fact::plain(EventReason::ErrImageNeverPull, text)), effects);
            }
            Ok(None) => self.find_target_or_check(id, effects),
        }
    }

    fn backoff_checked(&mut self, now: Now, id: RequestId, answer: BackoffAnswer, effects: &mut Vec<Effect>) {
        let Some(request) = self.requests.get(&id).filter(|request| request.stage == Stage::CheckingBackoff) else { return };
        match answer {
            BackoffAnswer::Refused(refusal) => {
                let (outcome, fact) = outcomes::backed_off(request, refusal);
                self.end(now, id, outcome, Some(fact), effects);
            }
            BackoffAnswer::Allowed | BackoffAnswer::Unknown { .. } => self.join_or_start_flight(now, id, effects),
        }
    }

    /// Records that a request's pull begins; kubelet counts the waiting from here.
    pub(super) fn note_pulling(&mut self, now: Now, id: RequestId, effects: &mut Vec<Effect>) {
        let Some(request) = self.requests.get_mut(&id).filter(|request| request.pulling_since.is_none()) else { return };
        request.pulling_since = Some(now);
        let fact = Fact::plain(EventReason::Pulling, kubelet_messages::pulling(&request.ask.image));
        self.record(now, id, fact, effects);
    }

    fn reported(&mut self, now: Now, id: RequestId, next_attempt_ms: Option<u64>, effects: &mut Vec<Effect>) {
        let Some(request) = self.requests.get_mut(&id) else { return };
        let Stage::Ending { outcome, reporting: reporting @ true } = &mut request.stage else { return };
        *reporting = false;
        outcome.next_attempt_ms = next_attempt_ms;
        self.answer_if_done(now, id, effects);
    }

    fn recorded(&mut self, now: Now, id: RequestId, effects: &mut Vec<Effect>) {
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
        let mut outcome = outcomes::time_over(&request.ask);
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

    pub(super) fn set_stage(&mut self, id: RequestId, stage: Stage) {
        if let Some(request) = self.requests.get_mut(&id) {
            request.stage = stage;
        }
    }
}

fn check_backoff(id: RequestId, request: &mut Request, effects: &mut Vec<Effect>) {
    request.stage = Stage::CheckingBackoff;
    effects.push(Effect::CheckBackoff { request: id, key: request.key(), target: request.target.clone(), trace: request.trace });
}
