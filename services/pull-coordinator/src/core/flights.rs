//! What happens to flights, from the first caller that joins to the result.

use std::time::Duration;

use clock::Now;
use contract::messages::backoff_tracker::{BeginAttempt, ReportAttempt};
use contract::messages::pull_coordinator::PullPolicy;
use contract::messages::throttler::PermitAnswer;
use contract::{AttemptId, ClearanceId, FailureClass, PermitId, Stage as RegistryStage};

use super::alarms::Alarm;
use super::coordinator::Coordinator;
use super::flight::{FleetSide, Flight, FlightKey, FlightStage};
use super::kubelet_messages;
use super::outcomes::{Timing, failed, present_fact, succeeded, throttled};
use super::registry_word::RegistryWord;
use super::request::{EventFields, Fact, Stage, milliseconds};
use super::step::{Effect, Failure, FlightId, ImageFacts, PulledFacts, RequestId};

/// A pull that waited longer than this for its turn looks again whether the image is there: somebody else (another process on the
/// same store, a person at the runtime) may have pulled it. Shorter waits are the ordinary way of a permit.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(50);
/// What a runtime that reports success without an image gets, as docker did in kubelet's days of it.
const NOT_THERE: &str = "image pull failed for unknown error: the runtime reported success, but the image is not there";

