//! What the event recorder answers.

use serde::{Deserialize, Serialize};

use crate::{Command, EventReason, PullEvent, Service};

/// Record a fact. The same event id is recorded once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordEvent {
    /// The fact.
    pub event: PullEvent,
}

impl Command for RecordEvent {
    type Reply = EventRecorded;
    const SERVICE: Service = Service::EventRecorder;
    const VERB: &'static str = "record";
}

/// The answer to [`RecordEvent`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventRecorded {}

/// The newest facts that this node keeps.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListEvents {
    /// Only this reason.
    #[serde(default)]
    pub reason: Option<EventReason>,
    /// Only this image, as asked for.
    #[serde(default)]
    pub image: Option<String>,
    /// Only what was recorded after the first so many; for reading on where an earlier answer ended.
    #[serde(default)]
    pub after: u64,
    /// Of all that the node has stored and not forgotten, what has a number after this one; none: of the newest facts alone. An answer's
    /// `next_after` is a number then. A node that does not know this, or stores nothing, goes by `after`.
    #[serde(default)]
    pub stored_after: Option<u64>,
    /// At most so many facts; 0: as many as fit.
    #[serde(default)]
    pub limit: u32,
}

impl Command for ListEvents {
    type Reply = EventList;
    const SERVICE: Service = Service::EventRecorder;
    const VERB: &'static str = "list";
}

/// The answer to [`ListEvents`]: one page, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventList {
    /// The facts.
    pub events: Vec<PullEvent>,
    /// Ask with `after` set to this for the next page.
    pub next_after: u64,
    /// Whether there is more.
    pub more: bool,
}

/// How many facts were recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountEvents {}

impl Command for CountEvents {
    type Reply = EventCounts;
    const SERVICE: Service = Service::EventRecorder;
    const VERB: &'static str = "count";
}

/// The answer to [`CountEvents`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventCounts {
    /// Recorded since start.
    pub recorded_total: u64,
    /// Handed to the bus: published for those who listen, or acknowledged by the fleet's stream.
    pub published_total: u64,
    /// Not handed to the bus, because it was not there or the event was too large.
    pub unpublished_total: u64,
    /// Kept now.
    pub kept: u64,
    /// Acknowledged by the fleet's stream, since the start.
    #[serde(default)]
    pub appended_total: u64,
    /// Repeats that became part of another event.
    #[serde(default)]
    pub folded_total: u64,
    /// Lost, because more waited for the stream than `events.outbox_max`, or because they could not be stored.
    #[serde(default)]
    pub dropped_total: u64,
    /// Writes of the store that failed.
    #[serde(default)]
    pub write_failures_total: u64,
    /// Times that the stream was not there or did not answer.
    #[serde(default)]
    pub stream_failures_total: u64,
    /// Stored and not in the stream yet.
    #[serde(default)]
    pub waiting: u64,
    /// What these take.
    #[serde(default)]
    pub waiting_bytes: u64,
    /// How long ago the oldest of them happened, in milliseconds; 0: none waits.
    #[serde(default)]
    pub oldest_age_ms: u64,
    /// Whether the stream takes events now, or none is wanted.
    #[serde(default)]
    pub is_delivering: bool,
}
