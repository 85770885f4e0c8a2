//! The spans of this node's pulls, derived from the core's inputs and effects.
//!
//! The core makes the ids that messages need: one for each request and one for each attempt. All other spans are steps in between.
//! Without an exporter there is no [`Traces`].

mod attributes;
mod deferred;
mod flights;
mod linked;
mod requests;
mod standing;
mod steps;

use std::collections::BTreeMap;
use std::rc::Rc;

use contract::messages::backoff_tracker::{BackoffAnswer, Clearance, Refusal};
use contract::messages::pull_coordinator::EnsureImage;
use contract::{StandingPullId, TraceContext};
use spans::{Entered, Entry, Kind, Span};

use crate::core::{Coordinator, Effect, FlightId, Input, RequestId};
use flights::Flight;
use requests::Request;
use standing::Standing;

/// The span of a request.
const REQUEST: &str = "pull-coordinator.EnsureImage";
/// The span of a standing pull, from the first request until the image is present.
const STANDING: &str = "image.wait";

/// The open spans of one node.
#[derive(Debug)]
pub(crate) struct Traces {
    /// Boxed: the maps are empty again after most requests, and give their room back.
    requests: BTreeMap<RequestId, Box<Request>>,
    flights: BTreeMap<FlightId, Box<Flight>>,
    standing: BTreeMap<StandingPullId, Rc<Standing>>,
    /// [`Coordinator::standing_changes`] when they were last looked at.
    standing_changes: u64,
    /// The attempt that has just failed.
    failed: Span,
}

/// What an input may change without an effect that shows it.
#[derive(Debug)]
pub(crate) struct Seen {
    /// The request that may have joined a flight.
    asked: Option<RequestId>,
    /// Standing pulls were loaded from disk.
    restored: bool,
    concerns: Concerns,
}

/// The requests and flights that may end with an input.
#[derive(Debug)]
enum Concerns {
    /// A request, and a flight with its callers. Most messages concern no flight, and allocate nothing for this.
    Some { request: Option<RequestId>, flight: Option<FlightId>, callers: Vec<RequestId> },
    /// Anything.
    All,
}

impl Seen {
    fn of(input: &Input, core: &Coordinator) -> Self {
        let asked = match input {
            Input::BackoffChecked { request, .. } | Input::Inspected { request, .. } => Some(*request),
            _ => None,
        };
        let restored = matches!(input, Input::StandingPullsLoaded { .. });
        Self { asked, restored, concerns: Concerns::of(input, core) }
    }
}

impl Concerns {
    fn of(input: &Input, core: &Coordinator) -> Self {
        let (flight, request) = match input {
            Input::Asked { request, .. }
            | Input::Inspected { request, .. }
            | Input::BackoffChecked { request, .. }
            | Input::Reported { request, .. }
            | Input::Recorded { request }
            | Input::CallerAbandoned { request }
            | Input::TimeOver { request } => (core.flight_of(*request), Some(*request)),
            Input::ClearanceAnswered { flight, .. }
            | Input::Permitted { flight, .. }
            | Input::Rechecked { flight, .. }
            | Input::Resolved { flight, .. }
            | Input::Reached { flight, .. }
            | Input::BlobAwaited { flight }
            | Input::Sized { flight, .. }
            | Input::Pulled { flight, .. }
            | Input::Verified { flight, .. } => (Some(*flight), None),
            Input::StandingPullsLoaded { .. }
            | Input::StandingPullsKept { .. }
            | Input::StandingPullCancelled { .. }
            | Input::AlarmRang => return Self::All,
        };
        let callers = flight.map(|flight| core.callers_of(flight).to_vec()).unwrap_or_default();
        Self::Some { request, flight, callers }
    }
}

impl Traces {
    /// None without an exporter.
    pub(crate) fn if_enabled() -> Option<Box<Self>> {
        let none = || Self {
            requests: BTreeMap::new(),
            flights: BTreeMap::new(),
            standing: BTreeMap::new(),
            standing_changes: 0,
            failed: Span::none(),
        };
        spans::enabled().then(|| Box::new(none()))
    }

    /// Enters an incoming request; returns the ids to use for it.
    pub(crate) fn enter(&mut self, request: RequestId, ask: &EnsureImage, entry: Entry<'_>) -> TraceContext {
        let own = entry.own;
        let Some(entered) = Entered::new(REQUEST, Kind::Server, entry) else { return own };
        let ids = entered.ids();
        self.requests.insert(request, Box::new(Request::new(entered, ask.into())));
        ids
    }

