//! The steps of a request before it has a flight, and the recording of its events.
//!
//! Most requests find their image present, and most traces are not sampled. The steps of such a request are noted, and become spans only
//! when there is more to the request: it is slow, it fails, or it goes on to something else. This is what most pulls cost with traces.

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
    /// The request's span, and its ids.
    own: Span,
    ids: TraceContext,
    /// The steps that are no spans yet; none: each is a span from its beginning.
    noted: Option<Vec<Noted>>,
    /// What goes on before it has a flight.
    step: Span,
    /// The event that is being recorded.
    record: Span,
}

/// A step that is no span yet.
#[derive(Debug)]
struct Noted {
    what: What,
    /// On the monotonic clock.
    began: Duration,
    took: Option<Duration>,
}

#[derive(Debug)]
enum What {
    /// The runtime is asked whether the image is there, and has it.
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

    /// What was noted becomes spans, as do all steps from now on.
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
        if let BackoffAnswer::Refused(held) = answer {
            attributes::describe_held(&step, held);
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

    /// The request is answered. Without failure and in time nobody asks for its steps.
    pub(super) fn end(mut self, is_plain: bool) {
        if !is_plain || self.own.is_slow() {
            self.become_spans();
        }
    }
}
