//! Ids of spans: those that were minted for a message, else random ones.

use opentelemetry::trace::{SpanId, TraceId};
use opentelemetry_sdk::trace::{IdGenerator, RandomIdGenerator};

/// Hands out the ids that wait in this thread for the span that is being started.
#[derive(Debug, Default)]
pub(crate) struct MintedIds(RandomIdGenerator);

impl IdGenerator for MintedIds {
    fn new_trace_id(&self) -> TraceId {
        let own = spans::minted().and_then(|minted| minted.own);
        own.map_or_else(|| self.0.new_trace_id(), |own| TraceId::from(own.trace_id))
    }

    fn new_span_id(&self) -> SpanId {
        let own = spans::minted().and_then(|minted| minted.own);
        own.map_or_else(|| self.0.new_span_id(), |own| SpanId::from(own.span_id))
    }
}
