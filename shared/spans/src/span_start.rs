//! The beginning of a span.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use clock::Now;
use contract::TraceContext;

use crate::ended_span::{Kind, Parent};
use crate::sink::Sink;

/// The state of a span when it begins.
#[derive(Debug)]
pub(crate) struct Begun {
    pub(crate) sink: Arc<dyn Sink>,
    pub(crate) name: Cow<'static, str>,
    pub(crate) kind: Kind,
    pub(crate) ids: TraceContext,
    /// None: it is a root.
    pub(crate) parent: Option<Parent>,
    /// The request's `tracestate` header; empty: none.
    pub(crate) state: String,
    pub(crate) at: Now,
}

impl Begun {
    /// The time since it began.
    pub(crate) fn elapsed(&self) -> Duration {
        self.sink.monotonic().saturating_sub(self.at.monotonic)
    }
}
