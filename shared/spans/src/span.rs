//! One span.

use std::borrow::Cow;
use std::str::FromStr as _;

use contract::{Carried, TraceContext};
use opentelemetry::trace::{SpanContext, SpanId, Status, TraceContextExt as _, TraceFlags, TraceId, TraceState};
use opentelemetry::{Context, KeyValue, Value};
use tracing::Level;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

use crate::minted::{Caller, Minted, with};
use crate::{TARGET, links, marks};

/// The longest description of a failure, in bytes: collectors cut longer ones, or refuse the whole batch.
const DESCRIPTION_MAX_BYTES: usize = 1024;

/// What the span is to its parent, as OpenTelemetry counts kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A step within this process.
    Internal,
    /// Answers a request of another process.
    Server,
    /// Asks another process.
    Client,
    /// Hands a message on.
    Producer,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Internal => "internal",
            Self::Server => "server",
            Self::Client => "client",
            Self::Producer => "producer",
        }
    }
}

/// A span that is exported when the last of its clones is dropped.
#[derive(Clone, Debug)]
pub struct Span(tracing::Span);

/// Where a request enters this process.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// The ids for the span, minted in the caller's trace.
    pub own: TraceContext,
    /// The ids for it if the caller's trace is not sampled: a trace of this process, which links to the caller.
    pub own_root: TraceContext,
    /// The caller's span; one without a span id is no parent.
    pub caller: TraceContext,
    /// What came along with it.
    pub carried: Option<&'a Carried>,
}

/// Whether spans are made at all.
#[must_use]
pub fn enabled() -> bool {
    tracing::span_enabled!(target: TARGET, Level::INFO)
}

impl Span {
    /// No span: what is said of it goes nowhere.
    #[must_use]
    pub fn none() -> Self {
        Self(tracing::Span::none())
    }

    /// A span within `parent`. `own` are its ids if they are known to others already; else they are chosen here.
    #[must_use]
    pub fn start(name: &str, kind: Kind, parent: TraceContext, own: Option<TraceContext>) -> Self {
        if !enabled() {
            return Self::none();
        }
        Self::begin(name, kind, Some(span_context(parent, false, None)), Minted { own, decide_by: None })
    }

    /// The first span of this process for a request. The sampler decides by the caller; the ids that are then in force, with its
    /// decision, are returned for all that belongs to the request. Without an exporter they are `entry.own`.
    #[must_use]
    pub fn enter(name: &str, kind: Kind, entry: Entry<'_>) -> (Self, TraceContext) {
        if !enabled() {
            return (Self::none(), entry.own);
        }
        let caller = Some(entry.caller).filter(TraceContext::has_span);
        let unsampled = caller.filter(|caller| !caller.sampled);
        let own = if unsampled.is_some() { entry.own_root } else { entry.own };
        let parent = caller.filter(|caller| caller.sampled).map(|caller| span_context(caller, true, entry.carried));
        let span = Self::begin(name, kind, parent, Minted { own: Some(own), decide_by: Some(Caller(caller)) });
        if let Some(caller) = unsampled {
            span.link(caller, links::CALLER);
        }
        let sampled = span.0.context().span().span_context().is_sampled();
        (span, TraceContext { sampled, ..own })
    }

    fn begin(name: &str, kind: Kind, parent: Option<SpanContext>, minted: Minted) -> Self {
        with(minted, || {
            let span = tracing::info_span!(target: TARGET, parent: None, "span", otel.name = name, otel.kind = kind.name());
            if let Some(parent) = parent.filter(SpanContext::is_valid) {
                // It cannot have been started before, and if it is disabled there is nothing to do.
                let _ = span.set_parent(Context::new().with_remote_span_context(parent));
            }
            // Starts it, so that the ids are taken now.
            drop(span.context());
            Self(span)
        })
    }

    /// False if it is exported nowhere. To be asked before an attribute is formatted.
    #[must_use]
    pub fn is_some(&self) -> bool {
        !self.0.is_disabled()
    }

