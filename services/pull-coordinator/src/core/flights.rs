//! The course of a flight, from its first caller to its result.

use std::time::Duration;

use clock::Now;
use contract::messages::backoff_tracker::{BeginAttempt, ReportAttempt};
use contract::messages::pull_coordinator::PullPolicy;
use contract::messages::throttler::PermitAnswer;
use contract::{AttemptId, ClearanceId, FailureClass, PermitId, Stage as RegistryStage};

use super::alarms::Alarm;
use super::coordinator::Coordinator;
use super::flight::{FleetState, Flight, FlightKey, FlightStage};
use super::kubelet_messages;
use super::outcomes::{Timing, failed, present_fact, succeeded, throttled};
use super::request::{EventFields, Fact, Request, Stage, milliseconds};
use super::step::{Effect, Failure, FlightId, ImageFacts, PulledFacts, RegistryFeedback, RequestId};

/// A flight that waited longer than this for its permit checks again whether the image is present: another process on the same store, or a
/// person at the runtime, may have pulled it. A permit without a queue takes less.
const RECHECK_AFTER: Duration = Duration::from_millis(50);
/// The error if a runtime reports success without an image, as docker did when kubelet used it.
const NOT_THERE: &str = "image pull failed for unknown error: the runtime reported success, but the image is not there";

impl Coordinator {
    /// Joins the flight with the same key, or starts one. A caller with policy Always joins only while the tag is not resolved, because a
    /// resolved tag may be older than its request. A node that shares records Pulling only when clearance is granted.
    pub(super) fn join_or_start_flight(&mut self, now: Now, id: RequestId, effects: &mut Vec<Effect>) {
        let Some(request) = self.requests.get(&id) else { return };
        let (target, always) = (request.target.clone(), request.policy == PullPolicy::Always);
        let key = FlightKey {
            reference: request.reference.normalised().to_owned(),
            platform: request.platform.as_ref().map(ToString::to_string),
            login: target.as_ref().map(|target| (target.scope.clone(), target.fingerprint.clone())),
        };
        let joinable = |flight: &&FlightId| self.flights.get(flight).is_some_and(|flight| !(always && flight.resolved));
        let joined = self.flights_of.get(&key).and_then(|same| same.iter().rev().find(joinable)).copied();
        if target.is_none() {
            self.note_pulling(now, id, effects);
        }
        match joined {
            Some(flight) => self.join(now, flight, id, effects),
            None => self.start_flight(now, id, key, effects),
        }
    }

    fn join(&mut self, now: Now, id: FlightId, caller: RequestId, effects: &mut Vec<Effect>) {
        let Some(flight) = self.flights.get_mut(&id) else { return };
        flight.callers.push(caller);
        let waited = flight.fleet.as_ref().map_or(Duration::ZERO, |fleet| fleet.waited_for_fleet(now.monotonic));
        let has_clearance = flight.stage != FlightStage::AwaitingClearance;
        if let Some(request) = self.requests.get_mut(&caller) {
            request.stage = Stage::InFlight(id);
            request.fleet_waited_before = waited;
        }
        if has_clearance {
            self.note_pulling(now, caller, effects);
        }
        self.refuse_for_budget(now, id, effects);
        self.callers_changed(now, id, effects);
        self.arm_patience(now, id);
    }

    fn start_flight(&mut self, now: Now, caller: RequestId, key: FlightKey, effects: &mut Vec<Effect>) {
        let Some(request) = self.requests.get_mut(&caller) else { return };
        self.last_flight += 1;
        let id = FlightId(self.last_flight);
        request.stage = Stage::InFlight(id);
        let fleet = request.target.clone().map(|target| FleetState::new(target, ClearanceId::random(&mut self.random)));
        let flight = Flight {
            key,
            reference: request.reference.clone(),
            platform: request.platform.clone(),
            attempt: AttemptId::random(&mut self.random),
            permit: PermitId::random(&mut self.random),
            trace: request.trace.child(&mut self.random),
            callers: vec![caller],
            stage: if fleet.is_some() { FlightStage::AwaitingClearance } else { FlightStage::Queued },
            resolved: false,
            awaits_blob: false,
            images_pulled_before: request.images_pulled_before,
            queued_since: now,
            fleet,
            turn_since: None,
        };
        let shares = flight.fleet.is_some();
        if !shares {
            effects.push(acquire(id, &flight));
        }
        self.flights_of.entry(flight.key.clone()).or_default().insert(id);
        self.flights.insert(id, flight);
        if shares {
            self.await_clearance(now, id, effects);
        }
    }

