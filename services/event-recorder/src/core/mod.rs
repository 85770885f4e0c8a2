//! The sans-IO core: decides which events are kept, stored, folded, and offered to the fleet's stream, and when.

mod folding;
mod journal;
mod outbox;
mod recorder;
mod step;

pub use journal::{EVENT_MAX_BYTES, EVENT_OVERHEAD_BYTES, Journal, KEEP_DEFAULT, page_events, text_bytes};
pub use recorder::{Identity, Recorder, RecorderCounts, RecorderPolicy, Recovered, WINDOW};
pub use step::{Batch, Effect, Input, Slot, StreamMark, StreamRead, Token};

#[cfg(feature = "shell")]
pub(crate) use recorder::number_of;

#[cfg(test)]
pub(crate) use journal::tests::event as test_event;
