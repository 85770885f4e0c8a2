//! The export of spans over OTLP.
//!
//! `options` reads the standard variables. [`Exporting`] has a bounded queue, and a thread with its own tokio runtime: a collector that is
//! down, hangs or gives invalid answers costs spans, which are counted, and never a pull. The SDK's batch processor is not used, because it
//! neither counts dropped spans nor exports unsampled spans that turn out to matter (`undecided`). Only an exported span is converted to
//! the SDK's (`convert`).

mod convert;
mod export_decision;
mod exporter;
mod options;
mod queue;
mod resource;
mod sampler;

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

use export_decision::Deciding;
use queue::Queue;

/// Attributes of a process: `service.instance.id`, `host.name` and others.
pub type Attributes = Vec<(&'static str, String)>;

/// The export of one process. Clones share it.
#[derive(Clone, Debug)]
pub struct Exporting {
    sink: ToSink,
    queue: Arc<Queue>,
}

impl Exporting {
    /// Begins to export. `attributes` are those of the process, in addition to those of the variables. Requests that take longer than
    /// `keep_slow` are exported whatever the sampler decides.
    ///
    /// # Errors
    /// The exporter cannot be made of the options.
    pub fn start(options: Options, attributes: Attributes, keep_slow: Duration) -> Result<Self, ExportError> {
        let resource = resource::of(&options, attributes);
        let sampler = options.sampler.clone();
        let queue = Queue::start(options, resource)?;
        let sink = ToSink::new(Arc::new(Deciding::new(Arc::clone(&queue), sampler, keep_slow)));
        Ok(Self { sink, queue })
    }

    /// A layer that exports the spans of all code under its subscriber, and gives `tracing` spans the context of ours. Add a filter for
    /// [`spans::TARGET`].
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

    /// Waits until the waiting spans are exported, at most for `limit`; returns whether they were. Blocks.
    #[must_use]
    pub fn flush(&self, limit: Duration) -> bool {
        self.queue.flush(limit)
    }

    /// The counters so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.queue.counts()
    }
}
