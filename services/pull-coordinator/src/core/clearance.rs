//! Clearance for a flight: asking for it, waiting with a limit, keeping it, and losing it.

use std::time::Duration;

use clock::Now;
use contract::messages::backoff_tracker::{
    CLEARANCE_WATCHED_EVERY_MS, Clearance, LocalKey, OTHER_KEYS_MOST, Refusal, RequestClearance, ResolveAttempt,
};
use contract::{AttemptId, ClearanceId, FailureClass, PermitId, Reason, Stage as RegistryStage};

use super::alarms::Alarm;
use super::coordinator::Coordinator;
use super::flight::{Flight, FlightStage};
use super::flights::acquire;
use super::kubelet_messages;
use super::outcomes;
use super::registry_word::RegistryWord;
use super::request::{Request, Stage, milliseconds};
use super::step::{Effect, Failure, FlightId, RequestId};

/// How long the tracker may hold an answer back before it is asked again: well within the time after which it forgets a clearance, and
/// short enough that its silence is found out before a caller has waited long enough for the fleet.
const PATIENCE: Duration = Duration::from_secs(5);
/// The same while a permit is in hand, which others wait for. A leader spaces permits so that a tenth of the budget stays free: all pulls
/// may begin a tenth of a second late, and no second has more of them than the budget allows.
const PATIENCE_WITH_PERMIT: Duration = Duration::from_millis(100);
/// Clearance is asked for at most this often, should the tracker answer at once again and again.
const ASK_EVERY_AT_LEAST: Duration = Duration::from_secs(1);
/// Whether clearance that was given still holds is asked at most this often, likewise.
const WATCH_EVERY: Duration = Duration::from_millis(CLEARANCE_WATCHED_EVERY_MS);

impl Coordinator {
    /// Begins to wait for clearance.
    pub(super) fn await_clearance(&mut self, now: Now, id: FlightId, effects: &mut Vec<Effect>) {
        let Some(flight) = self.flights.get_mut(&id) else { return };
        let Some(fleet) = &mut flight.fleet else { return };
        flight.stage = FlightStage::AwaitingClearance;
        fleet.lapsed = false;
        fleet.told = false;
        fleet.reached.clear();
        fleet.until = RegistryStage::Manifest;
        fleet.answer_by = None;
        fleet.begin_waiting(now.monotonic);
        let patience = if fleet.has_permit { PATIENCE_WITH_PERMIT } else { PATIENCE };
        self.alarms.clear(Alarm::Manifest(id));
        self.request_clearance(now, id, patience, effects);
        self.arm_patience(now, id);
    }

    fn request_clearance(&mut self, now: Now, id: FlightId, patience: Duration, effects: &mut Vec<Effect>) {
        let Some(flight) = self.flights.get(&id) else { return };
        let standing = flight.callers.iter().filter_map(|caller| self.requests.get(caller)).any(|request| request.standing);
        let keys = self.keys_of(flight);
        let Some((key, other_keys)) = keys.split_first().map(|(key, others)| (key.clone(), others.to_vec())) else { return };
        let Some(flight) = self.flights.get_mut(&id) else { return };
        let Some(fleet) = &mut flight.fleet else { return };
        fleet.turn += 1;
        fleet.is_known = true;
        fleet.asking = true;
        fleet.asked_at = now.monotonic;
        fleet.asked_for = keys;
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

    /// The back-off keys of a flight's callers, each once, in the order in which they joined.
    fn keys_of(&self, flight: &Flight) -> Vec<LocalKey> {
        let mut keys = Vec::new();
        for key in flight.callers.iter().filter_map(|caller| self.requests.get(caller)).map(Request::key) {
            if !keys.contains(&key) && keys.len() <= OTHER_KEYS_MOST {
                keys.push(key);
            }
        }
        keys
    }

    /// A caller has joined a flight that waits for clearance, or has left it. Local holds are judged per caller: what held the others need not
    /// hold those who want it now, so the tracker is asked again.
    pub(super) fn callers_changed(&mut self, now: Now, id: FlightId, effects: &mut Vec<Effect>) {
        let Some(flight) = self.flights.get(&id).filter(|flight| flight.stage == FlightStage::AwaitingClearance) else { return };
        let keys = self.keys_of(flight);
        let Some(fleet) = self.flights.get_mut(&id).and_then(|flight| flight.fleet.as_mut()) else { return };
        if keys.is_empty() || keys == fleet.asked_for {
            return;
        }
        let patience = if fleet.has_permit { PATIENCE_WITH_PERMIT } else { PATIENCE };
        fleet.hear_of_hold(now.monotonic, None);
        self.request_clearance(now, id, patience, effects);
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
            (FlightStage::Pulling, Some(Clearance::Abandoned)) if !fleet.told && resolved => self.go_on_alone(id, effects),
            (FlightStage::Pulling, Some(Clearance::Abandoned)) if !fleet.told => self.begin_anew(now, id, effects),
            (FlightStage::Pulling, _) if fleet.told => {}
            // Others have failed meanwhile. Who kept its place in the queue would ask for clearance when it has its permit: those who wait
            // for the same then would have theirs at once, and be more than the budget allows.
            (FlightStage::Queued, Some(Clearance::Abandoned | Clearance::Refused(_) | Clearance::Waiting { .. })) => {
                self.begin_anew(now, id, effects)
            }
            (FlightStage::Rechecking, Some(Clearance::Abandoned | Clearance::Refused(_) | Clearance::Waiting { .. })) => {
                fleet.lapsed = true;
                flight.attempt = AttemptId::random(&mut self.random);
            }
            _ => self.ask_after(now, id, WATCH_EVERY, effects),
        }
    }

