//! The state machine.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use clock::{Now, Random};
use contract::messages::backoff_tracker::{AttemptFailure, BackoffAnswer, Held, ReportAttempt};
use contract::messages::pull_coordinator::{EnsureImage, OutcomeKind, PullOutcome, PullPolicy};
use contract::messages::throttler::PermitAnswer;
use contract::{AttemptId, EventReason, FailureClass, MessageId, NodeName, PermitId, PullEvent, Reason, TraceContext};
use image::{Platform, Reference};

use super::bounds;
use super::flight::{Flight, FlightKey, FlightStage};
use super::request::{EventFields, Fact, Request, Stage, default_policy, milliseconds};
use super::step::{Effect, Failure, FlightId, ImageFacts, Input, PulledFacts, RequestId};
use super::words;

/// A pull that waited longer than this for its turn looks again whether the image is there: somebody else (another process on the
/// same store, a person at the runtime) may have pulled it. Shorter waits are the ordinary way of a permit.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(50);
/// Most steps have one or two effects; a new `Vec` would make room for four, each of some hundred bytes.
const EFFECTS_USUAL: usize = 2;
/// What a runtime that reports success without an image gets, as docker did in kubelet's days of it.
const NOT_THERE: &str = "image pull failed for unknown error: the runtime reported success, but the image is not there";

/// All requests and flights of a node.
#[derive(Debug)]
pub struct Coordinator {
    node: NodeName,
    random: Random,
    requests: BTreeMap<RequestId, Request>,
    flights: BTreeMap<FlightId, Flight>,
    /// Requests whose image cannot be parsed: their answer comes after their event.
    unparsed: BTreeMap<RequestId, PullOutcome>,
    last_flight: u64,
    /// How many flights have brought an image.
    landed: u64,
}

/// A flight as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlightView {
    /// Which.
    pub flight: FlightId,
    /// The image as first asked for.
    pub image: String,
    /// The runtime is at work; else it waits for its turn.
    pub pulling: bool,
    /// For how long.
    pub since: Duration,
    /// How many callers wait for it.
    pub callers: usize,
}

impl Coordinator {
    /// Nobody has asked yet.
    #[must_use]
    pub fn new(node: NodeName, random: Random) -> Self {
        Self { node, random, requests: BTreeMap::new(), flights: BTreeMap::new(), unparsed: BTreeMap::new(), last_flight: 0, landed: 0 }
    }

    /// Takes one input and says what follows from it. An input for what is over already changes nothing.
    pub fn step(&mut self, now: Now, input: Input) -> Vec<Effect> {
        let mut effects = Vec::with_capacity(EFFECTS_USUAL);
        match input {
            Input::Asked { request, ask, trace } => self.asked(now, request, ask, trace, &mut effects),
            Input::Inspected { request, found } => self.inspected(now, request, found, &mut effects),
            Input::BackoffChecked { request, answer } => self.backoff_checked(now, request, answer, &mut effects),
            Input::Permitted { flight, answer } => self.permitted(now, flight, answer, &mut effects),
            Input::Rechecked { flight, found } => self.rechecked(now, flight, found, &mut effects),
            Input::Resolved { flight } => {
                if let Some(flight) = self.flights.get_mut(&flight) {
                    flight.resolved = true;
                }
            }
            Input::Pulled { flight, result } => self.pulled(now, flight, result, &mut effects),
            Input::Verified { flight, found } => self.verified(now, flight, found, &mut effects),
            Input::Reported { request, next_try_ms } => self.reported(request, next_try_ms, &mut effects),
            Input::Recorded { request } => self.recorded(request, &mut effects),
            Input::TimeOver { request } => self.time_over(now, request, &mut effects),
        }
        effects
    }

    /// What is in flight and queued, in the order in which it began.
    #[must_use]
    pub fn flights(&self, now: Now) -> Vec<FlightView> {
        let view = |(id, flight): (&FlightId, &Flight)| FlightView {
            flight: *id,
            image: flight.reference.requested().to_owned(),
            pulling: matches!(flight.stage, FlightStage::Pulling | FlightStage::Verifying(_)),
            since: now.monotonic.saturating_sub(flight.turn_since.unwrap_or(flight.queued_since).monotonic),
            callers: flight.callers.len(),
        };
        self.flights.iter().map(view).collect()
    }

    /// Whether that image is in flight or queued.
    #[must_use]
    pub fn is_in_flight(&self, reference: &Reference) -> bool {
        self.flights.values().any(|flight| flight.key.reference == reference.normalised())
    }

