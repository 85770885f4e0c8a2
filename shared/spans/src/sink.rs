//! Where spans go.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use clock::Now;
use contract::TraceContext;
use tracing::Subscriber;
use tracing_subscriber::Layer;

use crate::ended::{Ended, Kind};

/// Takes the spans of a process.
pub trait Sink: fmt::Debug + Send + Sync {
    /// What time it is.
    fn now(&self) -> Now;

    /// [`Now::monotonic`] alone.
    fn monotonic(&self) -> Duration;

    /// Whether a request that enters this process as this span is exported whatever becomes of it.
    fn is_sampled(&self, trace_id: u128, name: &str, kind: Kind, caller: Option<TraceContext>) -> bool;

    /// Whether a span that took so long is exported, whatever the sampler decided.
    fn is_slow(&self, took: Duration) -> bool;

    /// A span begins that is not sampled. `is_first`: with it the request enters this process.
    fn began_unsampled(&self, trace_id: u128, is_first: bool);

    /// A span has ended.
    fn ended(&self, span: Box<Ended>);
}

/// The part of a subscriber by which spans find their sink.
#[derive(Clone, Debug)]
pub struct ToSink(Arc<dyn Sink>);

impl ToSink {
    /// All spans that begin under a subscriber with this layer go to `sink`.
    #[must_use]
    pub fn new(sink: Arc<dyn Sink>) -> Self {
        Self(sink)
    }

    /// The sink of the subscriber that is in force on this thread.
    pub(crate) fn current() -> Option<Arc<dyn Sink>> {
        tracing::dispatcher::get_default(|dispatch| dispatch.downcast_ref::<Self>().map(|to| Arc::clone(&to.0)))
    }

    pub(crate) fn is_there() -> bool {
        tracing::dispatcher::get_default(|dispatch| dispatch.is::<Self>())
    }
}

impl<S: Subscriber> Layer<S> for ToSink {}