    pub(super) fn permitted(&mut self, now: Now, id: FlightId, answer: PermitAnswer, effects: &mut Vec<Effect>) {
        let (images_pulled, wants_newest) = (self.images_pulled, self.wants_newest(id));
        let Some(flight) = self.flights.get_mut(&id).filter(|flight| flight.stage == FlightStage::Queued) else { return };
        match answer {
            PermitAnswer::Queued { ahead, budget_wait_ms } => {
                let wait = budget_wait_ms.map(Duration::from_millis);
                self.wait_for_budget(now, id, wait, effects);
                self.record_throttled(now, id, ahead, wait, effects);
                effects.extend(self.flights.get(&id).map(|flight| acquire(id, flight)));
            }
            PermitAnswer::Refused { text } => {
                flight.turn_since = Some(now);
                self.finish_flight(now, id, &Err(Failure { text, class: FailureClass::NodeLocal, ..Failure::default() }), effects);
            }
            // Fail open: an answer that cannot be read counts as granted.
            PermitAnswer::Granted { .. } | PermitAnswer::Unknown { .. } => {
                flight.turn_since = Some(now);
                let waited = now.monotonic.saturating_sub(flight.queued_since.monotonic);
                // If another flight pulled an image since the request inspected, that may have been this image.
                let may_be_there = waited > RECHECK_AFTER || flight.images_pulled_before != images_pulled;
                let look_again = may_be_there && !wants_newest;
                if look_again {
                    flight.stage = FlightStage::Rechecking;
                    effects.push(Effect::Recheck { flight: id, reference: flight.reference.clone(), platform: flight.platform.clone() });
                }
                self.wait_for_budget(now, id, None, effects);
                if !look_again {
                    self.begin_pull(now, id, effects);
                }
            }
        }
    }

    /// Records the wait for a permit once for each caller that was not refused.
    fn record_throttled(&mut self, now: Now, id: FlightId, ahead: u64, budget_wait: Option<Duration>, effects: &mut Vec<Effect>) {
        let callers = self.flights.get(&id).map(|flight| flight.callers.clone()).unwrap_or_default();
        for caller in callers {
            let Some(request) = self.requests.get_mut(&caller).filter(|request| !request.throttled_recorded) else { continue };
            request.throttled_recorded = true;
            let fact = throttled(request, request.waited(now), ahead, budget_wait);
            self.record(now, caller, fact, effects);
        }
    }

    /// Answers the callers if the image is present by now; otherwise, or if the runtime fails, pulls.
    pub(super) fn rechecked(&mut self, now: Now, id: FlightId, found: Result<Option<ImageFacts>, Failure>, effects: &mut Vec<Effect>) {
        if self.flights.get(&id).is_none_or(|flight| flight.stage != FlightStage::Rechecking) {
            return;
        }
        match found {
            // A caller with Always may have joined meanwhile.
            Ok(Some(facts)) if !self.wants_newest(id) => {
                for caller in self.remove_flight(id, RegistryFeedback::default(), effects) {
                    let Some(request) = self.requests.get(&caller) else { continue };
                    let waited = request.waited(now);
                    let fact = present_fact(request, &facts, Some(waited));
                    let mut outcome = request.present(facts.clone(), &fact);
                    outcome.waiting_ms = milliseconds(waited);
                    self.end(now, caller, outcome, Some(fact), effects);
                }
            }
            _ => self.begin_pull(now, id, effects),
        }
    }

    /// Notes that the tag is resolved. If the manifest was seen, tells the tracker.
    pub(super) fn resolved(&mut self, id: FlightId, seen: bool, effects: &mut Vec<Effect>) {
        let Some(flight) = self.flights.get_mut(&id) else { return };
        flight.resolved = true;
        if seen && flight.stage == FlightStage::Pulling {
            self.resolve_answered(id, RegistryStage::Manifest, effects);
        }
    }

