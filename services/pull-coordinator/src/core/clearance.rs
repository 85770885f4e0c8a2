//! Clearance of a flight: requests it, keeps it during the attempt, and reacts when it is lost.

mod resolving;
mod waiting;

use std::time::Duration;

use clock::{Now, Random};
use contract::messages::backoff_tracker::{Clearance, LocalKey, OTHER_KEYS_MOST, Refusal, RequestClearance};
use contract::{AttemptId, ClearanceId, DEADLINES, FailureClass, PermitId, Stage as RegistryStage};

use super::alarms::Alarm;
use super::coordinator::Coordinator;
use super::flight::{Flight, FlightStage};
use super::flights::acquire;
use super::kubelet_messages;
use super::request::{Request, milliseconds};
use super::step::{Effect, Failure, FlightId, RegistryFeedback};

/// The tracker answers within this time. A node may have thousands of waiting flights, so it is as long as the loss of messages allows.
const PATIENCE: Duration = DEADLINES.clearance_asked_every;
/// As `PATIENCE`, while the flight has a permit that others wait for. A budget leader leaves a tenth of the budget free: if all pulls begin
/// up to 0.1 s late, still no second has more of them than the budget allows.
const PATIENCE_WITH_PERMIT: Duration = Duration::from_millis(100);
/// Clearance is requested at most this often, even if the tracker answers at once each time.
const ASK_EVERY_AT_LEAST: Duration = Duration::from_secs(1);
/// After clearance was granted, the tracker is asked at most this often whether it still holds.
const WATCH_EVERY: Duration = DEADLINES.clearance_watched_every;

impl Coordinator {
    /// Starts the wait for clearance.
    pub(super) fn await_clearance(&mut self, now: Now, id: FlightId, effects: &mut Vec<Effect>) {
        let Some(flight) = self.flights.get_mut(&id) else { return };
        let Some(fleet) = &mut flight.fleet else { return };
        flight.stage = FlightStage::AwaitingClearance;
        fleet.lapsed = false;
        fleet.resolve_sent = false;
        fleet.reached.clear();
        fleet.until = RegistryStage::Manifest;
        fleet.answer_by = None;
        // A flight that left the budget's queue does not wait for the budget any more.
        fleet.budget_wait = None;
        fleet.begin_waiting(now.monotonic);
        self.alarms.clear(Alarm::Manifest(id));
        self.request_clearance(now, id, effects);
        self.arm_patience(now, id);
    }

    fn request_clearance(&mut self, now: Now, id: FlightId, effects: &mut Vec<Effect>) {
        let Some(flight) = self.flights.get(&id) else { return };
        let standing = self.has_caller(id, |request| request.standing);
        let keys = self.keys_of(flight);
        let Some((key, other_keys)) = keys.split_first().map(|(key, others)| (key.clone(), others.to_vec())) else { return };
        let Some(flight) = self.flights.get_mut(&id) else { return };
        let Some(fleet) = &mut flight.fleet else { return };
        fleet.turn += 1;
        fleet.is_known = true;
        fleet.asking = true;
        fleet.asked_at = now.monotonic;
        fleet.asked_for = keys;
        let patience = if fleet.has_permit { PATIENCE_WITH_PERMIT } else { PATIENCE };
        let patience = patience.min(self.policy.clearance_within.unwrap_or_default() / 2);
        fleet.answer_due = now.monotonic + patience;
        let ask = RequestClearance {
            clearance: fleet.clearance,
            attempt: flight.attempt,
            attempt_span: Some(flight.trace),
            key,
            other_keys,
            target: (*fleet.target).clone(),
            standing,
            patience_ms: milliseconds(patience),
        };
        self.alarms.clear(Alarm::Clearance(id));
        effects.push(Effect::RequestClearance { flight: id, turn: fleet.turn, ask: Box::new(ask), trace: flight.trace });
    }