    fn asked(&mut self, now: Now, id: RequestId, ask: EnsureImage, trace: TraceContext, effects: &mut Vec<Effect>) {
        let trace = trace.child(&mut self.random);
        if let Err(too_long) = bounds::check_image(&ask.image) {
            let ask = EnsureImage { image: bounds::beginning(&ask.image), ..ask };
            let text = words::invalid_name(&ask.image, &too_long.to_string());
            return self.refuse_unparsed(now, id, ask, trace, text, effects);
        }
        let reference = match Reference::parse(&ask.image) {
            Ok(reference) => reference,
            Err(error) => {
                let text = words::invalid_name(&ask.image, &error.kubelet_message(&ask.image));
                return self.refuse_unparsed(now, id, ask, trace, text, effects);
            }
        };
        let platform = match ask.platform.as_deref().map(Platform::parse).transpose() {
            Ok(platform) => platform,
            Err(error) => return self.refuse_unparsed(now, id, ask, trace, error.to_string(), effects),
        };
        let policy = ask.policy.unwrap_or_else(|| default_policy(&reference));
        let stage = if policy == PullPolicy::Always { Stage::CheckingBackoff } else { Stage::Inspecting };
        let request = Request {
            ask,
            reference,
            platform,
            policy,
            trace,
            stage,
            landed_before: self.landed,
            pulling_since: None,
            events: VecDeque::new(),
            recording: false,
        };
        effects.push(match request.stage {
            Stage::Inspecting => Effect::Inspect { request: id, reference: request.reference.clone(), platform: request.platform.clone() },
            _ => Effect::CheckBackoff { request: id, key: request.key(), trace: request.trace },
        });
        self.requests.insert(id, request);
    }