    /// Whether a caller of the flight is as described.
    pub(super) fn has_caller(&self, id: FlightId, is_so: impl Fn(&Request) -> bool) -> bool {
        self.callers_of(id).iter().filter_map(|caller| self.requests.get(caller)).any(is_so)
    }

    /// Whether a caller has policy Always, so that an image that is present does not serve it.
    fn wants_newest(&self, id: FlightId) -> bool {
        self.has_caller(id, |request| request.policy == PullPolicy::Always)
    }

    fn is_for_a_pod(&self, id: FlightId) -> bool {
        self.has_caller(id, |request| request.ask.pod.is_some())
    }

    /// Ends a pull without a pod if it would leave too few bytes free.
    pub(super) fn sized(&mut self, now: Now, id: FlightId, missing: u64, free: Option<u64>, effects: &mut Vec<Effect>) {
        if self.flights.get(&id).is_none_or(|flight| flight.stage != FlightStage::Pulling) || self.is_for_a_pod(id) {
            return;
        }
        let Some((keep, free)) = self.policy.keep_free.zip(free).filter(|(keep, free)| free.saturating_sub(missing) < *keep) else {
            return;
        };
        // The registry has answered.
        self.resolved(id, true, effects);
        effects.push(Effect::Cancel { flight: id });
        let text = kubelet_messages::too_large(missing, free, keep);
        self.finish_flight(now, id, &Err(Failure { text, class: FailureClass::NodeLocal, ..Failure::default() }), effects);
    }

    pub(super) fn pulled(&mut self, now: Now, id: FlightId, result: Result<PulledFacts, Failure>, effects: &mut Vec<Effect>) {
        let Some(flight) = self.flights.get_mut(&id).filter(|flight| flight.stage == FlightStage::Pulling) else { return };
        match result {
            Err(failure) => self.finish_flight(now, id, &Err(failure), effects),
            Ok(facts) => {
                flight.stage = FlightStage::Verifying(facts);
                flight.resolved = true;
                // If a runtime does not show blobs, a pulled image means that the registry has given some.
                let shows_blobs = flight.fleet.as_ref().is_some_and(|fleet| fleet.target.shows_blobs);
                let reached = if shows_blobs { RegistryStage::Manifest } else { RegistryStage::Blob };
                effects.push(Effect::Verify { flight: id, reference: flight.reference.clone(), platform: flight.platform.clone() });
                self.resolve_answered(id, reached, effects);
            }
        }
    }

    pub(super) fn verified(&mut self, now: Now, id: FlightId, found: Result<Option<ImageFacts>, Failure>, effects: &mut Vec<Effect>) {
        let Some(flight) = self.flights.get(&id) else { return };
        let FlightStage::Verifying(pulled) = &flight.stage else { return };
        let result = match found {
            Ok(Some(facts)) => Ok((pulled.clone(), facts)),
            Ok(None) => {
                Err(Failure { text: NOT_THERE.to_owned(), auth: pulled.auth.clone(), limits: pulled.limits.clone(), ..Failure::default() })
            }
            // As in kubelet: the pull has succeeded even if the runtime cannot say the size.
            Err(_) => Ok((pulled.clone(), ImageFacts::default())),
        };
        self.finish_flight(now, id, &result, effects);
    }

