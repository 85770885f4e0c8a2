//! Head sampling: decided where a request enters the process, by the sampler that is set; everything below goes by that.
//!
//! What is not sampled is recorded all the same, because only its end shows whether it must be exported.

use opentelemetry::Context;
use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt as _, TraceFlags, TraceId, TraceState};
use opentelemetry_sdk::trace::{Sampler, SamplingDecision, ShouldSample as _};
use spans::{Kind, TraceContext};

use super::convert::kind_of;

/// Asks the sampler that is set, once a request.
pub(crate) fn is_sampled(set: &Sampler, trace_id: u128, name: &str, kind: Kind, caller: Option<TraceContext>) -> bool {
    // The others do not look at it.
    let caller = caller.filter(|_| matches!(set, Sampler::ParentBased(_))).map(remote);
    let decided = set.should_sample(caller.as_ref(), TraceId::from(trace_id), name, &kind_of(kind), &[], &[]);
    decided.decision == SamplingDecision::RecordAndSample
}

fn remote(caller: TraceContext) -> Context {
    let flags = if caller.sampled { TraceFlags::SAMPLED } else { TraceFlags::default() };
    let (trace_id, span_id) = (TraceId::from(caller.trace_id), SpanId::from(caller.span_id));
    Context::new().with_remote_span_context(SpanContext::new(trace_id, span_id, flags, true, TraceState::NONE))
}
