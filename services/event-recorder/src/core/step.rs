//! The inputs and effects of the recorder's core.

use std::collections::BTreeMap;
use std::sync::Arc;

use contract::{EventReason, PullEvent};

use super::journal::{EVENT_OVERHEAD_BYTES, text_bytes};
use super::recorder::number_of;

/// Names a pending answer. The shell numbers them and uses no number twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Token(pub u64);

/// An input of the core.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// An event to store.
    Record {
        /// Answered once the event is written or the write has failed.
        token: Token,
        /// The event.
        event: Box<PullEvent>,
    },
    /// An event to store that nobody waits for.
    Note {
        /// The event.
        event: Box<PullEvent>,
    },
    /// Asks for an answer when all earlier events are stored, and are in the stream or the stream cannot be reached.
    Flush {
        /// Answered then.
        token: Token,
    },
    /// The answer to [`Effect::Write`].
    Written(Result<(), String>),
    /// The answer to [`Effect::Load`].
    Loaded(Result<Vec<Arc<PullEvent>>, String>),
    /// The answer to [`Effect::OpenStream`].
    Opened(Result<StreamMark, String>),
    /// The answer to [`Effect::ReadStream`].
    Read(Result<StreamRead, String>),
    /// The answer to [`Effect::Append`].
    Appended {
        /// The number of the event.
        number: u64,
        /// Its sequence in the stream. After an error it is unknown whether the stream has the event.
        result: Result<u64, String>,
    },
    /// The answer to [`Effect::Append`] if no server takes the event, however often it is offered: it is too large.
    Refused {
        /// The number of the event.
        number: u64,
    },
    /// The bus is connected, perhaps again, and streams may work.
    Connected,
    /// The time of [`super::Recorder::next_due`] has come.
    Tick,
}

/// An effect of the core. At most one write, one load, one `OpenStream` and one `ReadStream` are under way at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Write the whole batch or nothing, and hand it to the operating system.
    Write(Batch),
    /// Read stored events in the order of their numbers.
    Load {
        /// Only events above this number.
        after: u64,
        /// The most events.
        limit: usize,
    },
    /// Create the stream if it is missing.
    OpenStream,
    /// Read which events of this incarnation the stream has.
    ReadStream {
        /// Only messages of the stream after this sequence.
        after: u64,
    },
    /// Offer an event to the stream.
    Append(Arc<PullEvent>),
    /// Publish the event to the present subscribers, because the stream cannot be reached; it is offered later.
    Publish(Arc<PullEvent>),
    /// Answer the token.
    Answer(Token),
}

/// One transaction of the store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// Events to store, by their numbers.
    pub put: Vec<Arc<PullEvent>>,
    /// Numbers of events to delete.
    pub remove: Vec<u64>,
    /// Pending repeats to store, by id; none: delete this id.
    pub folds: BTreeMap<u64, Option<Arc<PullEvent>>>,
    /// The new position up to which the stream needs no reading.
    pub mark: Option<StreamMark>,
}

impl Batch {
    pub(crate) fn is_empty(&self) -> bool {
        self.put.is_empty() && self.remove.is_empty() && self.folds.is_empty() && self.mark.is_none()
    }
}

/// A position in a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamMark {
    /// When the stream was created, as its server states it; distinguishes streams of one name. Empty: unknown.
    pub created: String,
    /// The sequence.
    pub sequence: u64,
}

/// A page of the stream's events of this incarnation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamRead {
    /// Numbers of events.
    pub numbers: Vec<u64>,
    /// The sequence at which the next page begins; none: this was the last page.
    pub next: Option<u64>,
}

/// The fields of a stored event that are in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Its number.
    pub number: u64,
    /// Its size in the store.
    pub bytes: u64,
    /// When it happened, in milliseconds since 1970.
    pub time_ms: u64,
    /// True for a BackOff event; those are dropped before others.
    pub is_refusal: bool,
}

impl Slot {
    /// The fields of a numbered event.
    pub(crate) fn of(event: &Arc<PullEvent>) -> Self {
        Self {
            number: number_of(event),
            bytes: (text_bytes(event) + EVENT_OVERHEAD_BYTES) as u64,
            time_ms: event.time_ms,
            is_refusal: event.reason == EventReason::BackOff,
        }
    }
}