impl Coordinator {
    /// Joins the flight that will bring the same bytes, or begins one. Who wants the registry asked joins only while the tag is not
    /// resolved: what is resolved may be older than the clearance. A node that shares says Pulling when the fleet gives clearance.
    pub(super) fn board(&mut self, now: Now, id: RequestId, effects: &mut Vec<Effect>) {
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
            Some(flight) => self.join(now, flight, id, always, effects),
            None => self.take_to_the_air(now, id, key, effects),
        }
    }

    fn join(&mut self, now: Now, id: FlightId, caller: RequestId, always: bool, effects: &mut Vec<Effect>) {
        let Some(flight) = self.flights.get_mut(&id) else { return };
        flight.callers.push(caller);
        flight.always |= always;
        let waited = flight.fleet.as_ref().map_or(Duration::ZERO, |fleet| fleet.waited_for_fleet(now.monotonic));
        let has_clearance = flight.stage != FlightStage::AwaitingClearance;
        if let Some(request) = self.requests.get_mut(&caller) {
            request.stage = Stage::Flying(id);
            request.fleet_waited_before = waited;
        }
        if has_clearance {
            self.note_pulling(now, caller, effects);
        }
        self.callers_changed(now, id, effects);
        self.arm_patience(now, id);
    }

    fn take_to_the_air(&mut self, now: Now, caller: RequestId, key: FlightKey, effects: &mut Vec<Effect>) {
        let Some(request) = self.requests.get_mut(&caller) else { return };
        self.last_flight += 1;
        let id = FlightId(self.last_flight);
        request.stage = Stage::Flying(id);
        let fleet = request.target.clone().map(|target| FleetSide::new(target, ClearanceId::random(&mut self.random)));
        let flight = Flight {
            key,
            reference: request.reference.clone(),
            platform: request.platform.clone(),
            attempt: AttemptId::random(&mut self.random),
            permit: PermitId::random(&mut self.random),
            trace: request.trace.child(&mut self.random),
            callers: vec![caller],
            stage: if fleet.is_some() { FlightStage::AwaitingClearance } else { FlightStage::Queued },
            always: request.policy == PullPolicy::Always,
            resolved: false,
            seen: false,
            awaits_blob: false,
            landed_before: request.landed_before,
            queued_since: now,
            told_throttled: false,
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
        let landed = self.landed;
        let Some(flight) = self.flights.get_mut(&id).filter(|flight| flight.stage == FlightStage::Queued) else { return };
        match answer {
            PermitAnswer::Queued { ahead, budget_wait_ms } => {
                let wait = budget_wait_ms.map(Duration::from_millis);
                self.wait_for_budget(now, id, wait, effects);
                self.tell_throttled(now, id, ahead, wait, effects);
                effects.extend(self.flights.get(&id).map(|flight| acquire(id, flight)));
            }
            PermitAnswer::Refused { text } => {
                flight.turn_since = Some(now);
                self.land(now, id, &Err(Failure { text, class: FailureClass::NodeLocal, ..Failure::default() }), effects);
            }
            // Fail open: an answer that cannot be understood holds nobody back.
            PermitAnswer::Granted { .. } | PermitAnswer::Unknown { .. } => {
                flight.turn_since = Some(now);
                let waited = now.monotonic.saturating_sub(flight.queued_since.monotonic);
                // A request that looked before another flight finished may have looked too early.
                let may_be_there = waited > LOOK_AGAIN_AFTER || flight.landed_before != landed;
                let look_again = may_be_there && !flight.always;
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

    /// Its turn did not come for as long as an answer is held back: that it waits, and for what, is an event, once. Who is refused because
    /// the wait is too long hears that instead.
    fn tell_throttled(&mut self, now: Now, id: FlightId, ahead: u64, budget_wait: Option<Duration>, effects: &mut Vec<Effect>) {
        let Some(flight) = self.flights.get_mut(&id).filter(|flight| !flight.told_throttled) else { return };
        flight.told_throttled = true;
        let waited = now.monotonic.saturating_sub(flight.queued_since.monotonic);
        for caller in flight.callers.clone() {
            let Some(request) = self.requests.get(&caller) else { continue };
            let fact = throttled(request, waited, ahead, budget_wait);
            self.record(now, caller, fact, effects);
        }
    }

    /// The image came by another way while this flight waited: its callers find it present. If the runtime cannot say, it is pulled.
    pub(super) fn rechecked(&mut self, now: Now, id: FlightId, found: Result<Option<ImageFacts>, Failure>, effects: &mut Vec<Effect>) {
        let Some(flight) = self.flights.get(&id).filter(|flight| flight.stage == FlightStage::Rechecking) else { return };
        match found {
            // A caller with Always may have joined meanwhile.
            Ok(Some(facts)) if !flight.always => {
                for caller in self.take_off(id, RegistryWord::default(), effects) {
                    let Some(request) = self.requests.get(&caller) else { continue };
                    let fact = present_fact(request, &facts);
                    let mut outcome = request.present(facts.clone(), &fact);
                    outcome.waiting_ms = milliseconds(request.waited(now));
                    self.end(now, caller, outcome, Some(fact), effects);
                }
            }
            _ => self.begin_pull(now, id, effects),
        }
    }

    /// Who asks from now on with Always must ask again. If it was seen that the manifest is there, the fleet may know.
    pub(super) fn resolved(&mut self, id: FlightId, seen: bool, effects: &mut Vec<Effect>) {
        let Some(flight) = self.flights.get_mut(&id) else { return };
        flight.resolved = true;
        if seen && flight.stage == FlightStage::Pulling {
            flight.seen = true;
            self.tell_reached(id, RegistryStage::Manifest, effects);
        }
    }

    fn is_for_a_pod(&self, id: FlightId) -> bool {
        let callers = self.flights.get(&id).map(|flight| flight.callers.as_slice()).unwrap_or_default();
        callers.iter().filter_map(|caller| self.requests.get(caller)).any(|request| request.ask.pod.is_some())
    }

    /// A pull that no pod asked for ends when it is seen that it would leave too little room itself.
    pub(super) fn sized(&mut self, now: Now, id: FlightId, missing: u64, free: Option<u64>, effects: &mut Vec<Effect>) {
        if self.flights.get(&id).is_none_or(|flight| flight.stage != FlightStage::Pulling) || self.is_for_a_pod(id) {
            return;
        }
        let Some((keep, free)) = self.policy.keep_free.zip(free).filter(|(keep, free)| free.saturating_sub(missing) < *keep) else {
            return;
        };
        // The registry is well.
        self.resolved(id, true, effects);
        effects.push(Effect::Cancel { flight: id });
        let text = kubelet_messages::too_large(missing, free, keep);
        self.land(now, id, &Err(Failure { text, class: FailureClass::NodeLocal, ..Failure::default() }), effects);
    }

    pub(super) fn pulled(&mut self, now: Now, id: FlightId, result: Result<PulledFacts, Failure>, effects: &mut Vec<Effect>) {
        let Some(flight) = self.flights.get_mut(&id).filter(|flight| flight.stage == FlightStage::Pulling) else { return };
        match result {
            Err(failure) => self.land(now, id, &Err(failure), effects),
            Ok(facts) => {
                flight.stage = FlightStage::Verifying(facts);
                flight.resolved = true;
                // A runtime that does not show blobs has had some, if it has had the image.
                let shows_blobs = flight.fleet.as_ref().is_some_and(|fleet| fleet.target.shows_blobs);
                let reached = if shows_blobs { RegistryStage::Manifest } else { RegistryStage::Blob };
                effects.push(Effect::Verify { flight: id, reference: flight.reference.clone(), platform: flight.platform.clone() });
                self.tell_reached(id, reached, effects);
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
            // As kubelet: a runtime that cannot be asked for the size has pulled all the same.
            Err(_) => Ok((pulled.clone(), ImageFacts::default())),
        };
        self.land(now, id, &result, effects);
    }

    /// The flight is over: every caller gets its own events and its own answer.
    pub(super) fn land(&mut self, now: Now, id: FlightId, result: &Result<(PulledFacts, ImageFacts), Failure>, effects: &mut Vec<Effect>) {
        let Some(flight) = self.flights.get(&id) else { return };
        let (attempt, pull_time) = (flight.attempt, flight.pull_time(now));
        let tried = flight.stage != FlightStage::Queued;
        let attempt_span = Some(flight.trace).filter(|_| tried && result.is_err());
        // What fails after the registry has given the manifest is this node's own affair.
        let fleet_decides = tried && flight.fleet.as_ref().is_some_and(|fleet| !fleet.told);
        self.landed += u64::from(result.is_ok());
        match result {
            Ok(_) => self.tell_reached(id, RegistryStage::Whole, effects),
            Err(failure) if tried => self.tell_failed(id, failure, effects),
            Err(_) => {}
        }
        let word = if tried { RegistryWord::of(result) } else { RegistryWord::default() };
        for caller in self.take_off(id, word, effects) {
            let Some(request) = self.requests.get_mut(&caller) else { continue };
            request.fleet_decides = fleet_decides;
            // Who joined late has waited for less than the whole pull.
            let whole = request.waited(now);
            let timing = Timing { pull: pull_time.min(whole), whole };
            let (outcome, fact, failure) = match result {
                Ok((pulled, facts)) => succeeded(request, timing, pulled, facts),
                Err(failure) => failed(request, timing, failure),
            };
            let report = ReportAttempt { key: request.key(), attempt, attempt_span, failure };
            effects.push(Effect::Report { request: caller, report, trace: request.trace });
            request.stage = Stage::Ending { outcome, reporting: true };
            self.record(now, caller, Fact { fields: EventFields { attempt: Some(attempt), ..fact.fields }, ..fact }, effects);
        }
    }

    /// Ends a flight and says who waited for it. Its permit goes back, and so does its request for clearance.
    fn take_off(&mut self, id: FlightId, word: RegistryWord, effects: &mut Vec<Effect>) -> Vec<RequestId> {
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
            effects.push(Effect::Release { flight: id, permit: flight.permit, word, trace: flight.trace });
        }
        if let Some(fleet) = flight.fleet.as_ref().filter(|fleet| fleet.is_known) {
            effects.push(Effect::Withdraw { flight: id, clearance: fleet.clearance, trace: flight.trace });
        }
        flight.callers
    }

    /// A flight goes on while anybody wants it.
    pub(super) fn leave_flight(&mut self, id: FlightId, caller: RequestId, effects: &mut Vec<Effect>) {
        let Some(flight) = self.flights.get_mut(&id) else { return };
        flight.callers.retain(|other| *other != caller);
        if flight.callers.is_empty() {
            effects.push(Effect::Cancel { flight: id });
            self.take_off(id, RegistryWord::default(), effects);
        }
    }

    pub(super) fn start_pull(&mut self, id: FlightId, effects: &mut Vec<Effect>) {
        let measured = self.policy.keep_free.is_some() && !self.is_for_a_pod(id);
        let Some(flight) = self.flights.get_mut(&id) else { return };
        flight.stage = FlightStage::Pulling;
        effects.push(Effect::StartPull {
            flight: id,
            permit: flight.permit,
            budget: flight.budget(),
            begin: flight.fleet.as_ref().map(|fleet| BeginAttempt { clearance: fleet.clearance, attempt: flight.attempt }),
            routed: flight.fleet.as_ref().is_some_and(|fleet| fleet.target.view.has_route()),
            one_blob_first: flight.fleet.as_ref().is_some_and(|fleet| fleet.answer_by.is_some() && fleet.until > RegistryStage::Manifest),
            in_haste: flight.fleet.as_ref().is_some_and(|fleet| fleet.answer_by.is_some()),
            measured,
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
