//! Head sampling: decided where a request enters the process, by the sampler that is set; everything below goes by that.
//!
//! What is not sampled is recorded all the same, because only its end shows whether it must be exported.

use opentelemetry::trace::{Link, SpanContext, SpanId, SpanKind, TraceContextExt as _, TraceFlags, TraceId, TraceState};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::trace::{Sampler, SamplingDecision, SamplingResult, ShouldSample};
use spans::TraceContext;

/// The sampler that is set, asked once a request.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    set: Sampler,
}

impl Head {
    pub(crate) fn new(set: Sampler) -> Self {
        Self { set }
    }
}

impl ShouldSample for Head {
    fn should_sample(
        &self,
        parent: Option<&Context>,
        trace_id: TraceId,
        name: &str,
        kind: &SpanKind,
        attributes: &[KeyValue],
        links: &[Link],
    ) -> SamplingResult {
        let parent_span = parent.map(|parent| parent.span().span_context().clone()).filter(SpanContext::is_valid);
        let trace_state = parent_span.as_ref().map(|span| span.trace_state().clone()).unwrap_or_default();
        let entry = spans::minted().and_then(|minted| minted.decide_by);
        let is_sampled = match (entry, parent_span) {
            (None, Some(span)) => span.is_sampled(),
            (entry, _) => {
                let caller = entry.and_then(|caller| caller.0).map(remote).unwrap_or_default();
                let decided = self.set.should_sample(Some(&caller), trace_id, name, kind, attributes, links);
                decided.decision == SamplingDecision::RecordAndSample
            }
        };
        let decision = if is_sampled { SamplingDecision::RecordAndSample } else { SamplingDecision::RecordOnly };
        SamplingResult { decision, attributes: Vec::new(), trace_state }
    }
}

fn remote(caller: TraceContext) -> Context {
    let flags = if caller.sampled { TraceFlags::SAMPLED } else { TraceFlags::default() };
    let (trace_id, span_id) = (TraceId::from(caller.trace_id), SpanId::from(caller.span_id));
    Context::new().with_remote_span_context(SpanContext::new(trace_id, span_id, flags, true, TraceState::NONE))
}
