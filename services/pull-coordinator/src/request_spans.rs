//! Spans of incoming requests.

use std::sync::Arc;

use contract::messages::pull_coordinator::EnsureImage;
use contract::{Carried, Envelope, Meta, TraceContext};
use spans::{Entry, Span};

use crate::actor::PullCoordinator;
use crate::core::{FlightId, RequestId};
use crate::traces::Traces;

impl PullCoordinator {
    /// Opens the span of an incoming request.
    pub(crate) fn enter(&mut self, request: RequestId, envelope: &Envelope<EnsureImage>) -> TraceContext {
        let entry = self.entry(&envelope.meta);
        let own = entry.own;
        self.traces.as_mut().map_or(own, |traces| traces.enter(request, &envelope.body, entry))
    }

    /// Opens the span of a query.
    pub(crate) fn enter_question(&mut self, name: &'static str, meta: &Meta) -> (Span, TraceContext) {
        let entry = self.entry(meta);
        if self.traces.is_some() { Traces::enter_question(name, entry) } else { (Span::none(), entry.own) }
    }

    /// The caller of a message, and new ids for its span.
    fn entry<'a>(&self, meta: &'a Meta) -> Entry<'a> {
        let caller = meta.trace;
        let own = self.outbound.mint(caller);
        // The sampler chooses between the two; it follows the caller if the caller is part of a trace.
        let may_begin_anew = self.traces.is_some() && caller.has_span() && !caller.sampled;
        let own_root = if may_begin_anew { self.outbound.mint_root() } else { own };
        Entry { own, own_root, caller, carried: meta.carried.as_deref() }
    }

    /// What the message that started a flight carried with its trace.
    pub(crate) fn carried(&self, flight: FlightId) -> Option<Arc<Carried>> {
        let first = self.core.callers_of(flight).first()?;
        self.callers.get(first)?.carried.clone()
    }

    /// The span of the attempt under way.
    pub(crate) fn attempt_span(&self, flight: FlightId) -> tracing::Span {
        self.traces.as_ref().map_or_else(tracing::Span::none, |traces| traces.attempt(flight).as_tracing())
    }
}