    /// Asks the tracker again, so long after the last time: for clearance, or whether clearance that was given still holds.
    fn ask_after(&mut self, now: Now, id: FlightId, every: Duration, effects: &mut Vec<Effect>) {
        let Some(fleet) = self.flights.get(&id).and_then(|flight| flight.fleet.as_ref()) else { return };
        match fleet.asked_at + every {
            soon if soon > now.monotonic => self.alarms.set(Alarm::Clearance(id), soon),
            _ => self.request_clearance(now, id, PATIENCE, effects),
        }
    }

    fn clearance_decided(&mut self, now: Now, id: FlightId, answer: Option<Clearance>, effects: &mut Vec<Effect>) {
        match answer {
            // Fail open: a tracker that is silent, or that cannot be understood, holds nobody back.
            None | Some(Clearance::Unknown { .. }) => self.granted(now, id, None, effects),
            Some(Clearance::Granted { answer_within_ms, until, .. }) => {
                if let Some(fleet) = self.flights.get_mut(&id).and_then(|flight| flight.fleet.as_mut()) {
                    fleet.until = until;
                }
                self.granted(now, id, answer_within_ms.map(Duration::from_millis), effects);
            }
            Some(Clearance::Refused(held)) => self.held_back(now, id, Some(held), effects),
            Some(Clearance::Waiting { held }) => self.held_back(now, id, held, effects),
            Some(Clearance::Abandoned) => {
                if let Some(flight) = self.flights.get_mut(&id) {
                    flight.attempt = AttemptId::random(&mut self.random);
                }
                self.held_back(now, id, None, effects);
            }
        }
    }

    fn granted(&mut self, now: Now, id: FlightId, within: Option<Duration>, effects: &mut Vec<Effect>) {
        let Some(flight) = self.flights.get_mut(&id) else { return };
        let Some(fleet) = &mut flight.fleet else { return };
        fleet.let_go();
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
        self.ask_after(now, id, Duration::ZERO, effects);
    }

    /// Not yet. A flight that waits for the fleet holds no slot. A caller without a standing pull is refused if a confirmed failure holds
    /// it; what is unconfirmed it waits for, within its patience.
    fn held_back(&mut self, now: Now, id: FlightId, held: Option<Refusal>, effects: &mut Vec<Effect>) {
        let Some(flight) = self.flights.get_mut(&id) else { return };
        let Some(fleet) = &mut flight.fleet else { return };
        if std::mem::take(&mut fleet.has_permit) {
            effects.push(Effect::Release { flight: id, permit: flight.permit, word: RegistryWord::default(), trace: flight.trace });
            flight.permit = PermitId::random(&mut self.random);
            flight.turn_since = None;
        }
        let news = held.as_ref().is_some_and(|held| fleet.is_to_be_said(now.monotonic, held));
        let callers = flight.callers.clone();
        fleet.hear_of_hold(now.monotonic, held.clone());
        if let Some(held) = held {
            for caller in callers {
                self.hold(now, caller, &held, news, effects);
            }
            self.callers_changed(now, id, effects);
        }
        self.ask_after(now, id, ASK_EVERY_AT_LEAST, effects);
    }

