//! Invariants after each step, asserted in builds with debug assertions.

use std::collections::BTreeSet;

use super::alarms::Alarm;
use super::coordinator::Coordinator;
use super::flight::FlightStage;
use super::request::Stage;

/// With more requests than this the checks are skipped, because they would make each step slow.
const CHECKED_UP_TO: usize = 64;

impl Coordinator {
    /// Requests, flights, standing pulls and alarms agree with each other.
    pub(super) fn assert_invariants(&self) {
        if !cfg!(debug_assertions) {
            return;
        }
        self.standing_pulls.assert_bounds();
        if self.requests.len() > CHECKED_UP_TO {
            return;
        }
        for (id, request) in &self.requests {
            if let Stage::InFlight(flight) = request.stage {
                let callers = self.flights.get(&flight).map(|flight| flight.callers.as_slice()).unwrap_or_default();
                debug_assert_eq!(callers.iter().filter(|caller| *caller == id).count(), 1, "{id:?} is a caller of {flight:?} once");
            }
            debug_assert!(request.recording || request.events.is_empty(), "events of {id:?} wait for one that is being recorded");
        }
        debug_assert_eq!(self.flights_of.values().map(BTreeSet::len).sum::<usize>(), self.flights.len(), "each flight is found by its key");
        for (id, flight) in &self.flights {
            debug_assert!(self.flights_of.get(&flight.key).is_some_and(|same| same.contains(id)), "{id:?} is found by its key");
            debug_assert!(id.0 <= self.last_flight, "{id:?} was numbered");
            debug_assert!(!flight.callers.is_empty(), "{id:?} has a caller");
            let on_it = |caller| self.requests.get(caller).is_some_and(|request| request.stage == Stage::InFlight(*id));
            debug_assert!(flight.callers.iter().all(on_it), "callers of {id:?} wait for it");
            debug_assert!(
                flight.fleet.is_some() || flight.stage != FlightStage::AwaitingClearance,
                "{id:?} waits for clearance without a fleet"
            );
            let has_turn = flight.turn_since.is_some() || matches!(flight.stage, FlightStage::AwaitingClearance | FlightStage::Queued);
            debug_assert!(has_turn, "{id:?} is {:?} without a turn", flight.stage);
        }
        for alarm in self.alarms.all() {
            let is_of_something = match alarm {
                Alarm::Patience(flight) | Alarm::Manifest(flight) | Alarm::Clearance(flight) => self.flights.contains_key(flight),
                Alarm::StandingPull(standing_pull) => self.standing_pulls.stands(*standing_pull),
                Alarm::StandingPullFile => self.writing_of_standing_pulls().is_none(),
            };
            debug_assert!(is_of_something, "{alarm:?} is of something that is over");
        }
    }
}
