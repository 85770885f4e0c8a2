//! The span of one standing pull, with an event for each change of what it waits for.

use std::cell::RefCell;

use contract::TraceContext;
use contract::messages::backoff_tracker::Refusal;
use spans::Span;

use super::attributes;

#[derive(Debug)]
pub(super) struct Standing {
    /// The parent of its runs' spans.
    pub(super) ids: TraceContext,
    span: Span,
    waits_for: RefCell<Option<WaitsFor>>,
}

/// What the standing pull waits for: a back-off entry, and the last attempt that failed for it.
#[derive(Debug, PartialEq, Eq)]
struct WaitsFor {
    entry: Option<String>,
    failed: Option<TraceContext>,
}

impl Standing {
    pub(super) fn new(ids: TraceContext, span: Span) -> Self {
        Self { ids, span, waits_for: RefCell::default() }
    }

    /// Adds an event, once for each failure although clearance is requested several times.
    pub(super) fn refused(&self, refusal: &Refusal) {
        let waits_for = Some(WaitsFor { entry: refusal.entry.clone(), failed: refusal.learned_trace });
        if *self.waits_for.borrow() != waits_for {
            self.span.event("refused", attributes::refusal_attributes(refusal));
            self.waits_for.replace(waits_for);
        }
    }

    /// Adds an event when the standing pull's own attempt has failed and belongs to this entry.
    pub(super) fn opened(&self, entry: &str) {
        self.span.event("opened", vec![attributes::entry_attribute(entry)]);
        self.waits_for.replace(Some(WaitsFor { entry: Some(entry.to_owned()), failed: None }));
    }

    /// Adds an event when clearance is given: as prober, or because the entry closed.
    pub(super) fn cleared(&self, for_all: bool, is_released: bool) {
        let Some(waits_for) = self.waits_for.take() else { return };
        if for_all || is_released {
            let what = if is_released { "released" } else { "probed" };
            self.span.event(what, waits_for.entry.as_deref().map(attributes::entry_attribute).into_iter().collect());
        }
    }
}
