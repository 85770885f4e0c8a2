//! What goes into the recorder's core and what comes out of it.

use std::sync::Arc;

use contract::PullEvent;

/// Who waits for an answer. Given by the shell, never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Token(pub u64);

/// What happens to the core.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// Somebody records an event that is to be stored.
    Record {
        /// Answered once the store has it.
        token: Token,
        /// The event.
        event: Box<PullEvent>,
    },
    /// Somebody wants an answer when all that was recorded before is stored, and the stream has it or cannot be reached.
    Flush {
        /// Who.
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
        /// Its sequence in the stream; else it is not known whether the stream has it.
        result: Result<u64, String>,
    },
    /// The time of [`super::Recorder::next_due`] has come.
    Tick,
}

/// What the core wants done. No more than one write, one load, one opening and one reading are under way at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Have the store do all of this, or nothing, and hand it to the operating system.
    Write(Batch),
    /// Read stored events in the order of their numbers.
    Load {
        /// Only those after this number.
        after: u64,
        /// At most so many.
        limit: usize,
    },
    /// Make sure that the stream is there.
    OpenStream,
    /// Read which events of this incarnation the stream has.
    ReadStream {
        /// Only messages of the stream after this sequence.
        after: u64,
    },
    /// Offer an event to the stream.
    Append(Arc<PullEvent>),
    /// The stream cannot be reached now: publish the event for those who listen this moment. It is offered to the stream later.
    Publish(Arc<PullEvent>),
    /// Answer.
    Answer(Token),
}

/// One transaction of the store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// Events to be stored, under their numbers.
    pub put: Vec<Arc<PullEvent>>,
    /// Numbers of events to be forgotten.
    pub remove: Vec<u64>,
    /// What repeats are not yet an event, by a key of their own; none: it is over.
    pub folds: Vec<(u64, Option<Arc<PullEvent>>)>,
    /// How far the stream is known to have all events, if that is new.
    pub mark: Option<StreamMark>,
}

impl Batch {
    pub(crate) fn is_empty(&self) -> bool {
        self.put.is_empty() && self.remove.is_empty() && self.folds.is_empty() && self.mark.is_none()
    }
}

/// Which stream it is, and a sequence of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamMark {
    /// When it was made, as its server says it; empty: none is known.
    pub created: String,
    /// The sequence.
    pub sequence: u64,
}

/// A page of what the stream has of this incarnation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamRead {
    /// Numbers of events.
    pub numbers: Vec<u64>,
    /// Where the next page begins; none: this was the last one.
    pub next: Option<u64>,
}

/// What is known of a stored event without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Its number.
    pub number: u64,
    /// What it takes in the store.
    pub bytes: u64,
    /// When it happened, in milliseconds since 1970.
    pub time_ms: u64,
    /// Whether it says that something was not tried: such events are dropped before others.
    pub is_refusal: bool,
}
