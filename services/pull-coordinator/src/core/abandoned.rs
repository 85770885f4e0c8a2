//! Ends requests that their callers abandoned.

use clock::Now;
use contract::messages::pull_coordinator::OutcomeKind;

use super::coordinator::Coordinator;
use super::request::Stage;
use super::step::{Effect, RequestId};

impl Coordinator {
    /// Ends an abandoned request, and its flight if it has no other caller. A standing pull goes on.
    pub(super) fn caller_abandoned(&mut self, now: Now, id: RequestId, effects: &mut Vec<Effect>) {
        self.standing_pulls.abandon(id);
        let Some(request) = self.requests.get(&id) else { return };
        // Nobody receives this outcome; the request stays until its events are recorded.
        let outcome = request.outcome(OutcomeKind::Failed);
        match request.stage {
            Stage::Ending { .. } => return,
            Stage::InFlight(flight) => {
                self.leave_flight(flight, id, effects);
                self.callers_changed(now, flight, effects);
            }
            Stage::Inspecting | Stage::CheckingBackoff => {}
        }
        self.end(now, id, outcome, None, effects);
    }
}
