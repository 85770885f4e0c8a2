//! The spans of a request's steps before it has a flight, and of recording its events.
//!
//! Most requests find their image present, and most traces are not sampled. The steps of such a request are only noted; they become spans
//! if the request is slow, fails, or goes on to a back-off check. This keeps traces cheap for most pulls.

use std::time::Duration;

use contract::messages::backoff_tracker::BackoffAnswer;
use contract::{EventReason, TraceContext};
use spans::{Kind, Span};

use super::attributes;
use crate::core::{Failure, ImageFacts};

const INSPECT: &str = "image.inspect";
const CHECK: &str = "backoff-tracker.CheckBackoff";
const RECORD: &str = "event-recorder.Record";

/// The steps of one request.
#[derive(Debug)]
pub(super) struct Steps {
    /// The request's span.
    own: Span,
    ids: TraceContext,
    /// The steps that were noted; none: each step is a span from its beginning.
    noted: Option<Vec<Noted>>,
    /// The step under way.
    step: Span,
    /// The span of the event that is being recorded.
    record: Span,
}

/// A step without a span.
#[derive(Debug)]
struct Noted {
    what: What,
    /// On the monotonic clock.
    began: Duration,
    took: Option<Duration>,
}

#[derive(Debug)]
enum What {
    /// The runtime was asked whether the image is present; it is.
    Inspect,
    Record(EventReason),
}

impl Steps {
    pub(super) fn new(own: &Span, ids: TraceContext) -> Self {
        let noted = (own.is_some() && !ids.sampled).then(Vec::new);
        Self { own: own.clone(), ids, noted, step: Span::none(), record: Span::none() }
    }

    fn start(&self, name: &'static str) -> Span {
        Span::start(name, Kind::Internal, self.ids, None)
    }

    fn note(&mut self, what: What) {
        if let (Some(noted), Some(began)) = (&mut self.noted, self.own.monotonic()) {
            noted.push(Noted { what, began, took: None });
        }
    }

    fn end_noted(&mut self) {
        let now = self.own.monotonic();
        if let (Some(last), Some(now)) = (self.noted.as_mut().and_then(|noted| noted.last_mut()), now) {
            last.took.get_or_insert(now.saturating_sub(last.began));
        }
    }

    /// Turns the noted steps into spans; all later steps are spans too.
    pub(super) fn become_spans(&mut self) {
        for Noted { what, began, took } in self.noted.take().into_iter().flatten() {
            let name = if matches!(what, What::Inspect) { INSPECT } else { RECORD };
            let took = took.or_else(|| Some(self.own.monotonic()?.saturating_sub(began))).unwrap_or_default();
            let span = self.own.past(name, Kind::Internal, began, took);
            match what {
                What::Inspect => span.set(attributes::PRESENT, true),
                What::Record(reason) => attributes::describe_event(&span, reason),
            }
        }
    }

    pub(super) fn inspect(&mut self) {
        match &self.noted {
            Some(_) => self.note(What::Inspect),
            None => self.step = self.start(INSPECT),
        }
    }

    pub(super) fn inspected(&mut self, found: &Result<Option<ImageFacts>, Failure>) {
        if self.noted.is_none() {
            return attributes::describe_found(&std::mem::replace(&mut self.step, Span::none()), found);
        }
        self.end_noted();
        if !matches!(found, Ok(Some(_))) {
            let inspect = self.noted.take().into_iter().flatten().next();
            let span = inspect.and_then(|Noted { began, took, .. }| Some(self.own.past(INSPECT, Kind::Internal, began, took?)));
            let span = span.unwrap_or_else(Span::none);
            attributes::describe_found(&span, found);
        }
    }

    pub(super) fn check_backoff(&mut self) {
        self.become_spans();
        self.step = self.start(CHECK);
    }

    pub(super) fn backoff_checked(&mut self, answer: &BackoffAnswer) {
        let step = std::mem::replace(&mut self.step, Span::none());
        if let BackoffAnswer::Refused(refusal) = answer {
            attributes::describe_refusal(&step, refusal);
        }
    }

    pub(super) fn record(&mut self, reason: EventReason) {
        if self.noted.is_some() {
            return self.note(What::Record(reason));
        }
        self.record = self.start(RECORD);
        attributes::describe_event(&self.record, reason);
    }

    pub(super) fn recorded(&mut self) {
        match &self.noted {
            Some(_) => self.end_noted(),
            None => self.record = Span::none(),
        }
    }

    /// Ends the steps of an answered request. The noted steps of a quick one that found its image present are dropped.
    pub(super) fn end(mut self, is_plain: bool) {
        if !is_plain || self.own.is_slow() {
            self.become_spans();
        }
    }
}
