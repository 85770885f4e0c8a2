//! One span.

use std::borrow::Cow;
use std::cell::RefCell;
use std::str::FromStr as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use clock::{Now, Random};
use contract::TraceContext;
use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt as _, TraceFlags, TraceId, TraceState};
use opentelemetry::{Context, KeyValue, Value};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

use crate::TARGET;
use crate::ended_span::{Content, Ended, Kind, Late, Link, Parent};
use crate::sink::ToSink;
use crate::span_start::Begun;

/// The longest description of a failure, in bytes; collectors cut longer ones or refuse the whole batch.
const DESCRIPTION_MAX_BYTES: usize = 1024;

thread_local! {
    /// The source of ids that are not made before the span.
    static RANDOM: RefCell<Random> = RefCell::new(Random::from_system());
}

/// A span that ends when the last of its clones is dropped.
#[derive(Clone, Debug)]
pub struct Span(Option<Arc<Open>>);

#[derive(Debug)]
struct Open {
    begun: Begun,
    content: Mutex<Content>,
}

/// Whether spans are made.
#[must_use]
pub fn enabled() -> bool {
    ToSink::is_there()
}

impl Span {
    /// No span; every call on it does nothing.
    #[must_use]
    pub fn none() -> Self {
        Self(None)
    }

    /// Starts a span within `parent`. `own` are its ids if they were made before; otherwise they are made here.
    #[must_use]
    pub fn start(name: impl Into<Cow<'static, str>>, kind: Kind, parent: TraceContext, own: Option<TraceContext>) -> Self {
        let Some(sink) = ToSink::current() else { return Self::none() };
        let own = own.unwrap_or_else(|| RANDOM.with_borrow_mut(|random| parent.child(random)));
        let (name, at, state) = (name.into(), sink.now(), String::new());
        if !parent.has_span() {
            let own = if own.has_span() { own } else { RANDOM.with_borrow_mut(TraceContext::root) };
            let ids = TraceContext { sampled: sink.is_sampled(own.trace_id, &name, kind, None), ..own };
            return Self::begin(Begun { sink, name, kind, ids, parent: None, state, at });
        }
        let ids = TraceContext { trace_id: parent.trace_id, sampled: parent.sampled, ..own };
        let parent = Some(Parent { span_id: parent.span_id, is_remote: false });
        Self::begin(Begun { sink, name, kind, ids, parent, state, at })
    }

    /// Starts an exported root for work that outlives the span `to`, and links to it.
    #[must_use]
    pub fn linked_root(name: &'static str, kind: Kind, to: TraceContext, what: &'static str) -> Self {
        let Some(sink) = ToSink::current() else { return Self::none() };
        let (ids, at) = (RANDOM.with_borrow_mut(TraceContext::root), sink.now());
        let span = Self::begin(Begun { sink, name: name.into(), kind, ids, parent: None, state: String::new(), at });
        span.link(to, what);
        span
    }

    pub(crate) fn begin(begun: Begun) -> Self {
        if !begun.ids.sampled {
            begun.sink.began_unsampled(begun.ids.trace_id, begun.parent.is_none_or(|parent| parent.is_remote));
        }
        Self(Some(Arc::new(Open { begun, content: Mutex::default() })))
    }

    /// False for [`Span::none`]. Ask before formatting an attribute.
    #[must_use]
    pub fn is_some(&self) -> bool {
        self.0.is_some()
    }

