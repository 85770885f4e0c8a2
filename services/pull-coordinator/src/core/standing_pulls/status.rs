//! The status of a standing pull, as listed.

use clock::Now;
use contract::StandingPullId;
use contract::messages::backoff_tracker::Refusal;
use contract::messages::pull_coordinator::{OutcomeKind, PullOutcome, StandingPullState, StandingPullStatus};

use super::StandingPull;
use crate::core::coordinator::Coordinator;
use crate::core::flight::{FleetState, Flight, FlightStage};
use crate::core::kubelet_messages;
use crate::core::outcomes;
use crate::core::request::{Stage, milliseconds};

impl Coordinator {
    /// How many standing pulls have no flight, because they wait for their next attempt.
    #[must_use]
    pub fn resting_count(&self) -> usize {
        self.standing_pulls.standing.values().filter(|standing_pull| self.joined_flight(standing_pull).is_none()).count()
    }

    /// The flight that the standing pull has joined. None between two attempts.
    fn joined_flight(&self, standing_pull: &StandingPull) -> Option<&Flight> {
        match self.requests.get(&standing_pull.run?)?.stage {
            Stage::InFlight(flight) => self.flights.get(&flight),
            _ => None,
        }
    }

    pub(super) fn standing_pull_status(&self, now: Now, id: StandingPullId, standing_pull: &StandingPull) -> StandingPullStatus {
        let flight = self.joined_flight(standing_pull);
        let refusal = flight.and_then(|flight| flight.fleet.as_ref()?.current_refusal(now.monotonic));
        let state = match flight.map(|flight| &flight.stage) {
            Some(FlightStage::Pulling | FlightStage::Verifying(_)) => StandingPullState::Pulling,
            _ if standing_pull.run.is_none() || refusal.is_some() => StandingPullState::Held,
            _ => StandingPullState::Waiting,
        };
        let status = StandingPullStatus {
            standing_pull: id,
            image: standing_pull.ask.image.clone(),
            pod: standing_pull.ask.pod.clone(),
            platform: standing_pull.ask.platform.clone(),
            state,
            since_ms: milliseconds(standing_pull.age(now)),
            left_ms: milliseconds(standing_pull.left(now)),
            callers: u32::try_from(self.standing_pulls.callers.values().filter(|(other, _)| *other == id).count()).unwrap_or(u32::MAX),
            attempts: standing_pull.attempts,
            cause: String::new(),
            class: None,
            next_attempt_ms: None,
            learned_by: None,
            learned_ms_ago: None,
            learned_trace_id: None,
        };
        match (refusal, &standing_pull.last) {
            (Some(refusal), _) => with_refusal(status, refusal),
            (None, Some((last, ended))) => with_last_outcome(status, last, milliseconds(now.monotonic.saturating_sub(*ended))),
            (None, None) => match flight.and_then(|flight| Some((&flight.stage, flight.fleet.as_ref()?))) {
                Some((stage, fleet)) => with_wait_cause(now, status, stage, fleet),
                None => status,
            },
        }
    }
}

/// The status of a standing pull that waits for the fleet while the tracker names no reason.
fn with_wait_cause(now: Now, status: StandingPullStatus, stage: &FlightStage, fleet: &FleetState) -> StandingPullStatus {
    let awaits_clearance = *stage == FlightStage::AwaitingClearance;
    match (fleet.previous_refusal(now.monotonic), fleet.budget_wait) {
        (Some(refusal), _) if awaits_clearance => with_refusal(status, refusal),
        (_, Some((wait, _))) => StandingPullStatus { cause: kubelet_messages::no_budget(&fleet.target.view.registry, wait), ..status },
        _ if awaits_clearance && fleet.answered => StandingPullStatus { cause: kubelet_messages::CLEARANCE_UNDECIDED.to_owned(), ..status },
        _ => status,
    }
}

/// The status of a standing pull for which clearance is withheld.
fn with_refusal(status: StandingPullStatus, refusal: Refusal) -> StandingPullStatus {
    let learned_ms_ago = outcomes::is_of_an_attempt(&refusal).then_some(refusal.learned_ms_ago);
    StandingPullStatus {
        cause: refusal.cause,
        class: Some(refusal.class),
        next_attempt_ms: Some(refusal.next_attempt_ms),
        learned_by: refusal.learned_by.map(String::from),
        learned_ms_ago,
        learned_trace_id: refusal.learned_trace.map(|trace| trace.trace_id_hex()),
        ..status
    }
}

/// The status of a standing pull whose last run ended `age_ms` ago.
fn with_last_outcome(status: StandingPullStatus, last: &PullOutcome, age_ms: u64) -> StandingPullStatus {
    let cause = match (last.outcome, last.reason) {
        (OutcomeKind::Failed, Some(reason)) => format!("{reason}: {}", last.message),
        _ => last.message.clone(),
    };
    let resting = status.state == StandingPullState::Held;
    StandingPullStatus {
        cause,
        class: last.class,
        next_attempt_ms: last.next_attempt_ms.filter(|_| resting).map(|left| left.saturating_sub(age_ms)),
        learned_by: last.learned_by.clone(),
        learned_ms_ago: last.learned_ms_ago.map(|ago| ago.saturating_add(age_ms)),
        learned_trace_id: last.learned_trace_id.clone(),
        ..status
    }
}
