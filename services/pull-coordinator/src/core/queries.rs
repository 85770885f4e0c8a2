//! Queries of requests, flights and standing pulls.

use std::time::Duration;

use contract::{StandingPullId, TraceContext};
use image::Reference;

use super::coordinator::Coordinator;
use super::flight::FlightStage;
use super::request::Stage;
use super::step::{FlightId, RequestId};

impl Coordinator {
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
        Some((self.standing_pulls.span_of_run(run)?, self.requests.get(&run)?.trace))
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
}
