//! The open spans of one flight.

use contract::TraceContext;
use contract::messages::backoff_tracker::Clearance;
use contract::messages::throttler::PermitAnswer;
use spans::{Kind, Span, links};

use super::attributes;
use super::linked::Linked;
use crate::core::RequestId;

/// A flight's spans; they belong to the trace of the request that started it.
#[derive(Debug)]
pub(super) struct Flight {
    pub(super) first: Option<RequestId>,
    parent: Option<TraceContext>,
    clearance: Span,
    permit: Span,
    pub(super) attempt: Span,
    /// The question to the runtime whether the image is present.
    pub(super) look: Span,
    linked: Linked,
}

impl Flight {
    pub(super) fn new(first: Option<RequestId>, parent: Option<TraceContext>) -> Self {
        let [clearance, permit, attempt, look] = [Span::none(), Span::none(), Span::none(), Span::none()];
        Self { first, parent, clearance, permit, attempt, look, linked: Linked::default() }
    }

    fn start(&self, name: &'static str, own: Option<TraceContext>) -> Span {
        self.parent.map_or_else(Span::none, |parent| Span::start(name, Kind::Internal, parent, own))
    }

    /// Begins the span of the wait for clearance, unless it is open: a flight asks several times.
    pub(super) fn begin_clearance(&mut self) {
        if !self.clearance.is_some() {
            self.clearance = self.start("clearance.wait", None);
        }
    }

    pub(super) fn clearance_answered(&mut self, answer: Option<&Clearance>) {
        match answer {
            Some(Clearance::Waiting { held: Some(refusal) }) => {
                attributes::describe_refusal(&self.clearance, refusal);
                self.link(refusal.learned_trace, links::FAILED_ATTEMPT);
            }
            Some(Clearance::Waiting { held: None }) => {}
            Some(Clearance::Granted { for_all, released_by, .. }) => {
                self.clearance.set("fleetpull.clearance.for_all", *for_all);
                self.link(*released_by, links::RELEASED_BY);
                self.clearance = Span::none();
            }
            Some(Clearance::Refused(refusal)) => {
                attributes::describe_refusal(&self.clearance, refusal);
                self.link(refusal.learned_trace, links::FAILED_ATTEMPT);
                self.clearance = Span::none();
            }
            _ => self.clearance = Span::none(),
        }
    }

    fn link(&mut self, attempt: Option<TraceContext>, what: &'static str) {
        if let Some(attempt) = self.linked.add(attempt) {
            self.clearance.link(attempt, what);
        }
    }

    /// Begins the span of the wait for a permit, unless it is open: a queued flight asks several times.
    pub(super) fn begin_permit(&mut self, budget: Option<&str>) {
        if !self.permit.is_some() {
            self.permit = self.start("throttler.Acquire", None);
            self.permit.set_some("fleetpull.budget", budget.map(str::to_owned));
        }
    }

    pub(super) fn permitted(&mut self, answer: &PermitAnswer) {
        match answer {
            PermitAnswer::Queued { budget_wait_ms, .. } => attributes::describe_queued(&self.permit, *budget_wait_ms),
            PermitAnswer::Refused { text } => {
                self.permit.fail("refused", text);
                self.permit = Span::none();
            }
            _ => self.permit = Span::none(),
        }
    }

    pub(super) fn begin_look(&mut self, name: &'static str) {
        self.look = self.start(name, None);
    }

    pub(super) fn begin_attempt(&mut self, own: TraceContext) -> Span {
        self.attempt = self.start("attempt", Some(own));
        self.attempt.clone()
    }

    pub(super) fn end_attempt(&mut self) -> Span {
        std::mem::replace(&mut self.attempt, Span::none())
    }
}