    /// Finishes a flight: every caller gets its own events and its own answer.
    pub(super) fn finish_flight(
        &mut self,
        now: Now,
        id: FlightId,
        result: &Result<(PulledFacts, ImageFacts), Failure>,
        effects: &mut Vec<Effect>,
    ) {
        let Some(flight) = self.flights.get(&id) else { return };
        let (attempt, pull_time) = (flight.attempt, flight.pull_time(now));
        let attempted = flight.stage != FlightStage::Queued;
        let attempt_span = Some(flight.trace).filter(|_| attempted && result.is_err());
        // If the stage that clearance was for has answered, a later failure concerns this node alone.
        let fleet_decides = attempted && flight.fleet.as_ref().is_some_and(|fleet| !fleet.resolve_sent);
        self.images_pulled += u64::from(result.is_ok());
        match result {
            Ok(_) => self.resolve_answered(id, RegistryStage::Whole, effects),
            Err(failure) if attempted => self.resolve_failed(id, failure, effects),
            Err(_) => {}
        }
        let feedback = if attempted { RegistryFeedback::of(result) } else { RegistryFeedback::default() };
        for caller in self.remove_flight(id, feedback, effects) {
            let Some(request) = self.requests.get_mut(&caller) else { continue };
            request.fleet_decides = fleet_decides;
            // A caller that joined late has waited for less than the whole pull.
            let whole = request.waited(now);
            let timing = Timing { pull: pull_time.min(whole), whole };
            let (outcome, fact, failure) = match result {
                Ok((pulled, facts)) => succeeded(request, timing, pulled, facts),
                Err(failure) => failed(request, timing, failure),
            };
            let target = request.target.as_deref().filter(|_| failure.is_some()).cloned();
            let report = ReportAttempt { key: request.key(), attempt, attempt_span, failure, target };
            effects.push(Effect::Report { request: caller, report, trace: request.trace });
            request.stage = Stage::Ending { outcome, reporting: true };
            self.record(now, caller, Fact { fields: EventFields { attempt: Some(attempt), ..fact.fields }, ..fact }, effects);
        }
    }

    /// Removes a flight, returns its permit and its clearance, and yields its callers.
    fn remove_flight(&mut self, id: FlightId, feedback: RegistryFeedback, effects: &mut Vec<Effect>) -> Vec<RequestId> {
        let Some(flight) = self.flights.remove(&id) else { return Vec::new() };
        if let Some(same) = self.flights_of.get_mut(&flight.key) {
            same.remove(&id);
            if same.is_empty() {
                self.flights_of.remove(&flight.key);
            }
        }
        for alarm in [Alarm::Patience(id), Alarm::Manifest(id), Alarm::Clearance(id)] {
            self.alarms.clear(alarm);
        }
        if flight.wants_permit() {
            effects.push(Effect::Release { flight: id, permit: flight.permit, feedback, trace: flight.trace });
        }
        if let Some(fleet) = flight.fleet.as_ref().filter(|fleet| fleet.is_known) {
            effects.push(Effect::Withdraw { flight: id, clearance: fleet.clearance, trace: flight.trace });
        }
        flight.callers
    }

    /// Removes a caller from its flight; the flight ends with its last caller.
    pub(super) fn leave_flight(&mut self, id: FlightId, caller: RequestId, effects: &mut Vec<Effect>) {
        let Some(flight) = self.flights.get_mut(&id) else { return };
        flight.callers.retain(|other| *other != caller);
        if flight.callers.is_empty() {
            effects.push(Effect::Cancel { flight: id });
            self.remove_flight(id, RegistryFeedback::default(), effects);
        }
    }

    pub(super) fn start_pull(&mut self, id: FlightId, effects: &mut Vec<Effect>) {
        let report_size = self.policy.keep_free.is_some() && !self.is_for_a_pod(id);
        let Some(flight) = self.flights.get_mut(&id) else { return };
        flight.stage = FlightStage::Pulling;
        effects.push(Effect::StartPull {
            flight: id,
            permit: flight.permit,
            budget: flight.budget(),
            begin: flight.fleet.as_ref().map(|fleet| BeginAttempt { clearance: fleet.clearance, attempt: flight.attempt }),
            route_known: flight.fleet.as_ref().is_some_and(|fleet| fleet.target.view.has_route()),
            one_blob_first: flight.fleet.as_ref().is_some_and(|fleet| fleet.answer_by.is_some() && fleet.until > RegistryStage::Manifest),
            fleet_waits: flight.fleet.as_ref().is_some_and(|fleet| fleet.answer_by.is_some()),
            report_size,
            reference: flight.reference.clone(),
            platform: flight.platform.clone(),
            trace: flight.trace,
        });
    }
}

pub(super) fn acquire(id: FlightId, flight: &Flight) -> Effect {
    Effect::AcquirePermit {
        flight: id,
        permit: flight.permit,
        image: flight.key.reference.clone(),
        budget: flight.budget(),
        trace: flight.trace,
    }
}