    /// Kubelet's outcome A: the event and the answer say the same.
    fn refuse_unparsed(&mut self, now: Now, id: RequestId, ask: EnsureImage, trace: TraceContext, text: String, effects: &mut Vec<Effect>) {
        let event = PullEvent {
            id: MessageId::random(&mut self.random),
            time_ms: now.wall_ms(),
            node: self.node.clone(),
            pod: ask.pod,
            image: ask.image,
            registry: None,
            reason: EventReason::InspectFailed,
            message: text.clone(),
            duration_ms: None,
            waiting_ms: None,
            size_bytes: None,
            class: Some(FailureClass::Unknown),
            attempt: None,
            next_try_ms: None,
            learned_by: None,
            learned_ms_ago: None,
            learned_trace: None,
            trace,
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
                let text = words::inspect_failed(&failure.text);
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
                let text = words::never_pull(&request.ask.image);
                let outcome = request.refused(Reason::ErrImageNeverPull, text.clone(), FailureClass::NodeLocal);
                self.end(now, id, outcome, Some(Fact::plain(EventReason::ErrImageNeverPull, text)), effects);
            }
            Ok(None) => {
                effects.push(Effect::CheckBackoff { request: id, key: request.key(), trace: request.trace });
                self.set_stage(id, Stage::CheckingBackoff);
            }
        }
    }

    fn backoff_checked(&mut self, now: Now, id: RequestId, answer: BackoffAnswer, effects: &mut Vec<Effect>) {
        let Some(request) = self.requests.get_mut(&id).filter(|request| request.stage == Stage::CheckingBackoff) else { return };
        match answer {
            BackoffAnswer::Held(Held { cause, class, next_try_ms, .. }) => {
                let mut outcome = request.outcome(OutcomeKind::Backoff);
                outcome.reason = Some(Reason::ImagePullBackOff);
                outcome.message = words::back_off(&request.ask.image, Some(&cause));
                outcome.class = Some(class);
                outcome.next_try_ms = Some(next_try_ms);
                let fields = EventFields { class: Some(class), next_try_ms: Some(next_try_ms), ..EventFields::default() };
                let fact = Fact { reason: EventReason::BackOff, message: words::back_off(&request.ask.image, None), fields };
                self.end(now, id, outcome, Some(fact), effects);
            }
            BackoffAnswer::Clear => {
                request.pulling_since = Some(now);
                let fact = Fact::plain(EventReason::Pulling, words::pulling(&request.ask.image));
                self.record(now, id, fact, effects);
                self.board(now, id, effects);
            }
        }
    }

    /// Joins the flight that will bring the same bytes, or begins one. Who wants the registry asked joins only while the tag is not
    /// resolved: what is resolved may be older than the wish.
    fn board(&mut self, now: Now, id: RequestId, effects: &mut Vec<Effect>) {
        let Some(request) = self.requests.get_mut(&id) else { return };
        let always = request.policy == PullPolicy::Always;
        let key = FlightKey {
            reference: request.reference.normalised().to_owned(),
            platform: request.platform.as_ref().map(ToString::to_string),
        };
        let joinable = |flight: &Flight| flight.key == key && !(always && flight.resolved);
        if let Some((flight_id, flight)) = self.flights.iter_mut().rev().find(|(_, flight)| joinable(flight)) {
            flight.callers.push(id);
            flight.always |= always;
            request.stage = Stage::Flying(*flight_id);
            return;
        }
        self.last_flight += 1;
        let flight_id = FlightId(self.last_flight);
        request.stage = Stage::Flying(flight_id);
        let flight = Flight {
            key,
            reference: request.reference.clone(),
            platform: request.platform.clone(),
            attempt: AttemptId::random(&mut self.random),
            permit: PermitId::random(&mut self.random),
            trace: request.trace.child(&mut self.random),
            callers: vec![id],
            stage: FlightStage::Queued,
            always,
            resolved: false,
            landed_before: request.landed_before,
            queued_since: now,
            turn_since: None,
        };
        effects.push(acquire(flight_id, &flight));
        self.flights.insert(flight_id, flight);
    }

    fn permitted(&mut self, now: Now, id: FlightId, answer: PermitAnswer, effects: &mut Vec<Effect>) {
        let landed = self.landed;
        let Some(flight) = self.flights.get_mut(&id).filter(|flight| flight.stage == FlightStage::Queued) else { return };
        match answer {
            PermitAnswer::Queued { .. } => effects.push(acquire(id, flight)),
            PermitAnswer::Refused { text } => {
                flight.turn_since = Some(now);
                self.land(now, id, &Err(Failure { text, class: FailureClass::NodeLocal, auth: String::new() }), effects);
            }
            PermitAnswer::Granted { .. } => {
                flight.turn_since = Some(now);
                let waited = now.monotonic.saturating_sub(flight.queued_since.monotonic);
                // Whoever looked before another flight landed may have looked too early.
                let may_be_there = waited > LOOK_AGAIN_AFTER || flight.landed_before != landed;
                if may_be_there && !flight.always {
                    flight.stage = FlightStage::Rechecking;
                    effects.push(Effect::Recheck { flight: id, reference: flight.reference.clone(), platform: flight.platform.clone() });
                } else {
                    effects.push(start_pull(id, flight));
                }
            }
        }
    }

    /// The image came by another way while this flight waited: its callers find it present. If the runtime cannot say, it is pulled.
    fn rechecked(&mut self, now: Now, id: FlightId, found: Result<Option<ImageFacts>, Failure>, effects: &mut Vec<Effect>) {
        let Some(flight) = self.flights.get_mut(&id).filter(|flight| flight.stage == FlightStage::Rechecking) else { return };
        match found {
            // A caller with Always may have joined meanwhile.
            Ok(Some(facts)) if !flight.always => {
                for caller in self.take_off(id, effects) {
                    let Some(request) = self.requests.get(&caller) else { continue };
                    let fact = present_fact(request, &facts);
                    let mut outcome = request.present(facts.clone(), &fact);
                    outcome.waiting_ms = milliseconds(request.waited(now));
                    self.end(now, caller, outcome, Some(fact), effects);
                }
            }
            _ => effects.push(start_pull(id, flight)),
        }
    }

    fn pulled(&mut self, now: Now, id: FlightId, result: Result<PulledFacts, Failure>, effects: &mut Vec<Effect>) {
        let Some(flight) = self.flights.get_mut(&id).filter(|flight| flight.stage == FlightStage::Pulling) else { return };
        match result {
            Err(failure) => self.land(now, id, &Err(failure), effects),
            Ok(facts) => {
                flight.stage = FlightStage::Verifying(facts);
                flight.resolved = true;
                effects.push(Effect::Verify { flight: id, reference: flight.reference.clone(), platform: flight.platform.clone() });
            }
        }
    }

    fn verified(&mut self, now: Now, id: FlightId, found: Result<Option<ImageFacts>, Failure>, effects: &mut Vec<Effect>) {
        let Some(flight) = self.flights.get(&id) else { return };
        let FlightStage::Verifying(pulled) = &flight.stage else { return };
        let result = match found {
            Ok(Some(facts)) => Ok((pulled.clone(), facts)),
            Ok(None) => Err(Failure { text: NOT_THERE.to_owned(), class: FailureClass::Unknown, auth: pulled.auth.clone() }),
            // As kubelet: a runtime that cannot be asked for the size has pulled all the same.
            Err(_) => Ok((pulled.clone(), ImageFacts::default())),
        };
        self.land(now, id, &result, effects);
    }

    /// The flight is over: every caller gets its own events and its own answer.
    fn land(&mut self, now: Now, id: FlightId, result: &Result<(PulledFacts, ImageFacts), Failure>, effects: &mut Vec<Effect>) {
        let Some(flight) = self.flights.get(&id) else { return };
        let (attempt, pull_time) = (flight.attempt, flight.pull_time(now));
        self.landed += u64::from(result.is_ok());
        for caller in self.take_off(id, effects) {
            let Some(request) = self.requests.get(&caller) else { continue };
            // Who joined late has waited for less than the whole pull.
            let whole = request.waited(now);
            let timing = Timing { pull: pull_time.min(whole), whole };
            let (outcome, fact, failure) = match result {
                Ok((pulled, facts)) => succeeded(request, timing, pulled, facts),
                Err(failure) => failed(request, timing, failure),
            };
            let report = ReportAttempt { key: request.key(), attempt, failure };
            effects.push(Effect::Report { request: caller, report, trace: request.trace });
            self.set_stage(caller, Stage::Ending { outcome, reporting: true });
            self.record(now, caller, Fact { fields: EventFields { attempt: Some(attempt), ..fact.fields }, ..fact }, effects);
        }
    }

    /// Ends a flight and says who waited for it. Its permit goes back.
    fn take_off(&mut self, id: FlightId, effects: &mut Vec<Effect>) -> Vec<RequestId> {
        let Some(flight) = self.flights.remove(&id) else { return Vec::new() };
        effects.push(Effect::Release { permit: flight.permit, trace: flight.trace });
        flight.callers
    }

    fn reported(&mut self, id: RequestId, next_try_ms: Option<u64>, effects: &mut Vec<Effect>) {
        let Some(request) = self.requests.get_mut(&id) else { return };
        let Stage::Ending { outcome, reporting: reporting @ true } = &mut request.stage else { return };
        *reporting = false;
        outcome.next_try_ms = next_try_ms;
        self.answer_if_done(id, effects);
    }

    fn recorded(&mut self, id: RequestId, effects: &mut Vec<Effect>) {
        if let Some(outcome) = self.unparsed.remove(&id) {
            return effects.push(Effect::Answer { request: id, outcome });
        }
        let Some(request) = self.requests.get_mut(&id) else { return };
        request.recording = false;
        if let Some(event) = request.events.pop_front() {
            request.recording = true;
            effects.push(Effect::Record { request: id, event });
        }
        self.answer_if_done(id, effects);
    }

    fn time_over(&mut self, now: Now, id: RequestId, effects: &mut Vec<Effect>) {
        let Some(request) = self.requests.get(&id) else { return };
        let stage = request.stage.clone();
        if let Stage::Ending { .. } = stage {
            return;
        }
        let mut outcome = request.outcome(OutcomeKind::Failed);
        outcome.timed_out = true;
        outcome.waiting_ms = milliseconds(request.waited(now));
        let limit = Duration::from_millis(request.ask.timeout_ms.unwrap_or_default());
        outcome.message = format!("not there within {}: the time given with --timeout is over", image::go::duration(limit));
        outcome.class = Some(FailureClass::Unknown);
        // First the flight, then the answer: with an answer the shell forgets what is not in flight any more.
        if let Stage::Flying(flight) = stage {
            self.leave(flight, id, effects);
        }
        self.end(now, id, outcome, None, effects);
    }

    /// A flight goes on while anybody wants it.
    fn leave(&mut self, id: FlightId, caller: RequestId, effects: &mut Vec<Effect>) {
        let Some(flight) = self.flights.get_mut(&id) else { return };
        flight.callers.retain(|other| *other != caller);
        if flight.callers.is_empty() {
            effects.push(Effect::Cancel { flight: id });
            self.take_off(id, effects);
        }
    }

    fn end(&mut self, now: Now, id: RequestId, outcome: PullOutcome, fact: Option<Fact>, effects: &mut Vec<Effect>) {
        self.set_stage(id, Stage::Ending { outcome, reporting: false });
        match fact {
            Some(fact) => self.record(now, id, fact, effects),
            None => self.answer_if_done(id, effects),
        }
    }

    fn record(&mut self, now: Now, id: RequestId, fact: Fact, effects: &mut Vec<Effect>) {
        let Some(request) = self.requests.get_mut(&id) else { return };
        let event = PullEvent {
            id: MessageId::random(&mut self.random),
            time_ms: now.wall_ms(),
            node: self.node.clone(),
            pod: request.ask.pod.clone(),
            image: request.ask.image.clone(),
            registry: Some(request.reference.registry().to_owned()),
            reason: fact.reason,
            message: fact.message,
            duration_ms: fact.fields.duration.map(milliseconds),
            waiting_ms: fact.fields.waiting.map(milliseconds),
            size_bytes: fact.fields.size_bytes,
            class: fact.fields.class,
            attempt: fact.fields.attempt,
            next_try_ms: fact.fields.next_try_ms,
            learned_by: None,
            learned_ms_ago: None,
            learned_trace: None,
            trace: request.trace,
        };
        if request.recording {
            request.events.push_back(event);
        } else {
            request.recording = true;
            effects.push(Effect::Record { request: id, event });
        }
    }

    fn answer_if_done(&mut self, id: RequestId, effects: &mut Vec<Effect>) {
        let Some(request) = self.requests.get(&id) else { return };
        let Stage::Ending { reporting: false, .. } = request.stage else { return };
        if request.recording {
            return;
        }
        if let Some(Request { stage: Stage::Ending { outcome, .. }, .. }) = self.requests.remove(&id) {
            effects.push(Effect::Answer { request: id, outcome });
        }
    }

    fn set_stage(&mut self, id: RequestId, stage: Stage) {
        if let Some(request) = self.requests.get_mut(&id) {
            request.stage = stage;
        }
    }
}

