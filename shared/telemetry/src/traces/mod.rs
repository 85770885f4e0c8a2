//! The export of spans over OTLP.
//!
//! `options` reads the standard variables. [`Exporting`] keeps a bounded queue and a thread of its own with its own tokio runtime:
//! a collector that is gone, hangs or answers nonsense costs spans, which are counted, and never a pull. The SDK's batch processor
//! does not serve: it neither shows what it dropped nor exports what was not sampled and turned out to matter (`undecided`). Only
//! what is exported becomes the SDK's span (`convert`).

mod convert;
mod exporter;
mod options;
mod queue;
mod resource;
mod sampler;
mod undecided;

pub use exporter::ExportError;
pub use options::{Options, Protocol, Reading};
pub use queue::Counts;

use std::sync::Arc;
use std::time::Duration;

use opentelemetry::trace::noop::NoopTracer;
use spans::ToSink;
use tracing::Subscriber;
use tracing_subscriber::Layer;
use tracing_subscriber::registry::LookupSpan;

use queue::Queue;
use undecided::Deciding;

/// What a process says of itself: `service.instance.id`, `host.name` and the like.
pub type Attributes = Vec<(&'static str, String)>;

/// The export of one process. Clones share it.
#[derive(Clone, Debug)]
pub struct Exporting {
    sink: ToSink,
    queue: Arc<Queue>,
}

impl Exporting {
    /// Begins to export. `about` is what the process says of itself, beside what the variables say; requests that take longer than
    /// `keep_slow` are exported whatever the sampler decides.
    ///
    /// # Errors
    /// The exporter cannot be made of the options.
    pub fn start(options: Options, about: Attributes, keep_slow: Duration) -> Result<Self, ExportError> {
        let resource = resource::of(&options, about);
        let sampler = options.sampler.clone();
        let queue = Queue::start(options, resource)?;
        let sink = ToSink::new(Arc::new(Deciding::new(Arc::clone(&queue), sampler, keep_slow)));
        Ok(Self { sink, queue })
    }

    /// Makes the spans of all code under its subscriber go here. What is a `tracing` span, because code runs within it, has the context
    /// of ours; to be given a filter for [`spans::TARGET`].
    #[must_use]
    pub fn layer<S: Subscriber + for<'a> LookupSpan<'a>>(&self) -> impl Layer<S> + use<S> {
        let contexts = tracing_opentelemetry::layer()
            .with_tracer(NoopTracer::new())
            .with_location(false)
            .with_threads(false)
            .with_tracked_inactivity(false)
            .with_level(false)
            .with_target(false)
            .with_context_activation(false);
        self.sink.clone().and_then(contexts)
    }

    /// Waits until what waits is exported, at most for `limit`; whether it was. Blocks.
    #[must_use]
    pub fn flush(&self, limit: Duration) -> bool {
        self.queue.flush(limit)
    }

    /// What became of spans so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.queue.counts()
    }
}