    /// A standing pull says so now and then; anybody else is refused.
    fn hold(&mut self, now: Now, caller: RequestId, held: &Refusal, news: bool, effects: &mut Vec<Effect>) {
        let Some(request) = self.requests.get(&caller) else { return };
        if !request.standing && !held.unconfirmed {
            self.refuse(now, caller, held.clone(), effects);
        } else if news && request.standing {
            let fact = outcomes::held_fact(request, held);
            self.record(now, caller, fact, effects);
        }
    }

    fn refuse(&mut self, now: Now, caller: RequestId, held: Refusal, effects: &mut Vec<Effect>) {
        let Some(request) = self.requests.get(&caller) else { return };
        let Stage::Flying(flight) = request.stage else { return };
        let (mut outcome, fact) = outcomes::held(request, held);
        outcome.waiting_ms = milliseconds(self.fleet_waited(now, flight, caller));
        // First the flight, then the answer: who is answered finds nothing of it.
        self.leave_flight(flight, caller, effects);
        self.end(now, caller, outcome, Some(fact), effects);
    }

    /// For how long a caller has waited for the fleet.
    fn fleet_waited(&self, now: Now, id: FlightId, caller: RequestId) -> Duration {
        let before = self.requests.get(&caller).map_or(Duration::ZERO, |request| request.fleet_waited_before);
        let fleet = self.flights.get(&id).and_then(|flight| flight.fleet.as_ref());
        fleet.map_or(Duration::ZERO, |fleet| fleet.waited_for_fleet(now.monotonic).saturating_sub(before))
    }

    /// How long each caller without a standing pull may still wait for the fleet.
    fn patience_left(&self, now: Now, id: FlightId) -> Vec<(RequestId, Duration)> {
        let (Some(flight), Some(limit)) = (self.flights.get(&id), self.policy.clearance_within) else { return Vec::new() };
        let plain = |caller: &&RequestId| self.requests.get(caller).is_some_and(|request| !request.standing);
        let left = |caller: &RequestId| (*caller, limit.saturating_sub(self.fleet_waited(now, id, *caller)));
        flight.callers.iter().filter(plain).map(left).collect()
    }

    /// Wakes this when the first caller has waited long enough for the fleet.
    pub(super) fn arm_patience(&mut self, now: Now, id: FlightId) {
        let waits = self.flights.get(&id).and_then(|flight| flight.fleet.as_ref()).is_some_and(|fleet| fleet.is_waiting());
        match self.patience_left(now, id).into_iter().map(|(_, left)| left).min().filter(|_| waits) {
            Some(left) => self.alarms.set(Alarm::Patience(id), now.monotonic + left),
            None => self.alarms.clear(Alarm::Patience(id)),
        }
    }

    pub(super) fn patience_over(&mut self, now: Now, id: FlightId, effects: &mut Vec<Effect>) {
        let Some(flight) = self.flights.get_mut(&id) else { return };
        if let (FlightStage::AwaitingClearance, Some(fleet)) = (&flight.stage, &mut flight.fleet)
            && fleet.asking
            && fleet.answer_due < now.monotonic
        {
            // Its tracker is silent: that is no reason to refuse anybody.
            (fleet.asking, fleet.answered) = (false, false);
            return self.clearance_decided(now, id, None, effects);
        }
        let held = self.why_it_waits(now, id);
        for (caller, _) in self.patience_left(now, id).into_iter().filter(|(_, left)| left.is_zero()) {
            self.refuse(now, caller, held.clone(), effects);
        }
        self.callers_changed(now, id, effects);
        self.arm_patience(now, id);
    }