    /// The local keys of a flight's callers, each once, in the order in which the callers joined.
    fn keys_of(&self, flight: &Flight) -> Vec<LocalKey> {
        let mut keys = Vec::new();
        for key in flight.callers.iter().filter_map(|caller| self.requests.get(caller)).map(Request::key) {
            if !keys.contains(&key) && keys.len() <= OTHER_KEYS_MOST {
                keys.push(key);
            }
        }
        keys
    }

    /// Requests clearance again after a caller has joined or left a waiting flight: kubelet's back-off counts per caller, so it may not
    /// apply to the callers that are left.
    pub(super) fn callers_changed(&mut self, now: Now, id: FlightId, effects: &mut Vec<Effect>) {
        let Some(flight) = self.flights.get(&id).filter(|flight| flight.stage == FlightStage::AwaitingClearance) else { return };
        let keys = self.keys_of(flight);
        let Some(fleet) = self.flights.get_mut(&id).and_then(|flight| flight.fleet.as_mut()) else { return };
        if keys.is_empty() || keys == fleet.asked_for {
            return;
        }
        fleet.set_refusal(now.monotonic, None);
        self.request_clearance(now, id, effects);
    }

    pub(super) fn clearance_answered(&mut self, now: Now, id: FlightId, turn: u64, answer: Option<Clearance>, effects: &mut Vec<Effect>) {
        let Some(flight) = self.flights.get_mut(&id) else { return };
        let resolved = flight.resolved;
        let Some(fleet) = flight.fleet.as_mut().filter(|fleet| fleet.asking && fleet.turn == turn) else { return };
        fleet.asking = false;
        match (&flight.stage, answer) {
            (FlightStage::AwaitingClearance, answer) => {
                fleet.answered = answer.is_some();
                self.clearance_decided(now, id, answer, effects);
            }
            (FlightStage::Verifying(_), _) => {}
            // The fleet gave the attempt up, but the runtime may have the manifest without showing it: the pull goes on.
            (FlightStage::Pulling, Some(Clearance::Abandoned)) if !fleet.resolve_sent && resolved => self.give_clearance_back(id, effects),
            (FlightStage::Pulling, Some(Clearance::Abandoned)) if !fleet.resolve_sent => self.restart_attempt(now, id, effects),
            (FlightStage::Pulling, _) if fleet.resolve_sent => {}
            // Other nodes have failed meanwhile. The flight leaves the queue: if flights kept their places and asked again with a permit in
            // hand, all flights that wait for the same clearance would get it at once and begin more pulls than the budget allows.
            (FlightStage::Queued, Some(Clearance::Abandoned | Clearance::Refused(_) | Clearance::Waiting { .. })) => {
                self.restart_attempt(now, id, effects)
            }
            // The flight asks again after the recheck.
            (FlightStage::Rechecking, Some(Clearance::Abandoned | Clearance::Refused(_) | Clearance::Waiting { .. })) => self.lapse(id),
            _ => self.ask_again_after(now, id, WATCH_EVERY, effects),
        }
    }

    /// Requests clearance again `every` after the last request; once it is granted, this asks whether it still holds.
    fn ask_again_after(&mut self, now: Now, id: FlightId, every: Duration, effects: &mut Vec<Effect>) {
        let Some(fleet) = self.flights.get(&id).and_then(|flight| flight.fleet.as_ref()) else { return };
        match fleet.asked_at + every {
            soon if soon > now.monotonic => self.alarms.set(Alarm::Clearance(id), soon),
            _ => self.request_clearance(now, id, effects),
        }
    }