    /// Opens the span of an incoming query; returns it and the ids to use for it.
    pub(crate) fn enter_question(name: &'static str, entry: Entry<'_>) -> (Span, TraceContext) {
        let (span, ids) = spans::enter(name, Kind::Server, entry);
        span.set("rpc.system.name", "nats");
        (span, ids)
    }

    /// The span of the attempt under way.
    pub(crate) fn attempt(&self, flight: FlightId) -> Span {
        self.flights.get(&flight).map_or_else(Span::none, |flight| flight.attempt.clone())
    }

    /// The failure of a request was reported; `entry` is its back-off entry.
    pub(crate) fn opened(&mut self, request: RequestId, entry: Option<String>) {
        if let Some(request) = self.requests.get_mut(&request) {
            request.opened(entry.as_deref());
        }
    }

    /// Called with each input before the core takes it.
    pub(crate) fn before(&mut self, input: &Input, core: &Coordinator) -> Seen {
        match input {
            Input::Inspected { request, found, .. } => {
                if let Some(request) = self.requests.get_mut(request) {
                    request.inspected(found);
                }
            }
            Input::BackoffChecked { request, answer } => {
                if let Some(request) = self.requests.get_mut(request) {
                    request.backoff_checked(answer);
                }
                if let BackoffAnswer::Refused(refusal) = answer {
                    self.refused(*request, refusal);
                }
            }
            Input::ClearanceAnswered { flight, answer, .. } => self.clearance(*flight, answer.as_ref(), core),
            Input::Permitted { flight, answer } => {
                if let Some(flight) = self.flights.get_mut(flight) {
                    flight.permitted(answer);
                }
            }
            Input::Rechecked { flight, found } | Input::Verified { flight, found } => {
                if let Some(flight) = self.flights.get_mut(flight) {
                    attributes::describe_found(&std::mem::replace(&mut flight.look, Span::none()), found);
                }
            }
            Input::Pulled { flight, result } => {
                if let Some(flight) = self.flights.get_mut(flight) {
                    let attempt = flight.end_attempt();
                    attributes::describe_result(&attempt, result);
                    attempt.end();
                    if result.is_err() {
                        self.failed = attempt;
                    }
                }
            }
            Input::Recorded { request } => {
                if let Some(request) = self.requests.get_mut(request) {
                    request.recorded();
                }
            }
            _ => {}
        }
        Seen::of(input, core)
    }

    /// Called with the effects of each input before the shell carries them out.
    pub(crate) fn after(&mut self, seen: Seen, effects: &[Effect], core: &Coordinator) {
        let Seen { asked, restored, concerns } = seen;
        if self.standing_changes != core.standing_changes() {
            self.standing_changes = core.standing_changes();
            self.follow_standing(core, restored);
        }
        for effect in effects {
            self.effect(effect, effects, core);
        }
        if let Some(request) = asked
            && let Some(flight) = core.flight_of(request)
        {
            self.join(request, flight);
        }
        self.failed = Span::none();
        self.forget(core, concerns);
    }

    fn effect(&mut self, effect: &Effect, all: &[Effect], core: &Coordinator) {
        match effect {
            Effect::Inspect { request, presence: true, .. } => self.request(*request, core).inspect(),
            Effect::CheckBackoff { request, .. } => self.request(*request, core).check_backoff(),
            Effect::RequestClearance { flight, .. } if core.awaits_clearance(*flight) => self.flight(*flight, core).begin_clearance(),
            Effect::AcquirePermit { flight, budget, .. } => self.flight(*flight, core).begin_permit(budget.as_deref()),
            Effect::Recheck { flight, .. } => self.flight(*flight, core).begin_look("image.inspect"),
            Effect::Verify { flight, .. } => self.flight(*flight, core).begin_look("image.verify"),
            Effect::StartPull { flight, reference, fleet_waits, trace, .. } => {
                let attempt = self.flight(*flight, core).begin_attempt(*trace);
                attributes::describe_attempt(&attempt, reference, *fleet_waits);
                for caller in core.callers_of(*flight) {
                    self.join(*caller, *flight);
                }
            }
            Effect::Cancel { flight } => {
                if let Some(flight) = self.flights.get_mut(flight) {
                    attributes::describe_cancelled(&flight.end_attempt(), all);
                }
            }
            Effect::Record { request, event } => {
                self.request(*request, core).record(event.reason);
            }
            Effect::Report { request, .. } => {
                if let Some(request) = self.requests.get_mut(request) {
                    request.failed = self.failed.clone();
                }
            }
            Effect::Answer { request, outcome } => {
                if let Some(request) = self.requests.remove(request) {
                    request.answered(outcome);
                }
            }
            _ => {}
        }
    }

