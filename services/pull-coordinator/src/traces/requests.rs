//! The open spans of one request.

use contract::TraceContext;
use contract::messages::backoff_tracker::Held;
use spans::{Kind, Span, links};

use super::words;

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
    /// The standing pull that it is a run of.
    standing: Span,
    /// The attempt that failed, until it is known which entry that belongs to.
    pub(super) failed: Span,
    /// What held it last.
    held_by: Option<Held>,
    linked: Vec<TraceContext>,
}

impl Request {
    pub(super) fn new(own: Span, ids: TraceContext) -> Self {
        let [step, record, standing, failed] = [Span::none(), Span::none(), Span::none(), Span::none()];
        Self { own, ids, step, record, is_run: false, standing, failed, held_by: None, linked: Vec::new() }
    }

    /// `ids` are those of the standing pull, whose span is `span_of`, and those of the run.
    pub(super) fn run(ids: Option<(TraceContext, TraceContext)>, span_of: impl FnOnce(TraceContext) -> Span) -> Self {
        let Some((standing, run)) = ids else { return Self::new(Span::none(), TraceContext { trace_id: 0, span_id: 0, sampled: false }) };
        let own = Span::start("standing-pull.run", Kind::Internal, standing, Some(run));
        Self { is_run: true, standing: span_of(standing), ..Self::new(own, run) }
    }

    /// What holds it back.
    pub(super) fn held(&mut self, held: &Held) {
        words::describe_entry(&self.own, held);
        self.link_to_failed(held.learned_trace);
        let is_same = |before: &Held| before.entry == held.entry && before.learned_trace == held.learned_trace;
        if !self.held_by.as_ref().is_some_and(is_same) {
            self.standing.event("refused", words::of_held(held));
            self.held_by = Some(held.clone());
        }
    }

    /// Its attempt failed, and belongs to this entry.
    pub(super) fn opened(&mut self, entry: Option<&str>) {
        let failed = std::mem::replace(&mut self.failed, Span::none());
        let Some(entry) = entry else { return };
        for span in [&self.own, &failed] {
            span.set(words::ENTRY, entry.to_owned());
        }
        self.standing.event("opened", vec![words::of_entry(entry)]);
    }

    /// It may go on: it probes what held it, or that is over.
    pub(super) fn cleared(&mut self, for_all: bool, is_released: bool) {
        let Some(held) = self.held_by.take() else { return };
        let what = if is_released { "released" } else { "probed" };
        if for_all || is_released {
            self.standing.event(what, held.entry.iter().map(|entry| words::of_entry(entry)).collect());
        }
    }

    fn link_to_failed(&mut self, attempt: Option<TraceContext>) {
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
