//! The open spans of one request.

use std::rc::Rc;

use contract::TraceContext;
use contract::messages::backoff_tracker::Refusal;
use spans::{Kind, Span, links};

use super::attributes;
use super::standing::Standing;
use super::steps::Steps;

/// The spans of a request or of a run of a standing pull.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) own: Span,
    pub(super) ids: TraceContext,
    pub(super) steps: Steps,
    pub(super) is_run: bool,
    /// The standing pull that it is a run of.
    pub(super) standing: Option<Rc<Standing>>,
    /// The attempt that failed, until the failure's back-off entry is known.
    pub(super) failed: Span,
    linked: Vec<TraceContext>,
}

impl Request {
    pub(super) fn new(own: Span, ids: TraceContext) -> Self {
        let steps = Steps::new(&own, ids);
        Self { own, ids, steps, is_run: false, standing: None, failed: Span::none(), linked: Vec::new() }
    }

    /// `ids` are those of the standing pull and those of the run.
    pub(super) fn run(ids: Option<(TraceContext, TraceContext)>, standing: Option<Rc<Standing>>) -> Self {
        let Some((within, run)) = ids else { return Self::new(Span::none(), TraceContext { trace_id: 0, span_id: 0, sampled: false }) };
        let own = Span::start("standing-pull.run", Kind::Internal, within, Some(run));
        Self { is_run: true, standing, ..Self::new(own, run) }
    }

    /// Adds the refusal.
    pub(super) fn refused(&mut self, refusal: &Refusal) {
        attributes::describe_entry(&self.own, refusal);
        self.link(refusal.learned_trace, links::FAILED_ATTEMPT);
        if let Some(standing) = &self.standing {
            standing.refused(refusal);
        }
    }

    /// The failure of its attempt was reported; `entry` is its back-off entry.
    pub(super) fn opened(&mut self, entry: Option<&str>) {
        let failed = std::mem::replace(&mut self.failed, Span::none());
        let Some(entry) = entry else { return };
        for span in [&self.own, &failed] {
            span.set(attributes::ENTRY, entry.to_owned());
        }
        if let Some(standing) = &self.standing {
            standing.opened(entry);
        }
    }

    pub(super) fn link_to_joined(&mut self, attempt: Option<TraceContext>) {
        // If this span is exported, so is the attempt that it joined.
        let as_own = attempt.map(|attempt| TraceContext { sampled: true, ..attempt });
        self.link(as_own, links::JOINED);
    }

    /// Adds a link, once for each attempt, if the attempt is exported.
    fn link(&mut self, attempt: Option<TraceContext>, what: &'static str) {
        let Some(attempt) = attempt.filter(|attempt| attempt.sampled && !self.linked.contains(attempt)) else { return };
        self.own.link(attempt, what);
        self.linked.push(attempt);
    }
}