    /// Adds a refusal to a request's span.
    fn refused(&mut self, request: RequestId, refusal: &Refusal) {
        if let Some(request) = self.requests.get_mut(&request) {
            request.refused(refusal);
        }
    }

    fn clearance(&mut self, id: FlightId, answer: Option<&Clearance>, core: &Coordinator) {
        let Some(flight) = self.flights.get_mut(&id) else { return };
        flight.clearance_answered(answer);
        for caller in core.callers_of(id) {
            match answer {
                Some(Clearance::Refused(refusal) | Clearance::Waiting { held: Some(refusal) }) => self.refused(*caller, refusal),
                Some(Clearance::Granted { for_all, released_by, .. }) => {
                    if let Some(standing) = self.requests.get(caller).and_then(|request| request.standing.as_ref()) {
                        standing.cleared(*for_all, released_by.is_some());
                    }
                }
                _ => {}
            }
        }
    }

    /// A request's spans. A run of a standing pull came in by no message, so its span begins here.
    fn request(&mut self, id: RequestId, core: &Coordinator) -> &mut Request {
        let standing = &self.standing;
        self.requests.entry(id).or_insert_with(|| {
            let ids = core.run_span(id);
            let standing = ids.and_then(|(within, _)| standing.values().find(|standing| standing.ids == within));
            Box::new(Request::run(ids, standing.cloned()))
        })
    }

    /// A flight's spans. They are children of its first caller's span, which begins now at the latest.
    fn flight(&mut self, id: FlightId, core: &Coordinator) -> &mut Flight {
        let requests = &mut self.requests;
        self.flights.entry(id).or_insert_with(|| {
            let first = core.callers_of(id).first().copied();
            let ids = first.and_then(|first| requests.get_mut(&first)).map(|first| {
                first.begin();
                first.ids
            });
            Box::new(Flight::new(first, ids))
        })
    }

    /// Links a caller's span to the attempt, unless the caller started the flight: then the attempt is its child.
    fn join(&mut self, request: RequestId, flight: FlightId) {
        if let (Some(flight), Some(caller)) = (self.flights.get(&flight), self.requests.get_mut(&request))
            && flight.first != Some(request)
        {
            caller.link_to_joined(flight.attempt.context());
        }
    }

    /// Ends the spans of requests and flights that are over. A request that is over without an answer was abandoned by its caller.
    fn forget(&mut self, core: &Coordinator, concerns: Concerns) {
        match concerns {
            Concerns::Some { request, flight, callers } => {
                flight.into_iter().for_each(|flight| self.forget_flight(flight, core));
                callers.into_iter().chain(request).for_each(|request| self.forget_request(request, core));
            }
            Concerns::All => {
                self.flights.retain(|flight, _| core.has_flight(*flight));
                let requests: Vec<RequestId> = self.requests.keys().copied().collect();
                requests.into_iter().for_each(|request| self.forget_request(request, core));
            }
        }
        debug_assert!(self.flights.keys().all(|flight| core.has_flight(*flight)), "what is over is forgotten");
        debug_assert!(self.requests.keys().all(|request| core.is_pending(*request)), "what is over is forgotten");
    }

    fn forget_flight(&mut self, flight: FlightId, core: &Coordinator) {
        if !core.has_flight(flight) {
            self.flights.remove(&flight);
        }
    }

    fn forget_request(&mut self, id: RequestId, core: &Coordinator) {
        if !core.is_pending(id)
            && let Some(request) = self.requests.remove(&id)
        {
            request.ended();
        }
    }

    /// Begins and ends the spans of standing pulls.
    fn follow_standing(&mut self, core: &Coordinator, restored: bool) {
        let standing: BTreeMap<StandingPullId, TraceContext> = core.standing_spans().collect();
        self.standing.retain(|id, _| standing.contains_key(id));
        for (id, ids) in standing {
            self.standing.entry(id).or_insert_with(|| {
                // A standing pull that was loaded from disk has no parent: its request ended with the earlier agent.
                let caller = TraceContext { span_id: 0, ..ids };
                let span = if restored {
                    spans::enter(STANDING, Kind::Internal, Entry { own: ids, own_root: ids, caller, carried: None }).0
                } else {
                    Span::start(STANDING, Kind::Internal, ids, None)
                };
                span.set("fleetpull.standing_pull.id", id.to_string());
                Rc::new(Standing::new(ids, span))
            });
        }
    }
}