    pub(crate) fn content(&self) -> Option<MutexGuard<'_, Content>> {
        Some(self.0.as_ref()?.content())
    }

    /// Sets an attribute.
    pub fn set(&self, key: &'static str, value: impl Into<Value>) {
        if let Some(mut content) = self.content() {
            content.set(key, value.into());
        }
    }

    /// Sets attributes that are made only if the span is exported, which most are not. Attributes of [`Self::set`] win. A second call
    /// replaces the first.
    pub fn set_if_exported(&self, make: impl FnOnce() -> Vec<KeyValue> + Send + 'static) {
        if let Some(mut content) = self.content() {
            content.late = Some(Late(Box::new(make)));
        }
    }

    /// Sets an attribute if there is a value.
    pub fn set_some(&self, key: &'static str, value: Option<impl Into<Value>>) {
        if let Some(value) = value {
            self.set(key, value);
        }
    }

    /// Links to a span, if that one is exported. `what` is one of [`links`](crate::links).
    pub fn link(&self, to: TraceContext, what: &'static str) {
        if let Some(mut content) = self.content()
            && to.has_span()
        {
            content.link(Link { to, what });
        }
    }

    /// Adds an event.
    pub fn event(&self, name: &'static str, attributes: Vec<KeyValue>) {
        if let Some(open) = &self.0 {
            open.content().add_event(open.begun.at.wall + open.begun.elapsed(), name, attributes);
        }
    }

    /// Marks the span as failed. `error_type` has low cardinality; `description` is for people.
    pub fn fail(&self, error_type: impl Into<Cow<'static, str>>, description: &str) {
        if let Some(mut content) = self.content() {
            content.set("error.type", error_type.into().into());
            content.failed = Some(beginning(description).to_owned());
        }
    }

    /// Ends the span's time now. Attributes may still be set until its last clone is dropped.
    pub fn end(&self) {
        if let Some(open) = &self.0 {
            let took = open.begun.elapsed();
            open.content().took.get_or_insert(took);
        }
    }

    /// Exports this process's part of the trace, whatever the sampler decided.
    pub fn keep(&self) {
        if let Some(mut content) = self.content() {
            content.keep = true;
        }
    }

    /// A child that began at `began` on the monotonic clock.
    #[must_use]
    pub fn since(&self, name: &'static str, kind: Kind, began: Duration) -> Self {
        let Some(open) = &self.0 else { return Self::none() };
        let own = &open.begun;
        let ids = RANDOM.with_borrow_mut(|random| own.ids.child(random));
        let at = Now { monotonic: began, wall: own.at.wall + began.saturating_sub(own.at.monotonic) };
        let parent = Some(Parent { span_id: own.ids.span_id, is_remote: false });
        Self::begin(Begun { sink: Arc::clone(&own.sink), name: name.into(), kind, ids, parent, state: String::new(), at })
    }

    /// Sets how long it took, if it has not ended.
    pub fn end_after(&self, took: Duration) {
        if let Some(mut content) = self.content() {
            content.took.get_or_insert(took);
        }
    }

    /// Its ids, for messages; none without an exporter.
    #[must_use]
    pub fn context(&self) -> Option<TraceContext> {
        self.0.as_ref().map(|open| open.begun.ids)
    }

    /// The span in which the calling code runs ([`Span::as_tracing`]); none if there is none.
    #[must_use]
    pub fn current() -> Self {
        let current = tracing::Span::current();
        let is_ours = current.metadata().is_some_and(|metadata| metadata.target() == TARGET);
        if is_ours { current.context().get::<Self>().cloned().unwrap_or_else(Self::none) } else { Self::none() }
    }

    /// A `tracing` span for futures that run within it: their log lines carry its ids, and it does not end before them.
    #[must_use]
    pub fn as_tracing(&self) -> tracing::Span {
        let Some(open) = &self.0 else { return tracing::Span::none() };
        let span = tracing::info_span!(target: TARGET, parent: None, "span", otel.name = &*open.begun.name);
        // Fails only if the span has begun, which it has not, or if the log has no spans.
        let _ = span.set_parent(Context::new().with_remote_span_context(open.context()).with_value(self.clone()));
        span
    }
}

impl Open {
    fn content(&self) -> MutexGuard<'_, Content> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn context(&self) -> SpanContext {
        let Begun { ids, state, .. } = &self.begun;
        let flags = if ids.sampled { TraceFlags::SAMPLED } else { TraceFlags::default() };
        let state = TraceState::from_str(state).unwrap_or_default();
        SpanContext::new(TraceId::from(ids.trace_id), SpanId::from(ids.span_id), flags, false, state)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let content = std::mem::take(self.content.get_mut().unwrap_or_else(PoisonError::into_inner));
        let took = content.took.unwrap_or_else(|| self.begun.elapsed());
        let Begun { sink, name, kind, ids, parent, state, at } = &mut self.begun;
        let (name, state) = (std::mem::take(name), std::mem::take(state));
        sink.ended(Box::new(Ended { name, kind: *kind, ids: *ids, parent: *parent, state, began: at.wall, took, content }));
    }
}

fn beginning(text: &str) -> &str {
    let end = (0..=text.len().min(DESCRIPTION_MAX_BYTES)).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_an_exporter_there_is_no_span() {
        let span = Span::start("a", Kind::Internal, TraceContext { trace_id: 1, span_id: 2, sampled: true }, None);
        assert_eq!((span.is_some(), span.context()), (false, None));
        span.fail("x", "y");
    }

    #[test]
    fn description_is_cut_between_characters() {
        assert_eq!(beginning("ab"), "ab");
        assert_eq!(beginning(&"é".repeat(600)).len(), DESCRIPTION_MAX_BYTES);
        assert_eq!(beginning(&format!("a{}", "é".repeat(600))).len(), DESCRIPTION_MAX_BYTES - 1);
    }
}