/// How long a pull took for one caller.
#[derive(Clone, Copy)]
struct Timing {
    pull: Duration,
    whole: Duration,
}

impl Timing {
    fn waiting(self) -> Duration {
        self.whole - self.pull
    }
}

fn present_fact(request: &Request, facts: &ImageFacts) -> Fact {
    let fields = EventFields { size_bytes: Some(facts.size_bytes), ..EventFields::default() };
    Fact { reason: EventReason::Pulled, message: words::present(&request.ask.image), fields }
}

fn succeeded(request: &Request, timing: Timing, pulled: &PulledFacts, facts: &ImageFacts) -> (PullOutcome, Fact, Option<AttemptFailure>) {
    let outcome = PullOutcome {
        image_ref: pulled.image_ref.clone(),
        digest: pulled.digest.clone().or_else(|| facts.digest.clone()),
        platform: pulled.platform.clone().or_else(|| facts.platform.clone()),
        size_bytes: facts.size_bytes,
        duration_ms: milliseconds(timing.pull),
        waiting_ms: milliseconds(timing.waiting()),
        auth: pulled.auth.clone(),
        ..request.outcome(OutcomeKind::Pulled)
    };
    let fields = EventFields {
        duration: Some(timing.pull),
        waiting: Some(timing.waiting()),
        size_bytes: Some(facts.size_bytes),
        ..EventFields::default()
    };
    let message = words::pulled(&request.ask.image, timing.pull, timing.whole, facts.size_bytes);
    (outcome, Fact { reason: EventReason::Pulled, message, fields }, None)
}

