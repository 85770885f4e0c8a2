//! Head sampling: the configured sampler decides when a request enters the process, and the decision applies to the whole request.
//!
//! Unsampled spans are recorded too, because only their end shows whether they must be exported. A request may put off its span until it is
//! clear that it may be (`spans::Entered`).

use opentelemetry::Context;
use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt as _, TraceFlags, TraceId, TraceState};
use opentelemetry_sdk::trace::{Sampler, SamplingDecision, ShouldSample as _};
use spans::{Kind, TraceContext};

use super::convert::kind_of;

/// Asks the configured sampler, once per request.
pub(crate) fn is_sampled(set: &Sampler, trace_id: u128, name: &str, kind: Kind, caller: Option<TraceContext>) -> bool {
    // Other samplers ignore it.
    let caller = caller.filter(|_| matches!(set, Sampler::ParentBased(_))).map(remote);
    let decided = set.should_sample(caller.as_ref(), TraceId::from(trace_id), name, &kind_of(kind), &[], &[]);
    decided.decision == SamplingDecision::RecordAndSample
}

fn remote(caller: TraceContext) -> Context {
    let flags = if caller.sampled { TraceFlags::SAMPLED } else { TraceFlags::default() };
    let (trace_id, span_id) = (TraceId::from(caller.trace_id), SpanId::from(caller.span_id));
    Context::new().with_remote_span_context(SpanContext::new(trace_id, span_id, flags, true, TraceState::NONE))
}
