//! The sans-IO core: decides which events are kept, stored, folded, and offered to the fleet's stream, and when.

mod folding;
mod journal;
mod outbox;
mod recorder;
mod step;

pub use folding::{FOLD_AT_FIRST, FOLD_AT_MOST};
pub use journal::{EVENT_MAX_BYTES, Journal, KEEP_DEFAULT, page_events, text_bytes};
pub use recorder::{EVENT_OVERHEAD_BYTES, Identity, Recorder, RecorderCounts, RecorderPolicy, Recovered, WINDOW};
pub use step::{Batch, Effect, Input, Slot, StreamMark, StreamRead, Token};

#[cfg(test)]
pub(crate) use journal::tests::event as test_event;
