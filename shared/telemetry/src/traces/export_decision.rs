//! Decides which spans are exported.
//!
//! A sampled span is exported when it ends. An unsampled one waits until the last span of its trace in this process has ended; if one of
//! them was marked to be kept or took too long, all are exported.
#![expect(clippy::vec_box, reason = "a span is 300 bytes and moves from hand to hand, as a pointer")]

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use clock::{Clock, Now};
use opentelemetry_sdk::trace::Sampler;
use spans::{Ended, Kind, Sink, TraceContext};

use super::queue::Queue;
use super::sampler::is_sampled;

/// The most traces that wait for a decision: the default of `pull.queue`, the most waiting pulls of a node.
const TRACES_MAX: usize = 1000;
/// The most waiting spans of one trace; a pull of 60 layers has about as many.
const SPANS_MAX: usize = 128;

/// Passes on the spans to export.
#[derive(Debug)]
pub(crate) struct Deciding {
    queue: Arc<Queue>,
    set: Sampler,
    keep_slow: Duration,
    clock: Clock,
    undecided: Mutex<Undecided>,
}

#[derive(Debug, Default)]
struct Undecided {
    /// The waiting traces by id. A hash map keeps its memory, because it is empty again after most requests.
    traces: HashMap<u128, Waiting, BuildHasherDefault<OfTraceId>>,
    /// The number of traces so far.
    begun: u64,
}

/// Uses a trace id as its own hash, because it is random. A caller with colliding ids makes a look-up check at most [`TRACES_MAX`] entries.
#[derive(Debug, Default)]
struct OfTraceId(u64);

impl Hasher for OfTraceId {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(size_of::<u64>()) {
            let mut number = [0; size_of::<u64>()];
            number[..part.len()].copy_from_slice(part);
            self.0 ^= u64::from_ne_bytes(number);
        }
    }

    fn write_u128(&mut self, id: u128) {
        // Some callers' ids have a time in the upper half.
        self.0 ^= (id >> 64) as u64 ^ id as u64;
    }
}

/// The waiting spans of one trace.
#[derive(Debug, Default)]
struct Waiting {
    /// The trace's number, by age.
    number: u64,
    /// How many of its spans have not ended.
    open: usize,
    kept: bool,
    spans: Vec<Box<Ended>>,
}

impl Deciding {
    pub(crate) fn new(queue: Arc<Queue>, set: Sampler, keep_slow: Duration) -> Self {
        Self { queue, set, keep_slow, clock: Clock::host(), undecided: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Undecided> {
        self.undecided.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes an ended span; returns the spans to export now.
    fn decide(&self, span: Box<Ended>) -> Vec<Box<Ended>> {
        let keep = span.content.keep || self.is_slow(span.took);
        let mut undecided = self.lock();
        let trace_id = span.ids.trace_id;
        let Some(waiting) = undecided.traces.get_mut(&trace_id) else {
            // The trace was dropped to make room, so decide by this span alone.
            return if keep { vec![span] } else { Vec::new() };
        };
        waiting.open = waiting.open.saturating_sub(1);
        waiting.kept |= keep;
        let is_last = waiting.open == 0;
        if waiting.kept || (!is_last && waiting.spans.len() < SPANS_MAX) {
            waiting.spans.push(span);
        }
        let decided = if waiting.kept { std::mem::take(&mut waiting.spans) } else { Vec::new() };
        if is_last {
            undecided.traces.remove(&trace_id);
        }
        decided
    }
}

impl Undecided {
    /// Drops the oldest trace if there is no room.
    fn make_room(&mut self) {
        let first = self.traces.iter().min_by_key(|(_, waiting)| waiting.number).map(|(trace_id, _)| *trace_id);
        if let Some(first) = first {
            self.traces.remove(&first);
        }
    }
}

impl Sink for Deciding {
    fn now(&self) -> Now {
        self.clock.now()
    }

    fn monotonic(&self) -> Duration {
        self.clock.monotonic()
    }

    fn is_sampled(&self, trace_id: u128, name: &str, kind: Kind, caller: Option<TraceContext>) -> bool {
        is_sampled(&self.set, trace_id, name, kind, caller)
    }

    fn is_slow(&self, took: Duration) -> bool {
        took > self.keep_slow
    }

    fn began_unsampled(&self, trace_id: u128, is_first: bool) {
        let mut undecided = self.lock();
        if let Some(waiting) = undecided.traces.get_mut(&trace_id) {
            waiting.open += 1;
            return;
        }
        if undecided.traces.len() >= TRACES_MAX {
            if !is_first {
                return;
            }
            undecided.make_room();
        }
        undecided.begun += 1;
        let number = undecided.begun;
        undecided.traces.insert(trace_id, Waiting { number, open: 1, ..Waiting::default() });
    }

    fn ended(&self, span: Box<Ended>) {
        if span.ids.sampled {
            self.queue.push(span);
        } else {
            self.decide(span).into_iter().for_each(|span| self.queue.push(span));
        }
    }
}
