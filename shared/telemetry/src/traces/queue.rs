//! The queue of spans to export, and the exporting thread.
#![expect(clippy::vec_box, reason = "a span is 300 bytes and moves from hand to hand, as a pointer")]

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use clock::Clock;
use opentelemetry::InstrumentationScope;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SpanExporter as _;
use spans::Ended;

use super::convert::span_data;
use super::exporter::{ExportError, make};
use super::options::Options;

/// The name of the instrumentation scope.
const SCOPE: &str = "fleetpull";
/// How often a failing collector is logged at most.
const COMPLAIN_EVERY: Duration = Duration::from_secs(60);

/// Counters of spans.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Accepted by the collector.
    pub exported: u64,
    /// Dropped because the queue was full.
    pub dropped: u64,
    /// Lost because the collector did not accept them.
    pub failed: u64,
    /// In the queue or being exported.
    pub waiting: u64,
}

/// The queue.
#[derive(Debug)]
pub(crate) struct Queue {
    state: Mutex<State>,
    /// Notified when the queue or the counters change.
    changed: Condvar,
    size: usize,
    batch: usize,
    delay: Duration,
}

#[derive(Debug, Default)]
struct State {
    spans: VecDeque<Box<Ended>>,
    counts: Counts,
    on_their_way: usize,
    /// How many callers wait until the queue is empty.
    flushing: usize,
}

impl Queue {
    /// Starts the thread.
    pub(crate) fn start(options: Options, resource: Resource) -> Result<Arc<Self>, ExportError> {
        let Options { queue: size, batch, delay, .. } = options;
        let queue = Arc::new(Self { state: Mutex::default(), changed: Condvar::new(), size, batch: batch.clamp(1, size), delay });
        let (started, result) = sync_channel(1);
        let own = Arc::clone(&queue);
        let work = move || {
            let ready = Ready::make(&options, &resource);
            match ready {
                Ok(ready) => {
                    // Fails only if the process is ending.
                    let _ = started.send(Ok(()));
                    own.work(&ready);
                }
                Err(error) => drop(started.send(Err(error))),
            }
        };
        std::thread::Builder::new().name("otlp-export".to_owned()).spawn(work).map_err(ExportError::Thread)?;
        result.recv().unwrap_or(Err(ExportError::Ended))?;
        Ok(queue)
    }

    /// Queues a span, or counts it as dropped. Never waits for the collector.
    pub(crate) fn push(&self, span: Box<Ended>) {
        let mut state = self.lock();
        if state.spans.len() >= self.size {
            state.counts.dropped += 1;
            return;
        }
        state.spans.push_back(span);
        if state.spans.len() == 1 || state.spans.len() == self.batch {
            self.changed.notify_all();
        }
    }

    pub(crate) fn flush(&self, limit: Duration) -> bool {
        let mut state = self.lock();
        state.flushing += 1;
        self.changed.notify_all();
        let is_busy = |state: &mut State| state.on_their_way > 0 || !state.spans.is_empty();
        let (mut state, waited) = self.changed.wait_timeout_while(state, limit, is_busy).unwrap_or_else(PoisonError::into_inner);
        state.flushing -= 1;
        !waited.timed_out()
    }

    pub(crate) fn counts(&self) -> Counts {
        let state = self.lock();
        let waiting = u64::try_from(state.spans.len() + state.on_their_way).unwrap_or(u64::MAX);
        Counts { waiting, ..state.counts }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Exports one batch after the other for the life of the process.
    fn work(&self, ready: &Ready) {
        let (clock, mut complained) = (Clock::host(), None::<Duration>);
        loop {
            let batch = self.next_batch();
            let count = batch.len();
            let outcome = ready.export(batch);
            let counted = u64::try_from(count).unwrap_or(u64::MAX);
            // Logged before the count changes, because a flushing caller may then end the process.
            if let Err(error) = &outcome {
                let now = clock.now().monotonic;
                if complained.is_none_or(|last| now.saturating_sub(last) >= COMPLAIN_EVERY) {
                    complained = Some(now);
                    let Counts { failed, dropped, .. } = self.counts();
                    let failed = failed + counted;
                    tracing::warn!(error, failed, dropped, "spans were not exported: the collector did not take them; pulls go on");
                }
            }
            let mut state = self.lock();
            state.on_their_way = 0;
            match outcome {
                Ok(()) => state.counts.exported += counted,
                Err(_) => state.counts.failed += counted,
            }
            drop(state);
            self.changed.notify_all();
        }
    }

    /// Waits for the next batch: it is full, its delay is over, or a flush is requested.
    fn next_batch(&self) -> Vec<Box<Ended>> {
        let is_empty = |state: &mut State| state.spans.is_empty();
        let state = self.changed.wait_while(self.lock(), is_empty).unwrap_or_else(PoisonError::into_inner);
        let may_wait = |state: &mut State| state.spans.len() < self.batch && state.flushing == 0;
        let (mut state, _) = self.changed.wait_timeout_while(state, self.delay, may_wait).unwrap_or_else(PoisonError::into_inner);
        let count = state.spans.len().min(self.batch);
        state.on_their_way = count;
        state.spans.drain(..count).collect()
    }
}

/// The exporter and its runtime.
struct Ready {
    runtime: tokio::runtime::Runtime,
    exporter: opentelemetry_otlp::SpanExporter,
    scope: InstrumentationScope,
    limit: Duration,
}

impl Ready {
    fn make(options: &Options, resource: &Resource) -> Result<Self, ExportError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(ExportError::Thread)?;
        let mut exporter = {
            // The gRPC exporter panics outside a runtime.
            let _inside = runtime.enter();
            make(options)?
        };
        opentelemetry_sdk::trace::SpanExporter::set_resource(&mut exporter, resource);
        Ok(Self { runtime, exporter, scope: InstrumentationScope::builder(SCOPE).build(), limit: options.timeout })
    }

    fn export(&self, batch: Vec<Box<Ended>>) -> Result<(), String> {
        let export = || {
            let batch = batch.into_iter().map(|span| span_data(*span, &self.scope)).collect();
            let exported = async { tokio::time::timeout(self.limit, self.exporter.export(batch)).await };
            self.runtime.block_on(exported)
        };
        // A panic costs this batch. Without the thread, no span would be exported any more, and each flush would wait in vain.
        match catch_unwind(AssertUnwindSafe(export)) {
            Ok(Ok(Ok(()))) => Ok(()),
            Ok(Ok(Err(error))) => Err(error.to_string()),
            Ok(Err(_)) => Err(format!("no answer within {:?}", self.limit)),
            Err(_) => Err("the export panicked; report this as a bug".to_owned()),
        }
    }
}
