//! Receives the spans of a test: a receiver in this process, or a real Jaeger.

mod jaeger;

use std::collections::{BTreeMap, BTreeSet};

use support::otlp::{Collector, Span, tree};
use tokio::runtime::Runtime;

use crate::Workplace;
use crate::until::until_or;
pub use jaeger::{JAEGER, Jaeger, named_program};

/// The destination of spans.
pub enum Spans {
    /// A receiver of OTLP in this process.
    Receiver(Collector, String, Runtime),
    /// A real Jaeger, asked through its API.
    Jaeger(Jaeger),
}

impl Spans {
    /// A receiver in this process.
    #[must_use]
    pub fn receiver() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a thread can be had");
        let (collector, url) = runtime.block_on(Collector::http());
        Self::Receiver(collector, url, runtime)
    }

    /// A workplace from which programs export to it.
    #[must_use]
    pub fn place(&self) -> Workplace {
        let (url, protocol) = match self {
            Self::Receiver(_, url, _) => (url.clone(), "http/protobuf"),
            Self::Jaeger(jaeger) => (jaeger.otlp_url(), "grpc"),
        };
        Workplace::new()
            .with("OTEL_EXPORTER_OTLP_ENDPOINT", url)
            .with("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
            .with("OTEL_BSP_SCHEDULE_DELAY", "50")
    }

    /// The spans of a trace that have arrived so far.
    #[must_use]
    pub fn trace(&self, trace_id: &str) -> Vec<Span> {
        match self {
            Self::Receiver(collector, ..) => collector.spans().into_iter().filter(|span| span.trace_id == trace_id).collect(),
            Self::Jaeger(jaeger) => jaeger.trace(trace_id),
        }
    }

    /// The spans of many traces that have arrived so far, by trace id.
    #[must_use]
    pub fn traces(&self, trace_ids: &BTreeSet<String>) -> BTreeMap<String, Vec<Span>> {
        let mut traces: BTreeMap<String, Vec<Span>> = BTreeMap::new();
        let spans: Vec<Span> = match self {
            Self::Receiver(collector, ..) => collector.spans().into_iter().filter(|span| trace_ids.contains(&span.trace_id)).collect(),
            Self::Jaeger(jaeger) => trace_ids.iter().flat_map(|trace_id| jaeger.trace(trace_id)).collect(),
        };
        spans.into_iter().for_each(|span| traces.entry(span.trace_id.clone()).or_default().push(span));
        traces
    }

    /// The spans of all traces that have an attribute of this value.
    #[must_use]
    pub fn with_attribute(&self, key: &str, value: &str) -> Vec<Span> {
        match self {
            Self::Receiver(collector, ..) => collector.spans().into_iter().filter(|span| span.attribute(key) == value).collect(),
            Self::Jaeger(jaeger) => jaeger.search(key, value),
        }
    }

    /// Waits until `enough` accepts a trace in which no span lacks its parent. Programs export independently, an agent in several batches:
    /// a parent may arrive after its child.
    ///
    /// # Panics
    /// If that does not happen within 1 min; the message shows the spans that have arrived.
    pub fn trace_until(&self, what: &str, trace_id: &str, enough: impl Fn(&[Span]) -> bool) -> Vec<Span> {
        let explain = || format!("{what}: trace {trace_id}:\n{}", tree(&self.trace(trace_id)));
        until_or(explain, || Some(self.trace(trace_id)).filter(|spans| tops(spans).len() == 1 && enough(spans)))
    }
}

/// The spans whose parent is not among them.
fn tops(spans: &[Span]) -> Vec<&Span> {
    let is_known = |id: &str| spans.iter().any(|span| span.span_id == id);
    spans.iter().filter(|span| !is_known(&span.parent_id)).collect()
}

/// Asserts that a trace has one root, and that no span lacks its parent.
///
/// # Panics
/// If the assertion fails.
pub fn assert_one_root(spans: &[Span]) {
    let tops = tops(spans);
    assert!(tops.len() == 1 && tops[0].parent_id.is_empty(), "{:?} are tops of\n{}", tops, tree(spans));
}
