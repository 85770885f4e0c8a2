//! The open spans of one request.

use std::rc::Rc;

use contract::messages::backoff_tracker::{BackoffAnswer, Refusal};
use contract::messages::pull_coordinator::{OutcomeKind, PullOutcome};
use contract::{EventReason, TraceContext};
use spans::{Entered, Kind, Span, links};

use super::attributes::{self, Asked};
use super::deferred::{Deferred, Step};
use super::linked::Linked;
use super::standing::Standing;
use super::steps::Steps;
use crate::core::{Failure, ImageFacts};

/// The open spans of a request or of a run of a standing pull.
#[derive(Debug)]
pub(super) struct Request {
    /// The request, as long as it has no span.
    deferred: Option<Deferred>,
    own: Span,
    pub(super) ids: TraceContext,
    steps: Steps,
    is_run: bool,
    /// The standing pull that it is a run of.
    pub(super) standing: Option<Rc<Standing>>,
    /// The attempt that failed, until the failure's back-off entry is known.
    pub(super) failed: Span,
    linked: Linked,
}

impl Request {
    pub(super) fn new(entered: Entered, asked: Asked) -> Self {
        let ids = entered.ids();
        let mut request = Self::of_span(Span::none(), ids);
        request.deferred = Some(Deferred::new(entered, asked));
        if ids.sampled {
            request.begin();
        }
        request
    }

    /// `ids` are those of the standing pull and those of the run.
    pub(super) fn run(ids: Option<(TraceContext, TraceContext)>, standing: Option<Rc<Standing>>) -> Self {
        let Some((within, run)) = ids else {
            return Self::of_span(Span::none(), TraceContext { trace_id: 0, span_id: 0, sampled: false });
        };
        let own = Span::start("standing-pull.run", Kind::Internal, within, Some(run));
        Self { is_run: true, standing, ..Self::of_span(own, run) }
    }

    fn of_span(own: Span, ids: TraceContext) -> Self {
        let (steps, failed) = (Steps::new(ids), Span::none());
        Self { deferred: None, own, ids, steps, is_run: false, standing: None, failed, linked: Linked::default() }
    }

    /// Begins the spans of a request that had none.
    pub(super) fn begin(&mut self) {
        let Some(Deferred { entered, asked, steps }) = self.deferred.take() else { return };
        self.own = entered.begin();
        asked.describe(&self.own);
        for noted in steps {
            self.steps.add_noted(&self.own, noted);
        }
    }

    pub(super) fn inspect(&mut self) {
        match &mut self.deferred {
            Some(deferred) => deferred.begin_step(Step::Inspect),
            None => self.steps.inspect(),
        }
    }

    pub(super) fn inspected(&mut self, found: &Result<Option<ImageFacts>, Failure>) {
        match &mut self.deferred {
            Some(deferred) if matches!(found, Ok(Some(_))) => deferred.end_step(),
            _ => {
                self.begin();
                self.steps.inspected(found);
            }
        }
    }

    pub(super) fn check_backoff(&mut self) {
        self.begin();
        self.steps.check_backoff();
    }

    pub(super) fn backoff_checked(&mut self, answer: &BackoffAnswer) {
        self.steps.backoff_checked(answer);
    }

    pub(super) fn record(&mut self, reason: EventReason) {
        match &mut self.deferred {
            Some(deferred) => deferred.begin_step(Step::Record(reason)),
            None => self.steps.record(reason),
        }
    }

    pub(super) fn recorded(&mut self) {
        match &mut self.deferred {
            Some(deferred) => deferred.end_step(),
            None => self.steps.recorded(),
        }
    }

    /// Ends it with its answer. A quick unsampled one that found its image present leaves no span.
    pub(super) fn answered(mut self, outcome: &PullOutcome) {
        let is_present = outcome.outcome == OutcomeKind::Present;
        if is_present && self.deferred.as_ref().is_some_and(|deferred| !deferred.entered.is_slow()) {
            return;
        }
        self.begin();
        attributes::describe_outcome(&self.own, outcome);
    }

    /// Ends it without an answer.
    pub(super) fn ended(mut self) {
        self.begin();
        if !self.is_run {
            self.own.fail("abandoned", "abandoned by its caller");
        }
    }

    /// Adds the refusal.
    pub(super) fn refused(&mut self, refusal: &Refusal) {
        self.begin();
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
        self.begin();
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
        if let Some(attempt) = self.linked.add(attempt) {
            self.begin();
            self.own.link(attempt, what);
        }
    }
}
