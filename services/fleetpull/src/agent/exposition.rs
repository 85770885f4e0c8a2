//! The metrics text of the agent: rendered on request, and reused for a moment by all readers.

use std::sync::Arc;
use std::time::Duration;

use actix::{ActorFutureExt as _, Handler, Message, ResponseActFuture, WrapFuture as _};
use actors::Ask;
use bytes::Bytes;
use contract::CallError;
use contract::messages::agent::{MetricsText, ReadMetrics};

use super::actor::{Agent, Gathered};
use super::readings::{OfAgent, readings};

/// How long a text is reused. Scrapers ask every few seconds, and more frequent requests would see nothing new.
const FRESH_FOR: Duration = Duration::from_secs(1);

/// The metrics text in both formats.
#[derive(Clone, Debug)]
pub(super) struct Exposition {
    /// OpenMetrics.
    pub(super) open: Bytes,
    /// Prometheus's own format.
    pub(super) plain: Bytes,
}

/// The last text, and when it was rendered on the monotonic clock.
#[derive(Debug, Default)]
pub(super) struct Kept(Option<(Duration, Arc<Exposition>)>);

/// Asks the agent of this process for its metrics.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "Result<Arc<Exposition>, CallError>")]
pub(super) struct Expose;

impl Kept {
    fn fresh(&self, now: Duration) -> Option<Arc<Exposition>> {
        let (at, kept) = self.0.as_ref()?;
        (now < *at + FRESH_FOR).then(|| Arc::clone(kept))
    }
}

impl Agent {
    /// The metrics in the OpenMetrics format.
    pub(super) fn text(&self, gathered: &Gathered) -> String {
        let agent = OfAgent { started_s: self.identity.started.wall_ms() as f64 / 1_000.0, bus_state: self.condition.bus_state() };
        let Gathered { counts, fleet } = gathered;
        self.instruments.text(readings(agent, counts, &self.counters(counts), fleet, &self.instruments))
    }

    fn keep(&mut self, gathered: &Gathered) -> Arc<Exposition> {
        let open = self.text(gathered);
        let exposition = Arc::new(Exposition { plain: metrics::plain_text(&open).into(), open: open.into() });
        self.kept = Kept(Some((self.clock.now().monotonic, Arc::clone(&exposition))));
        exposition
    }
}

impl Handler<Expose> for Agent {
    type Result = ResponseActFuture<Self, Result<Arc<Exposition>, CallError>>;

    fn handle(&mut self, _: Expose, _: &mut Self::Context) -> Self::Result {
        if let Some(kept) = self.kept.fresh(self.clock.now().monotonic) {
            return Box::pin(async { Ok(kept) }.into_actor(self));
        }
        Box::pin(self.gather_all().into_actor(self).map(|gathered, agent, _| {
            // Another request may have rendered the text while this one gathered.
            let kept = agent.kept.fresh(agent.clock.now().monotonic);
            gathered.map(|gathered| kept.unwrap_or_else(|| agent.keep(&gathered)))
        }))
    }
}

impl Handler<Ask<ReadMetrics>> for Agent {
    type Result = ResponseActFuture<Self, Result<MetricsText, CallError>>;

    fn handle(&mut self, _: Ask<ReadMetrics>, context: &mut Self::Context) -> Self::Result {
        let exposed = Handler::<Expose>::handle(self, Expose, context);
        Box::pin(
            exposed.map(|exposed, _, _| exposed.map(|exposed| MetricsText { text: String::from_utf8_lossy(&exposed.open).into_owned() })),
        )
    }
}
