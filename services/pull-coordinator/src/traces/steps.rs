//! The spans of a request's steps before it has a flight, and of recording its events.

use contract::messages::backoff_tracker::BackoffAnswer;
use contract::{EventReason, TraceContext};
use spans::{Kind, Span};

use super::attributes;
use super::deferred::{Noted, Step};
use crate::core::{Failure, ImageFacts};

const INSPECT: &str = "image.inspect";
const CHECK: &str = "backoff-tracker.CheckBackoff";
const RECORD: &str = "event-recorder.Record";

/// The steps of one request.
#[derive(Debug)]
pub(super) struct Steps {
    /// The ids of the request's span.
    ids: TraceContext,
    /// The step under way.
    step: Span,
    /// The span of the event that is being recorded.
    record: Span,
}

impl Steps {
    pub(super) fn new(ids: TraceContext) -> Self {
        Self { ids, step: Span::none(), record: Span::none() }
    }

    fn start(&self, name: &'static str) -> Span {
        Span::start(name, Kind::Internal, self.ids, None)
    }

    /// Turns a noted step into a span within `own`, the request's span.
    pub(super) fn add_noted(&mut self, own: &Span, Noted { step, began, took }: Noted) {
        let name = if matches!(step, Step::Inspect) { INSPECT } else { RECORD };
        let span = own.since(name, Kind::Internal, began);
        if let Some(took) = took {
            span.end_after(took);
        }
        match step {
            Step::Inspect if took.is_some() => span.set(attributes::PRESENT, true),
            Step::Inspect => self.step = span,
            Step::Record(reason) => {
                attributes::describe_event(&span, reason);
                if took.is_none() {
                    self.record = span;
                }
            }
        }
    }

    pub(super) fn inspect(&mut self) {
        self.step = self.start(INSPECT);
    }

    pub(super) fn inspected(&mut self, found: &Result<Option<ImageFacts>, Failure>) {
        attributes::describe_found(&std::mem::replace(&mut self.step, Span::none()), found);
    }

    pub(super) fn check_backoff(&mut self) {
        self.step = self.start(CHECK);
    }

    pub(super) fn backoff_checked(&mut self, answer: &BackoffAnswer) {
        let step = std::mem::replace(&mut self.step, Span::none());
        if let BackoffAnswer::Refused(refusal) = answer {
            attributes::describe_refusal(&step, refusal);
        }
    }

    pub(super) fn record(&mut self, reason: EventReason) {
        self.record = self.start(RECORD);
        attributes::describe_event(&self.record, reason);
    }

    pub(super) fn recorded(&mut self) {
        self.record = Span::none();
    }
}