    fn clearance_decided(&mut self, now: Now, id: FlightId, answer: Option<Clearance>, effects: &mut Vec<Effect>) {
        match answer {
            // Fail open: without an answer that can be read, the pull goes on.
            None | Some(Clearance::Unknown { .. }) => self.granted(now, id, None, effects),
            Some(Clearance::Granted { answer_within_ms, until, .. }) => {
                if let Some(fleet) = self.flights.get_mut(&id).and_then(|flight| flight.fleet.as_mut()) {
                    fleet.until = until;
                }
                self.granted(now, id, answer_within_ms.map(Duration::from_millis), effects);
            }
            Some(Clearance::Refused(refusal)) => self.clearance_withheld(now, id, Some(refusal), effects),
            Some(Clearance::Waiting { held: refusal }) => self.clearance_withheld(now, id, refusal, effects),
            Some(Clearance::Abandoned) => {
                if let Some(flight) = self.flights.get_mut(&id) {
                    flight.attempt = AttemptId::random(&mut self.random);
                }
                self.clearance_withheld(now, id, None, effects);
            }
        }
    }

    fn granted(&mut self, now: Now, id: FlightId, within: Option<Duration>, effects: &mut Vec<Effect>) {
        let Some(flight) = self.flights.get_mut(&id) else { return };
        let Some(fleet) = &mut flight.fleet else { return };
        fleet.clear_refusals();
        fleet.stop_waiting(now.monotonic);
        fleet.answer_by = within.map(|within| (now.monotonic, now.monotonic + within));
        let (has_permit, callers) = (std::mem::take(&mut fleet.has_permit), flight.callers.clone());
        self.alarms.clear(Alarm::Patience(id));
        if let Some((_, by)) = fleet.answer_by {
            self.alarms.set(Alarm::Manifest(id), by);
        }
        for caller in callers {
            self.note_pulling(now, caller, effects);
        }
        if has_permit {
            self.start_pull(id, effects);
        } else if let Some(flight) = self.flights.get_mut(&id) {
            flight.stage = FlightStage::Queued;
            effects.push(acquire(id, flight));
        }
        self.ask_again_after(now, id, Duration::ZERO, effects);
    }

    /// Handles `Waiting` and `Refused`. The flight returns its permit. A caller without a standing pull is refused if the failure is
    /// corroborated; while it is unconfirmed, the caller waits as long as the policy allows.
    fn clearance_withheld(&mut self, now: Now, id: FlightId, refusal: Option<Refusal>, effects: &mut Vec<Effect>) {
        let Some(flight) = self.flights.get_mut(&id) else { return };
        if flight.fleet.as_mut().is_some_and(|fleet| std::mem::take(&mut fleet.has_permit)) {
            return_permit(id, flight, &mut self.random, effects);
        }
        let Some(fleet) = &mut flight.fleet else { return };
        let news = refusal.as_ref().is_some_and(|refusal| fleet.is_new_refusal(now.monotonic, refusal));
        let callers = flight.callers.clone();
        fleet.set_refusal(now.monotonic, refusal.clone());
        if let Some(refusal) = refusal {
            for caller in callers {
                self.refuse_or_record(now, caller, &refusal, news, effects);
            }
            self.callers_changed(now, id, effects);
        }
        self.ask_again_after(now, id, ASK_EVERY_AT_LEAST, effects);
    }

    /// Begins the pull when the permit is there. If clearance was lost meanwhile or is nearly over, requests it again: too little time
    /// would lead to a false "no answer" for the whole fleet.
    pub(super) fn begin_pull(&mut self, now: Now, id: FlightId, effects: &mut Vec<Effect>) {
        let Some(flight) = self.flights.get_mut(&id) else { return };
        match &mut flight.fleet {
            Some(fleet) if !fleet.is_in_time(now.monotonic) => {
                fleet.has_permit = true;
                self.withdraw_clearance(id, effects);
                self.await_clearance(now, id, effects);
            }
            _ => self.start_pull(id, effects),
        }
    }

    fn lapse(&mut self, id: FlightId) {
        if let Some(fleet) = self.flights.get_mut(&id).and_then(|flight| flight.fleet.as_mut()) {
            (fleet.lapsed, fleet.answer_by) = (true, None);
        }
    }

