//! How a standing pull is told of.

use clock::Now;
use contract::WishId;
use contract::messages::backoff_tracker::Held;
use contract::messages::pull_coordinator::{OutcomeKind, PullOutcome, WishState, WishStatus};

use super::Wish;
use crate::core::coordinator::Coordinator;
use crate::core::flight::{FleetSide, FlightStage};
use crate::core::request::{Stage, milliseconds};
use crate::core::words;

impl Coordinator {
    pub(super) fn wish_status(&self, now: Now, id: WishId, wish: &Wish) -> WishStatus {
        let flight = wish.run.and_then(|run| self.requests.get(&run)).and_then(|request| match request.stage {
            Stage::Flying(flight) => self.flights.get(&flight),
            _ => None,
        });
        let held = flight.and_then(|flight| flight.fleet.as_ref()?.held_now(now.monotonic));
        let state = match flight.map(|flight| &flight.stage) {
            Some(FlightStage::Pulling | FlightStage::Verifying(_)) => WishState::Pulling,
            _ if wish.run.is_none() || held.is_some() => WishState::Held,
            _ => WishState::Waiting,
        };
        let status = WishStatus {
            wish: id,
            image: wish.ask.image.clone(),
            pod: wish.ask.pod.clone(),
            platform: wish.ask.platform.clone(),
            state,
            since_ms: now.wall_ms().saturating_sub(wish.since_ms),
            left_ms: milliseconds(wish.until.saturating_sub(now.monotonic)),
            callers: u32::try_from(self.wishes.callers.values().filter(|other| **other == id).count()).unwrap_or(u32::MAX),
            tries: wish.tries,
            cause: String::new(),
            class: None,
            next_try_ms: None,
            learned_by: None,
            learned_ms_ago: None,
            learned_trace_id: None,
        };
        match (held, &wish.last) {
            (Some(held), _) => held_by(status, held),
            (None, Some((last, ended))) => failed_with(status, last, milliseconds(now.monotonic.saturating_sub(*ended))),
            (None, None) => match flight.and_then(|flight| Some((&flight.stage, flight.fleet.as_ref()?))) {
                Some((stage, fleet)) => waiting_for(now, status, stage, fleet),
                None => status,
            },
        }
    }
}

/// A wish that waits for the fleet while nobody says what holds it.
fn waiting_for(now: Now, status: WishStatus, stage: &FlightStage, fleet: &FleetSide) -> WishStatus {
    let awaits_leave = *stage == FlightStage::AwaitingLeave;
    match (fleet.held_lately(now.monotonic), fleet.budget_wait) {
        (Some(held), _) if awaits_leave => held_by(status, held),
        (_, Some(wait)) => WishStatus { cause: words::no_budget(&fleet.target.view.registry, wait), ..status },
        _ if awaits_leave && fleet.answered => WishStatus { cause: words::NO_WORD.to_owned(), ..status },
        _ => status,
    }
}

/// A wish that the fleet knows something of.
fn held_by(status: WishStatus, held: Held) -> WishStatus {
    WishStatus {
        cause: held.cause,
        class: Some(held.class),
        next_try_ms: Some(held.next_try_ms),
        learned_by: held.learned_by.map(String::from),
        learned_ms_ago: Some(held.learned_ms_ago),
        learned_trace_id: held.learned_trace.map(|trace| trace.trace_id_hex()),
        ..status
    }
}

/// A wish whose last run ended so, that long ago.
fn failed_with(status: WishStatus, last: &PullOutcome, age_ms: u64) -> WishStatus {
    let cause = match (last.outcome, last.reason) {
        (OutcomeKind::Failed, Some(reason)) => format!("{reason}: {}", last.message),
        _ => last.message.clone(),
    };
    let resting = status.state == WishState::Held;
    WishStatus {
        cause,
        class: last.class,
        next_try_ms: last.next_try_ms.filter(|_| resting).map(|left| left.saturating_sub(age_ms)),
        learned_by: last.learned_by.clone(),
        learned_ms_ago: last.learned_ms_ago.map(|ago| ago + age_ms),
        learned_trace_id: last.learned_trace_id.clone(),
        ..status
    }
}
