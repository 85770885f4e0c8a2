//! The export of spans over OTLP.
//!
//! `options` reads the standard variables. [`Exporting`] keeps a bounded queue and a thread of its own with its own tokio runtime:
//! a collector that is gone, hangs or answers nonsense costs spans, which are counted, and never a pull. The SDK's batch processor
//! does not serve: it neither shows what it dropped nor exports what was not sampled and turned out to matter (`undecided`).

mod exporter;
mod ids;
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

use opentelemetry::trace::TracerProvider as _;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing::Subscriber;
use tracing_subscriber::Layer;
use tracing_subscriber::registry::LookupSpan;

use ids::MintedIds;
use queue::Queue;
use sampler::Head;
use undecided::Deciding;

/// The name of the instrumentation scope.
const SCOPE: &str = "fleetpull";

/// What a process says of itself: `service.instance.id`, `host.name` and the like.
pub type Attributes = Vec<(&'static str, String)>;

/// The export of one process. Clones share it.
#[derive(Clone, Debug)]
pub struct Exporting {
    provider: SdkTracerProvider,
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
        let sampler = Head::new(options.sampler.clone());
        let queue = Queue::start(options, resource.clone())?;
        let provider = SdkTracerProvider::builder()
            .with_resource(resource)
            .with_id_generator(MintedIds::default())
            .with_sampler(sampler)
            .with_span_processor(Deciding::new(Arc::clone(&queue), keep_slow))
            .build();
        Ok(Self { provider, queue })
    }

    /// What makes spans of `tracing`'s. To be given a filter for [`spans::TARGET`].
    #[must_use]
    pub fn layer<S: Subscriber + for<'a> LookupSpan<'a>>(&self) -> impl Layer<S> + use<S> {
        tracing_opentelemetry::layer()
            .with_tracer(self.provider.tracer(SCOPE))
            .with_location(false)
            .with_threads(false)
            .with_tracked_inactivity(false)
            .with_level(false)
            .with_target(false)
            .with_context_activation(false)
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
