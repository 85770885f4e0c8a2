//! Requests whose caller has gone.

use clock::Now;
use contract::messages::pull_coordinator::OutcomeKind;

use super::coordinator::Coordinator;
use super::request::Stage;
use super::step::{Effect, RequestId};

impl Coordinator {
    /// What an abandoned request has begun ends with it, unless somebody else wants that. A standing pull goes on.
    pub(super) fn caller_gone(&mut self, now: Now, id: RequestId, effects: &mut Vec<Effect>) {
        self.standing_pulls.abandon(id);
        let Some(request) = self.requests.get(&id) else { return };
        // Nobody reads it; the request lives until its events are recorded.
        let outcome = request.outcome(OutcomeKind::Failed);
        match request.stage {
            Stage::Ending { .. } => return,
            Stage::Flying(flight) => {
                self.leave_flight(flight, id, effects);
                self.callers_changed(now, flight, effects);
            }
            Stage::Inspecting | Stage::LookingAround | Stage::CheckingBackoff => {}
        }
        self.end(now, id, outcome, None, effects);
    }
}
