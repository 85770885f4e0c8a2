//! Flights as they are listed.

use std::collections::BTreeSet;
use std::time::Duration;

use clock::Now;
use contract::PodRef;
use contract::messages::pull_coordinator::PODS_MOST;

use super::coordinator::Coordinator;
use super::flight::Flight;
use super::step::FlightId;

/// A flight as listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlightView {
    /// The flight.
    pub flight: FlightId,
    /// The image as its first caller wrote it.
    pub image: String,
    /// True while the runtime pulls; false while the flight waits.
    pub pulling: bool,
    /// How long it has pulled or waited.
    pub since: Duration,
    /// How many callers wait for it.
    pub callers: usize,
    /// The pods among them, each once; at most [`PODS_MOST`].
    pub pods: Vec<PodRef>,
}

impl Coordinator {
    /// All flights, in the order in which they began.
    #[must_use]
    pub fn flights(&self, now: Now) -> Vec<FlightView> {
        let view = |(id, flight): (&FlightId, &Flight)| FlightView {
            flight: *id,
            image: flight.reference.requested().to_owned(),
            pulling: flight.is_at_runtime(),
            since: now.monotonic.saturating_sub(flight.turn_since.unwrap_or(flight.queued_since).monotonic),
            callers: flight.callers.len(),
            pods: self.pods_of(flight),
        };
        self.flights.iter().map(view).collect()
    }

    fn pods_of(&self, flight: &Flight) -> Vec<PodRef> {
        let pods = flight.callers.iter().filter_map(|caller| self.requests.get(caller)?.ask.pod.as_ref());
        let pods: BTreeSet<&PodRef> = pods.collect();
        pods.into_iter().take(PODS_MOST).cloned().collect()
    }
}