    /// Sets an attribute.
    pub fn set(&self, key: &'static str, value: impl Into<Value>) {
        if self.is_some() {
            self.0.set_attribute(key, value);
        }
    }

    /// Sets an attribute if there is a value.
    pub fn set_some(&self, key: &'static str, value: Option<impl Into<Value>>) {
        if let Some(value) = value {
            self.set(key, value);
        }
    }

    /// Links to a span, unless that one was never exported. `what` is one of [`links`].
    pub fn link(&self, to: TraceContext, what: &'static str) {
        if self.is_some() && to.has_span() {
            self.0.add_link_with_attributes(span_context(to, true, None), vec![KeyValue::new("fleetpull.link", what)]);
        }
    }

    /// Says that something happened now.
    pub fn event(&self, name: &'static str, attributes: Vec<KeyValue>) {
        if self.is_some() {
            self.0.add_event(name, attributes);
        }
    }

    /// Says that it failed. `error_type` is low in cardinality; `description` is for people.
    pub fn fail(&self, error_type: impl Into<Cow<'static, str>>, description: &str) {
        if self.is_some() {
            self.set("error.type", error_type.into());
            self.0.set_status(Status::error(beginning(description).to_owned()));
        }
    }

    /// Exports its trace, as far as this process has it, whatever the sampler decided.
    pub fn keep(&self) {
        self.set(marks::KEEP, true);
    }

    /// Its ids, for what goes out from it; none without an exporter.
    #[must_use]
    pub fn context(&self) -> Option<TraceContext> {
        if !self.is_some() {
            return None;
        }
        let context = self.0.context();
        let span = context.span();
        let ids = span.span_context();
        let whole = TraceContext {
            trace_id: u128::from_be_bytes(ids.trace_id().to_bytes()),
            span_id: u64::from_be_bytes(ids.span_id().to_bytes()),
            sampled: ids.is_sampled(),
        };
        Some(whole).filter(TraceContext::has_span)
    }

    /// The span within which the caller runs ([`Span::as_tracing`]); none if it runs within none of ours.
    #[must_use]
    pub fn current() -> Self {
        let current = tracing::Span::current();
        let is_ours = current.metadata().is_some_and(|metadata| metadata.target() == TARGET);
        if is_ours { Self(current) } else { Self::none() }
    }

    /// For futures whose log lines are to carry its ids.
    #[must_use]
    pub fn as_tracing(&self) -> &tracing::Span {
        &self.0
    }
}

fn span_context(trace: TraceContext, is_remote: bool, carried: Option<&Carried>) -> SpanContext {
    let flags = if trace.sampled { TraceFlags::SAMPLED } else { TraceFlags::default() };
    let state = carried.and_then(|carried| TraceState::from_str(&carried.tracestate).ok()).unwrap_or_default();
    SpanContext::new(TraceId::from(trace.trace_id), SpanId::from(trace.span_id), flags, is_remote, state)
}

fn beginning(text: &str) -> &str {
    let end = (0..=text.len().min(DESCRIPTION_MAX_BYTES)).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_an_exporter_there_is_no_span_and_ids_stay_as_they_were_minted() {
        let own = TraceContext { trace_id: 1, span_id: 2, sampled: true };
        let (span, ids) = Span::enter("a", Kind::Server, Entry { own, own_root: own, caller: own, carried: None });
        assert_eq!((span.is_some(), ids, span.context()), (false, own, None));
        span.fail("x", "y");
    }

    #[test]
    fn a_description_is_cut_between_characters() {
        assert_eq!(beginning("ab"), "ab");
        assert_eq!(beginning(&"é".repeat(600)).len(), DESCRIPTION_MAX_BYTES);
        assert_eq!(beginning(&format!("a{}", "é".repeat(600))).len(), DESCRIPTION_MAX_BYTES - 1);
    }
}