fn failed(request: &Request, timing: Timing, failure: &Failure) -> (PullOutcome, Fact, Option<AttemptFailure>) {
    let (reason, message) = words::reason_of_pull_error(&request.ask.image, &failure.text);
    let cause = AttemptFailure { class: failure.class, cause: format!("{reason}: {message}"), ..AttemptFailure::default() };
    let outcome = PullOutcome {
        duration_ms: milliseconds(timing.pull),
        waiting_ms: milliseconds(timing.waiting()),
        auth: failure.auth.clone(),
        ..request.refused(reason, message, failure.class)
    };
    let fields =
        EventFields { duration: Some(timing.pull), waiting: Some(timing.waiting()), class: Some(failure.class), ..EventFields::default() };
    let fact = Fact { reason: EventReason::Failed, message: words::pull_failed(&request.ask.image, &failure.text), fields };
    (outcome, fact, Some(cause))
}

fn acquire(id: FlightId, flight: &Flight) -> Effect {
    Effect::AcquirePermit { flight: id, permit: flight.permit, image: flight.key.reference.clone(), trace: flight.trace }
}

fn start_pull(id: FlightId, flight: &mut Flight) -> Effect {
    flight.stage = FlightStage::Pulling;
    Effect::StartPull {
        flight: id,
        permit: flight.permit,
        reference: flight.reference.clone(),
        platform: flight.platform.clone(),
        trace: flight.trace,
    }
}
