//! The wait of a flight's callers for clearance and budget: its limit, and which caller is refused.

use std::time::Duration;

use clock::Now;
use contract::messages::backoff_tracker::Refusal;
use contract::{FailureClass, Reason};

use crate::core::alarms::Alarm;
use crate::core::coordinator::Coordinator;
use crate::core::flight::FlightStage;
use crate::core::request::{Stage, milliseconds};
use crate::core::step::{Effect, FlightId, RequestId};
use crate::core::{kubelet_messages, outcomes};

impl Coordinator {
    /// Refuses a caller without a standing pull; for a standing pull, records an event if the refusal is new.
    pub(super) fn refuse_or_record(&mut self, now: Now, caller: RequestId, refusal: &Refusal, news: bool, effects: &mut Vec<Effect>) {
        let Some(request) = self.requests.get(&caller) else { return };
        if !request.standing && !refusal.unconfirmed {
            self.refuse(now, caller, refusal.clone(), effects);
        } else if news && request.standing {
            let fact = outcomes::backoff_fact(request, refusal);
            self.record(now, caller, fact, effects);
        }
    }

    fn refuse(&mut self, now: Now, caller: RequestId, refusal: Refusal, effects: &mut Vec<Effect>) {
        let Some(request) = self.requests.get(&caller) else { return };
        let Stage::InFlight(flight) = request.stage else { return };
        let (mut outcome, fact) = outcomes::backed_off(request, refusal);
        outcome.waiting_ms = milliseconds(self.fleet_waited(now, flight, caller));
        // The flight ends before the answer, so that an answered caller never sees its flight.
        self.leave_flight(flight, caller, effects);
        self.end(now, caller, outcome, Some(fact), effects);
    }

    /// How long a caller has waited for the fleet.
    fn fleet_waited(&self, now: Now, id: FlightId, caller: RequestId) -> Duration {
        let before = self.requests.get(&caller).map_or(Duration::ZERO, |request| request.fleet_waited_before);
        let fleet = self.flights.get(&id).and_then(|flight| flight.fleet.as_ref());
        fleet.map_or(Duration::ZERO, |fleet| fleet.waited_for_fleet(now.monotonic).saturating_sub(before))
    }

    /// How much longer each caller without a standing pull may wait for the fleet.
    fn patience_left(&self, now: Now, id: FlightId) -> Vec<(RequestId, Duration)> {
        let (Some(flight), Some(limit)) = (self.flights.get(&id), self.policy.clearance_within) else { return Vec::new() };
        let plain = |caller: &&RequestId| self.requests.get(caller).is_some_and(|request| !request.standing);
        let left = |caller: &RequestId| (*caller, limit.saturating_sub(self.fleet_waited(now, id, *caller)));
        flight.callers.iter().filter(plain).map(left).collect()
    }

    /// Sets the alarm for the first caller whose wait for the fleet ends.
    pub(in crate::core) fn arm_patience(&mut self, now: Now, id: FlightId) {
        let waits = self.flights.get(&id).and_then(|flight| flight.fleet.as_ref()).is_some_and(|fleet| fleet.is_waiting());
        match self.patience_left(now, id).into_iter().map(|(_, left)| left).min().filter(|_| waits) {
            Some(left) => self.alarms.set(Alarm::Patience(id), now.monotonic + left),
            None => self.alarms.clear(Alarm::Patience(id)),
        }
    }

    pub(in crate::core) fn patience_over(&mut self, now: Now, id: FlightId, effects: &mut Vec<Effect>) {
        let Some(flight) = self.flights.get_mut(&id) else { return };
        if let (FlightStage::AwaitingClearance, Some(fleet)) = (&flight.stage, &mut flight.fleet)
            && fleet.asking
            && fleet.answer_due < now.monotonic
        {
            // The tracker does not answer: fail open.
            (fleet.asking, fleet.answered) = (false, false);
            return self.clearance_decided(now, id, None, effects);
        }
        let refusal = self.why_it_waits(now, id);
        for (caller, _) in self.patience_left(now, id).into_iter().filter(|(_, left)| left.is_zero()) {
            self.refuse(now, caller, refusal.clone(), effects);
        }
        self.callers_changed(now, id, effects);
        self.arm_patience(now, id);
    }

    /// Why a flight waits for the fleet: the budget, a back-off entry, or another node's attempt.
    fn why_it_waits(&self, now: Now, id: FlightId) -> Refusal {
        let limit = self.policy.clearance_within.unwrap_or_default();
        let Some(fleet) = self.flights.get(&id).and_then(|flight| flight.fleet.as_ref()) else { return Refusal::default() };
        if let Some((wait, stated_at)) = fleet.budget_wait {
            // A stated wait that is over was too short, and how much is left is unknown: the caller gets the statement itself.
            let left = (stated_at + wait).saturating_sub(now.monotonic);
            let wait = if left.is_zero() { wait } else { left };
            let cause = format!("{}: {}", Reason::ErrImagePull, kubelet_messages::no_budget(&fleet.target.view.registry, wait));
            return Refusal { class: FailureClass::RateLimited, cause, next_attempt_ms: milliseconds(wait), ..Refusal::default() };
        }
        fleet.current_refusal(now.monotonic).unwrap_or_else(|| Refusal {
            cause: format!("{}: {}", Reason::ErrImagePull, kubelet_messages::no_clearance(limit)),
            next_attempt_ms: milliseconds(limit),
            ..Refusal::default()
        })
    }

    /// Notes whether a flight waits for the fleet's budget.
    pub(in crate::core) fn wait_for_budget(&mut self, now: Now, id: FlightId, wait: Option<Duration>, effects: &mut Vec<Effect>) {
        let Some(fleet) = self.flights.get_mut(&id).and_then(|flight| flight.fleet.as_mut()) else { return };
        match wait {
            None => fleet.stop_waiting(now.monotonic),
            Some(wait) => {
                fleet.begin_waiting(now.monotonic);
                fleet.budget_wait = Some((wait, now.monotonic));
                self.refuse_for_budget(now, id, effects);
            }
        }
        self.arm_patience(now, id);
    }

    /// Refuses at once the callers that would wait for the fleet's budget for longer than the policy allows.
    pub(in crate::core) fn refuse_for_budget(&mut self, now: Now, id: FlightId, effects: &mut Vec<Effect>) {
        let fleet = self.flights.get(&id).and_then(|flight| flight.fleet.as_ref());
        let Some((wait, stated_at)) = fleet.and_then(|fleet| fleet.budget_wait) else { return };
        let wait_left = (stated_at + wait).saturating_sub(now.monotonic);
        let refusal = self.why_it_waits(now, id);
        for (caller, _) in self.patience_left(now, id).into_iter().filter(|(_, left)| *left < wait_left) {
            self.refuse(now, caller, refusal.clone(), effects);
        }
    }
}