    /// Withdraws the clearance. The next request has another id, so that messages which overtake each other do no harm.
    fn withdraw_clearance(&mut self, id: FlightId, effects: &mut Vec<Effect>) {
        self.give_clearance_back(id, effects);
        let Some(flight) = self.flights.get_mut(&id) else { return };
        let Some(fleet) = &mut flight.fleet else { return };
        fleet.clearance = ClearanceId::random(&mut self.random);
        flight.attempt = AttemptId::random(&mut self.random);
    }

    /// Gives the clearance back: it does not hold any more, and no answer about it counts.
    fn give_clearance_back(&mut self, id: FlightId, effects: &mut Vec<Effect>) {
        let Some(flight) = self.flights.get_mut(&id) else { return };
        let Some(fleet) = &mut flight.fleet else { return };
        effects.push(Effect::Withdraw { flight: id, clearance: fleet.clearance, trace: flight.trace });
        fleet.is_known = false;
        fleet.lapsed = true;
        fleet.asking = false;
        fleet.answer_by = None;
        self.alarms.clear(Alarm::Clearance(id));
        self.alarms.clear(Alarm::Manifest(id));
    }

    /// Handles the end of the time in which a leader or prober must have an answer.
    pub(super) fn manifest_due(&mut self, now: Now, id: FlightId, effects: &mut Vec<Effect>) {
        let Some(flight) = self.flights.get(&id) else { return };
        let Some(fleet) = &flight.fleet else { return };
        let Some((given, by)) = fleet.answer_by else { return };
        let awaits_blob = flight.awaits_blob && fleet.reached.contains(&RegistryStage::Manifest);
        match flight.stage {
            // Another node may take the lease; this flight stays in the queue and still learns if others fail.
            FlightStage::Queued | FlightStage::Rechecking => self.lapse(id),
            // Do not end the attempt on a guess: a runtime that does not show the manifest may have had it for long, and a pull that has
            // requested no blob waits for none.
            FlightStage::Pulling if flight.resolved && !awaits_blob => {}
            FlightStage::Pulling => {
                let (registry, within) = (flight.reference.registry(), by - given);
                let (stage, text) = if flight.resolved {
                    (RegistryStage::Blob, kubelet_messages::no_blob(registry, within))
                } else {
                    (RegistryStage::Manifest, kubelet_messages::no_answer(registry, within))
                };
                let failure = Failure { text, class: FailureClass::RegistryUnavailable, stage, ..Failure::default() };
                effects.push(Effect::Cancel { flight: id });
                self.finish_flight(now, id, &Err(failure), effects);
            }
            FlightStage::AwaitingClearance | FlightStage::Verifying(_) => {}
        }
    }

    /// Requests clearance again, or asks whether it still holds.
    pub(super) fn clearance_due(&mut self, now: Now, id: FlightId, effects: &mut Vec<Effect>) {
        let Some(flight) = self.flights.get(&id) else { return };
        if flight.fleet.as_ref().is_none_or(|fleet| fleet.asking || fleet.resolve_sent) {
            return;
        }
        self.request_clearance(now, id, effects);
    }

    /// Ends an attempt without a report and requests clearance for the next. The reason is that the attempt hangs while other nodes are
    /// answered, or that it has not begun and other nodes have failed.
    fn restart_attempt(&mut self, now: Now, id: FlightId, effects: &mut Vec<Effect>) {
        let Some(flight) = self.flights.get_mut(&id) else { return };
        effects.push(Effect::Cancel { flight: id });
        return_permit(id, flight, &mut self.random, effects);
        flight.attempt = AttemptId::random(&mut self.random);
        flight.trace = flight.trace.child(&mut self.random);
        (flight.resolved, flight.awaits_blob) = (false, false);
        self.await_clearance(now, id, effects);
    }
}

/// Returns a flight's permit without feedback about the registry. The flight's next permit has another id.
fn return_permit(id: FlightId, flight: &mut Flight, random: &mut Random, effects: &mut Vec<Effect>) {
    effects.push(Effect::Release { flight: id, permit: flight.permit, feedback: RegistryFeedback::default(), trace: flight.trace });
    flight.permit = PermitId::random(random);
    flight.turn_since = None;
}
