//! Tells the tracker what an attempt with clearance has shown: which stages have answered, or that it has failed.

use contract::Stage as RegistryStage;
use contract::messages::backoff_tracker::ResolveAttempt;

use crate::core::alarms::Alarm;
use crate::core::coordinator::Coordinator;
use crate::core::outcomes;
use crate::core::step::{Effect, Failure, FlightId};

impl Coordinator {
    /// Notes that a blob was requested and no byte of any blob has come.
    pub(in crate::core) fn blob_awaited(&mut self, id: FlightId) {
        if let Some(flight) = self.flights.get_mut(&id) {
            flight.awaits_blob = true;
        }
    }

    /// Tells the tracker once for each stage that the stage has answered, if the tracker still knows the clearance.
    pub(in crate::core) fn resolve_answered(&mut self, id: FlightId, stage: RegistryStage, effects: &mut Vec<Effect>) {
        let Some(flight) = self.flights.get_mut(&id) else { return };
        flight.awaits_blob &= stage < RegistryStage::Blob;
        let Some(fleet) = flight.fleet.as_mut().filter(|fleet| fleet.is_known && !fleet.reached.contains(&stage)) else { return };
        fleet.reached.push(stage);
        let resolve = ResolveAttempt { clearance: fleet.clearance, attempt: flight.attempt, failure: None, stage };
        effects.push(Effect::Resolve { resolve: Box::new(resolve), trace: flight.trace });
        if stage >= fleet.until {
            self.mark_resolve_sent(id);
        }
    }

    /// Tells the tracker that an attempt has failed, unless the stage that its clearance was for has answered or the tracker no longer
    /// knows the clearance.
    pub(in crate::core) fn resolve_failed(&mut self, id: FlightId, failure: &Failure, effects: &mut Vec<Effect>) {
        let Some(flight) = self.flights.get_mut(&id) else { return };
        let Some(fleet) = flight.fleet.as_mut().filter(|fleet| fleet.is_known && !fleet.resolve_sent) else { return };
        let failure = Some(outcomes::attempt_failure(flight.reference.requested(), failure));
        let resolve = ResolveAttempt { clearance: fleet.clearance, attempt: flight.attempt, failure, stage: RegistryStage::default() };
        effects.push(Effect::Resolve { resolve: Box::new(resolve), trace: flight.trace });
        self.mark_resolve_sent(id);
    }

    fn mark_resolve_sent(&mut self, id: FlightId) {
        if let Some(fleet) = self.flights.get_mut(&id).and_then(|flight| flight.fleet.as_mut()) {
            fleet.resolve_sent = true;
            fleet.answer_by = None;
        }
        self.alarms.clear(Alarm::Manifest(id));
        self.alarms.clear(Alarm::Clearance(id));
    }
}
