//! A request that has entered this process and has no span yet.

use std::borrow::Cow;
use std::time::Duration;

use contract::{Carried, TraceContext};

use crate::ended_span::{ATTRIBUTES_OF_A_REQUEST, Kind, Parent};
use crate::links;
use crate::sink::ToSink;
use crate::span::Span;
use crate::span_start::Begun;

/// The ids of a request that enters this process.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// The ids for the span in the caller's trace.
    pub own: TraceContext,
    /// The ids for it in a new trace, used if the caller's trace is not sampled; the span then links to the caller.
    pub own_root: TraceContext,
    /// The caller's span; one without a span id is no parent.
    pub caller: TraceContext,
    /// What the request carried with its trace.
    pub carried: Option<&'a Carried>,
}

/// A request that has entered this process. Its span begins with [`Entered::begin`], which most unsampled requests need not call.
#[derive(Debug)]
pub struct Entered {
    begun: Begun,
    /// The caller of another trace to link to.
    unsampled_caller: Option<TraceContext>,
}

/// Starts the span of a request that enters this process. Returns the ids for the rest of the request; without an exporter these are
/// `entry.own`.
#[must_use]
pub fn enter(name: impl Into<Cow<'static, str>>, kind: Kind, entry: Entry<'_>) -> (Span, TraceContext) {
    let Some(entered) = Entered::new(name, kind, entry) else { return (Span::none(), entry.own) };
    let ids = entered.ids();
    (entered.begin(), ids)
}

impl Entered {
    /// Enters a request now. The sampler decides by the caller. None without an exporter.
    #[must_use]
    pub fn new(name: impl Into<Cow<'static, str>>, kind: Kind, entry: Entry<'_>) -> Option<Self> {
        let sink = ToSink::current()?;
        let name = name.into();
        let caller = Some(entry.caller).filter(TraceContext::has_span);
        let unsampled_caller = caller.filter(|caller| !caller.sampled);
        let own = if unsampled_caller.is_some() { entry.own_root } else { entry.own };
        let above = caller.filter(|caller| caller.sampled);
        let parent = above.map(|caller| Parent { span_id: caller.span_id, is_remote: true });
        let state = above.and(entry.carried).map(|carried| carried.tracestate.clone()).unwrap_or_default();
        let ids = TraceContext { sampled: sink.is_sampled(own.trace_id, &name, kind, caller), ..own };
        let at = sink.now();
        Some(Self { begun: Begun { sink, name, kind, ids, parent, state, at }, unsampled_caller })
    }

    /// The ids of the span, with the sampler's decision, for the rest of the request.
    #[must_use]
    pub fn ids(&self) -> TraceContext {
        self.begun.ids
    }

    /// Starts the span, as of when the request entered.
    #[must_use]
    pub fn begin(self) -> Span {
        let span = Span::begin(self.begun);
        if let Some(mut content) = span.content() {
            content.attributes.reserve_exact(ATTRIBUTES_OF_A_REQUEST);
        }
        if let Some(caller) = self.unsampled_caller {
            span.link(caller, links::CALLER);
        }
        span
    }

    /// The monotonic time.
    #[must_use]
    pub fn monotonic(&self) -> Duration {
        self.begun.sink.monotonic()
    }

    /// Whether it has taken so long that it is exported whatever the sampler decided.
    #[must_use]
    pub fn is_slow(&self) -> bool {
        self.begun.sink.is_slow(self.begun.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_an_exporter_there_is_no_span_and_ids_are_unchanged() {
        let own = TraceContext { trace_id: 1, span_id: 2, sampled: true };
        let (span, ids) = enter("a", Kind::Server, Entry { own, own_root: own, caller: own, carried: None });
        assert_eq!((span.is_some(), ids, span.context()), (false, own, None));
    }
}