    /// What a flight that waits for the fleet waits for, as far as it is known.
    fn why_it_waits(&self, now: Now, id: FlightId) -> Refusal {
        let limit = self.policy.clearance_within.unwrap_or_default();
        let Some(fleet) = self.flights.get(&id).and_then(|flight| flight.fleet.as_ref()) else { return Refusal::default() };
        if let Some(wait) = fleet.budget_wait {
            let cause = format!("{}: {}", Reason::ErrImagePull, kubelet_messages::no_budget(&fleet.target.view.registry, wait));
            return Refusal { class: FailureClass::RateLimited, cause, next_attempt_ms: milliseconds(wait), ..Refusal::default() };
        }
        fleet.held_now(now.monotonic).unwrap_or_else(|| Refusal {
            cause: format!("{}: {}", Reason::ErrImagePull, kubelet_messages::no_clearance(limit)),
            next_attempt_ms: milliseconds(limit),
            ..Refusal::default()
        })
    }

    /// The throttler says whether the fleet's budget is what a flight waits for. Who would wait too long is refused at once.
    pub(super) fn wait_for_budget(&mut self, now: Now, id: FlightId, wait: Option<Duration>, effects: &mut Vec<Effect>) {
        let Some(fleet) = self.flights.get_mut(&id).and_then(|flight| flight.fleet.as_mut()) else { return };
        match wait {
            None => fleet.stop_waiting(now.monotonic),
            Some(wait) => {
                fleet.begin_waiting(now.monotonic);
                fleet.budget_wait = Some(wait);
                let held = self.why_it_waits(now, id);
                for (caller, _) in self.patience_left(now, id).into_iter().filter(|(_, left)| *left < wait) {
                    self.refuse(now, caller, held.clone(), effects);
                }
            }
        }
        self.arm_patience(now, id);
    }

    /// The permit is there: the pull begins, unless the clearance for it was lost meanwhile or is nearly over. A false "no answer" would
    /// speak for the whole fleet.
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

    /// What is asked from now on is another clearance, whatever overtakes what on the way.
    fn withdraw_clearance(&mut self, id: FlightId, effects: &mut Vec<Effect>) {
        let Some(flight) = self.flights.get_mut(&id) else { return };
        let Some(fleet) = &mut flight.fleet else { return };
        effects.push(Effect::Withdraw { flight: id, clearance: fleet.clearance, trace: flight.trace });
        fleet.clearance = ClearanceId::random(&mut self.random);
        fleet.is_known = false;
        fleet.lapsed = true;
        fleet.asking = false;
        fleet.answer_by = None;
        flight.attempt = AttemptId::random(&mut self.random);
        self.alarms.clear(Alarm::Clearance(id));
        self.alarms.clear(Alarm::Manifest(id));
    }

    /// The time is over that the fleet gives one who asks for all.
    pub(super) fn manifest_due(&mut self, now: Now, id: FlightId, effects: &mut Vec<Effect>) {
        let Some(flight) = self.flights.get(&id) else { return };
        let Some((given, by)) = flight.fleet.as_ref().and_then(|fleet| fleet.answer_by) else { return };
        match flight.stage {
            // Others may lead or probe in its place; that others fail it still hears.
            FlightStage::Queued | FlightStage::Rechecking => self.lapse(id),
            // A runtime that does not show what comes may have it for long, and a pull that asks for no blob waits for none: neither is
            // ended on a guess.
            FlightStage::Pulling if flight.resolved && !(flight.seen && flight.awaits_blob) => {}
            FlightStage::Pulling => {
                let (registry, within) = (flight.reference.registry(), by - given);
                let (stage, text) = if flight.resolved {
                    (RegistryStage::Blob, kubelet_messages::no_blob(registry, within))
                } else {
                    (RegistryStage::Manifest, kubelet_messages::no_answer(registry, within))
                };
                let failure = Failure { text, class: FailureClass::RegistryUnavailable, stage, ..Failure::default() };
                effects.push(Effect::Cancel { flight: id });
                self.land(now, id, &Err(failure), effects);
            }
            FlightStage::AwaitingClearance | FlightStage::Verifying(_) => {}
        }
    }

