//! The open spans of one request.

use contract::TraceContext;
use spans::{Kind, Span, links};

/// A request, or a run of a standing pull.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) own: Span,
    pub(super) ids: TraceContext,
    /// What it does before it has a flight.
    pub(super) step: Span,
    /// The event that is being recorded.
    pub(super) record: Span,
    pub(super) is_run: bool,
    linked: Vec<TraceContext>,
}

impl Request {
    pub(super) fn new(own: Span, ids: TraceContext) -> Self {
        Self { own, ids, step: Span::none(), record: Span::none(), is_run: false, linked: Vec::new() }
    }

    /// `ids` are those of the standing pull and those of the run.
    pub(super) fn run(ids: Option<(TraceContext, TraceContext)>) -> Self {
        let Some((standing, run)) = ids else { return Self::new(Span::none(), TraceContext { trace_id: 0, span_id: 0, sampled: false }) };
        let own = Span::start("standing-pull.run", Kind::Internal, standing, Some(run));
        Self { is_run: true, ..Self::new(own, run) }
    }

    pub(super) fn link_to_failed(&mut self, attempt: Option<TraceContext>) {
        self.link(attempt, links::FAILED_ATTEMPT);
    }

    pub(super) fn link_to_joined(&mut self, attempt: Option<TraceContext>) {
        // What was joined is exported if this is.
        let as_own = attempt.map(|attempt| TraceContext { sampled: true, ..attempt });
        self.link(as_own, links::JOINED);
    }

    /// Once each, and only to what is exported.
    fn link(&mut self, attempt: Option<TraceContext>, what: &'static str) {
        let Some(attempt) = attempt.filter(|attempt| attempt.sampled && !self.linked.contains(attempt)) else { return };
        self.own.link(attempt, what);
        self.linked.push(attempt);
    }
}
