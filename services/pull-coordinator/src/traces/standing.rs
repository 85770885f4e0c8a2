//! The span of one standing pull, and what befalls it run after run.

use std::cell::RefCell;

use contract::TraceContext;
use contract::messages::backoff_tracker::Refusal;
use spans::Span;

use super::attributes;

#[derive(Debug)]
pub(super) struct Standing {
    /// Within which its runs are.
    pub(super) ids: TraceContext,
    span: Span,
    holds: RefCell<Option<Holds>>,
}

/// What holds it: an entry, and the attempt that failed last for that.
#[derive(Debug, PartialEq, Eq)]
struct Holds {
    entry: Option<String>,
    failed: Option<TraceContext>,
}

impl Standing {
    pub(super) fn new(ids: TraceContext, span: Span) -> Self {
        Self { ids, span, holds: RefCell::default() }
    }

    /// It asks again and again: said once for each failure.
    pub(super) fn refused(&self, held: &Refusal) {
        let holds = Some(Holds { entry: held.entry.clone(), failed: held.learned_trace });
        if *self.holds.borrow() != holds {
            self.span.event("refused", attributes::of_held(held));
            self.holds.replace(holds);
        }
    }

    /// Its own failure belongs to this entry.
    pub(super) fn opened(&self, entry: &str) {
        self.span.event("opened", vec![attributes::of_entry(entry)]);
        self.holds.replace(Some(Holds { entry: Some(entry.to_owned()), failed: None }));
    }

    /// It may go on: it probes for all, or what held it is over.
    pub(super) fn cleared(&self, for_all: bool, is_released: bool) {
        let Some(holds) = self.holds.take() else { return };
        if for_all || is_released {
            let what = if is_released { "released" } else { "probed" };
            self.span.event(what, holds.entry.as_deref().map(attributes::of_entry).into_iter().collect());
        }
    }
}
