//! The receiver of ended spans.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use clock::Now;
use contract::TraceContext;
use tracing::Subscriber;
use tracing_subscriber::Layer;

use crate::ended_span::{Ended, Kind};

/// Receives the spans of a process.
pub trait Sink: fmt::Debug + Send + Sync {
    /// The present time.
    fn now(&self) -> Now;

    /// [`Now::monotonic`] alone.
    fn monotonic(&self) -> Duration;

    /// Whether the sampler exports a request that enters this process as this span.
    fn is_sampled(&self, trace_id: u128, name: &str, kind: Kind, caller: Option<TraceContext>) -> bool;

    /// Whether a span is exported because it took this long.
    fn is_slow(&self, took: Duration) -> bool;

    /// An unsampled span begins. `is_first`: it is the request's first span in this process.
    fn began_unsampled(&self, trace_id: u128, is_first: bool);

    /// A span has ended.
    fn ended(&self, span: Box<Ended>);
}

/// A layer of a subscriber that gives spans their sink.
#[derive(Clone, Debug)]
pub struct ToSink(Arc<dyn Sink>);

impl ToSink {
    /// A layer that sends all spans under its subscriber to `sink`.
    #[must_use]
    pub fn new(sink: Arc<dyn Sink>) -> Self {
        Self(sink)
    }

    /// The sink of this thread's subscriber.
    pub(crate) fn current() -> Option<Arc<dyn Sink>> {
        tracing::dispatcher::get_default(|dispatch| dispatch.downcast_ref::<Self>().map(|to| Arc::clone(&to.0)))
    }

    pub(crate) fn is_there() -> bool {
        tracing::dispatcher::get_default(|dispatch| dispatch.is::<Self>())
    }
}

impl<S: Subscriber> Layer<S> for ToSink {}