    /// It is time to ask for clearance again, or after it.
    pub(super) fn clearance_due(&mut self, now: Now, id: FlightId, effects: &mut Vec<Effect>) {
        let Some(flight) = self.flights.get(&id) else { return };
        if flight.fleet.as_ref().is_none_or(|fleet| fleet.asking || fleet.told) {
            return;
        }
        self.request_clearance(now, id, PATIENCE, effects);
    }

    /// The attempt hangs while others are answered, or has not begun yet and others have failed: it ends without a word, and the next one
    /// asks for clearance.
    fn begin_anew(&mut self, now: Now, id: FlightId, effects: &mut Vec<Effect>) {
        let Some(flight) = self.flights.get_mut(&id) else { return };
        effects.push(Effect::Cancel { flight: id });
        effects.push(Effect::Release { flight: id, permit: flight.permit, word: RegistryWord::default(), trace: flight.trace });
        flight.permit = PermitId::random(&mut self.random);
        flight.attempt = AttemptId::random(&mut self.random);
        flight.trace = flight.trace.child(&mut self.random);
        flight.turn_since = None;
        (flight.resolved, flight.seen, flight.awaits_blob) = (false, false, false);
        self.await_clearance(now, id, effects);
    }

    /// The fleet has given the attempt up, but its manifest may be there for long where that cannot be seen: it goes on, and the fleet
    /// does not wait for it.
    fn go_on_alone(&mut self, id: FlightId, effects: &mut Vec<Effect>) {
        let Some(flight) = self.flights.get_mut(&id) else { return };
        let Some(fleet) = &mut flight.fleet else { return };
        effects.push(Effect::Withdraw { flight: id, clearance: fleet.clearance, trace: flight.trace });
        fleet.is_known = false;
        fleet.lapsed = true;
        fleet.answer_by = None;
        self.alarms.clear(Alarm::Manifest(id));
        self.alarms.clear(Alarm::Clearance(id));
    }

    /// A blob was asked for and no byte of any has come, by the look before an alarm.
    pub(super) fn blob_awaited(&mut self, id: FlightId) {
        if let Some(flight) = self.flights.get_mut(&id) {
            flight.awaits_blob = true;
        }
    }

    /// Says once that a stage has answered an attempt, if the tracker still knows of it.
    pub(super) fn tell_reached(&mut self, id: FlightId, stage: RegistryStage, effects: &mut Vec<Effect>) {
        let Some(flight) = self.flights.get_mut(&id) else { return };
        flight.awaits_blob &= stage < RegistryStage::Blob;
        let Some(fleet) = flight.fleet.as_mut().filter(|fleet| fleet.is_known && !fleet.reached.contains(&stage)) else { return };
        fleet.reached.push(stage);
        let resolve = ResolveAttempt { clearance: fleet.clearance, attempt: flight.attempt, failure: None, stage };
        effects.push(Effect::Resolve { resolve: Box::new(resolve), trace: flight.trace });
        if stage >= fleet.until {
            self.is_told(id);
        }
    }

    /// Says once that an attempt has failed before the stage that its clearance was for, if the tracker still knows of it.
    pub(super) fn tell_failed(&mut self, id: FlightId, failure: &Failure, effects: &mut Vec<Effect>) {
        let Some(flight) = self.flights.get_mut(&id) else { return };
        let Some(fleet) = flight.fleet.as_mut().filter(|fleet| fleet.is_known && !fleet.told) else { return };
        let failure = Some(outcomes::attempt_failure(flight.reference.requested(), failure));
        let resolve = ResolveAttempt { clearance: fleet.clearance, attempt: flight.attempt, failure, stage: RegistryStage::default() };
        effects.push(Effect::Resolve { resolve: Box::new(resolve), trace: flight.trace });
        self.is_told(id);
    }

    fn is_told(&mut self, id: FlightId) {
        if let Some(fleet) = self.flights.get_mut(&id).and_then(|flight| flight.fleet.as_mut()) {
            fleet.told = true;
            fleet.answer_by = None;
        }
        self.alarms.clear(Alarm::Manifest(id));
        self.alarms.clear(Alarm::Clearance(id));
    }
}
