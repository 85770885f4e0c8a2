//! Which spans are exported.
//!
//! What was sampled is exported when it ends. What was not waits until the first span of this process for the request ends: if by
//! then something of it was marked to be kept ([`spans::marks::KEEP`]), or the request took too long, all of it is exported.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use opentelemetry::Context;
use opentelemetry::trace::{SpanContext, SpanId, TraceFlags, TraceId};
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::trace::{Span, SpanData, SpanProcessor};

use super::queue::Queue;

/// The most requests under way whose spans wait for a decision: as many as wait for their turn on a node (`pull.queue`).
const TRACES_MAX: usize = 1000;
/// The most spans of one request that wait: a pull of sixty layers has about so many.
const SPANS_MAX: usize = 128;

/// Hands on what is to be exported.
#[derive(Debug)]
pub(crate) struct Deciding {
    queue: Arc<Queue>,
    keep_slow: Duration,
    undecided: Mutex<VecDeque<Undecided>>,
}

/// What one trace waits with.
#[derive(Debug)]
struct Undecided {
    trace_id: TraceId,
    kept: bool,
    spans: Vec<SpanData>,
}

impl Deciding {
    pub(crate) fn new(queue: Arc<Queue>, keep_slow: Duration) -> Self {
        Self { queue, keep_slow, undecided: Mutex::default() }
    }

    fn decide(&self, span: SpanData, marked: bool) {
        let is_first = !span.parent_span_id_is_local();
        let took = span.end_time.duration_since(span.start_time).unwrap_or_default();
        let keep = marked || (is_first && took > self.keep_slow);
        let trace_id = span.span_context.trace_id();
        let mut undecided = self.undecided.lock().unwrap_or_else(PoisonError::into_inner);
        let place = undecided.iter().position(|one| one.trace_id == trace_id).unwrap_or_else(|| {
            if undecided.len() >= TRACES_MAX {
                undecided.pop_front();
            }
            undecided.push_back(Undecided { trace_id, kept: false, spans: Vec::new() });
            undecided.len() - 1
        });
        let Some(one) = undecided.get_mut(place) else { return };
        one.kept |= keep;
        if one.kept {
            one.spans.drain(..).chain([span]).for_each(|span| self.queue.push(as_sampled(span)));
        } else if one.spans.len() < SPANS_MAX {
            one.spans.push(span);
        }
        if is_first {
            undecided.remove(place);
        }
    }
}

impl SpanProcessor for Deciding {
    fn on_start(&self, _: &mut Span, _: &Context) {}

    fn on_end(&self, mut span: SpanData) {
        let before = span.attributes.len();
        span.attributes.retain(|attribute| attribute.key.as_str() != spans::marks::KEEP);
        if span.span_context.is_sampled() {
            return self.queue.push(span);
        }
        let marked = span.attributes.len() < before;
        self.decide(span, marked);
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.shutdown_with_timeout(Duration::from_secs(5))
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        if self.queue.flush(timeout) { Ok(()) } else { Err(OTelSdkError::Timeout(timeout)) }
    }
}

/// Where a span's parent is.
trait Parent {
    /// In this process.
    fn parent_span_id_is_local(&self) -> bool;
}

impl Parent for SpanData {
    fn parent_span_id_is_local(&self) -> bool {
        self.parent_span_id != SpanId::INVALID && !self.parent_span_is_remote
    }
}

fn as_sampled(mut span: SpanData) -> SpanData {
    let context = &span.span_context;
    let flags = context.trace_flags() | TraceFlags::SAMPLED;
    span.span_context = SpanContext::new(context.trace_id(), context.span_id(), flags, context.is_remote(), context.trace_state().clone());
    span
}
