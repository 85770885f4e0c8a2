//! The inputs and effects of a follower.

use std::time::Duration;

/// How far a bucket has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// When the bucket was made, by its server's clock. A different value means a different bucket; empty: unknown.
    pub created: String,
    /// The sequence of its newest change.
    pub sequence: u64,
}

impl Position {
    pub(crate) fn is_of_another(&self, other: &Self) -> bool {
        !self.created.is_empty() && !other.created.is_empty() && self.created != other.created
    }
}

/// A snapshot that is being read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Only what was stored after this is needed, if the bucket is still the same.
    pub since: Position,
    /// The newest known change when the reading began.
    pub(crate) known: u64,
    /// When it began.
    pub(crate) began: Duration,
}

/// An input of the follower.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A change of the bucket has been received.
    Changed {
        /// Its sequence.
        sequence: u64,
    },
    /// Another node has published how far the bucket has come.
    Announced {
        /// How far.
        position: Position,
        /// How long changes may still be in transit.
        within: Duration,
    },
    /// The changes up to this one should have been received by now. From [`Effect::Later`].
    Due(u64),
    /// How many nodes follow the bucket.
    Followers(u64),
    /// The connection to the bus was lost.
    Disconnected,
    /// The bus is reached again, or answers again.
    BusBack,
    /// The time to read has come. From [`Effect::Later`].
    ReadNow,
    /// A snapshot was read. If [`Effect::CaughtUp`] does not follow, ignore the snapshot: a later one was read first.
    Read {
        /// The reading of the effect; the default for the first snapshot.
        reading: Reading,
        /// How far the snapshot goes.
        position: Position,
        /// The sequence of the newest change in it, if there is any.
        newest: Option<u64>,
    },
    /// A snapshot could not be read.
    NotRead,
}

/// An action for the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Give this input after this time.
    Later(Duration, Input),
    /// Read a snapshot; [`Input::Read`] or [`Input::NotRead`] follows.
    Read(Reading),
    /// The bucket is a different one than before, without the earlier contents.
    MadeAgain,
    /// The bus may be used. At the start and after a lost connection a snapshot is read first.
    BusBack,
    /// Everything that was stored before the snapshot has been received.
    CaughtUp,
}
