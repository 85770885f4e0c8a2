//! Which spans are exported.
//!
//! What was sampled is exported when it ends. What was not waits until the last span of its trace in this process has ended: if by
//! then something of it was marked to be kept, or took too long, all of it is exported.
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

/// The most traces under way whose spans wait for a decision: as many as wait for their turn on a node (`pull.queue`).
const TRACES_MAX: usize = 1000;
/// The most spans of one trace that wait: a pull of sixty layers has about so many.
const SPANS_MAX: usize = 128;

/// Hands on what is to be exported.
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
    /// By trace id. A map that keeps its room: it is empty again after most requests.
    traces: HashMap<u128, Waiting, BuildHasherDefault<OfTraceId>>,
    /// How many traces began.
    begun: u64,
}

/// A trace id is chosen at random, so it is its own hash. A caller that chooses colliding ones makes a lookup pass over [`TRACES_MAX`] at most.
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
        // The upper half is a time in some callers' ids.
        self.0 ^= (id >> 64) as u64 ^ id as u64;
    }
}

/// What one trace waits with.
#[derive(Debug, Default)]
struct Waiting {
    /// Which of all it was.
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

    /// The spans that are to be exported now.
    fn decide(&self, span: Box<Ended>) -> Vec<Box<Ended>> {
        let keep = span.said.keep || self.is_slow(span.took);
        let mut undecided = self.lock();
        let trace_id = span.ids.trace_id;
        let Some(waiting) = undecided.traces.get_mut(&trace_id) else {
            // There was no room for what else belongs to it.
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
    /// The trace that began first makes room.
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
