//! The messages of the event recorder.

use serde::{Deserialize, Serialize};

use crate::{Command, EventReason, PullEvent, Service};

/// Records an event, and is answered once it is stored, or at once if no answer depends on it ([`EventReason::is_noted`]). The same event
/// id is recorded once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordEvent {
    /// The event.
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

/// Asks for the newest events that this node keeps.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListEvents {
    /// Only events with this reason.
    #[serde(default)]
    pub reason: Option<EventReason>,
    /// Only events of this image, as asked for.
    #[serde(default)]
    pub image: Option<String>,
    /// Only events after this many, to continue where an earlier answer ended.
    #[serde(default)]
    pub after: u64,
    /// Of all events that the node stores, those with a number after this one; none: only the newest events in memory. Then an answer's
    /// `next_after` is a number. A node that does not know this field, or stores nothing, uses `after`.
    #[serde(default)]
    pub stored_after: Option<u64>,
    /// The most events; 0: as many as fit.
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
    /// The events.
    pub events: Vec<PullEvent>,
    /// The value of `after` for the next page.
    pub next_after: u64,
    /// Whether there are more.
    pub more: bool,
}

/// Asks how many events were recorded.
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
    /// Handed to the bus: published for subscribers, or acknowledged by the fleet's stream.
    pub published_total: u64,
    /// Not handed to the bus, because there was none or the event was too large.
    pub unpublished_total: u64,
    /// Kept now.
    pub kept: u64,
    /// Acknowledged by the fleet's stream, since the start.
    #[serde(default)]
    pub appended_total: u64,
    /// Repeats that became part of another event.
    #[serde(default)]
    pub folded_total: u64,
    /// Lost: more waited for the stream than `events.outbox_max`, they could not be stored, or were too large.
    #[serde(default)]
    pub dropped_total: u64,
    /// Writes of the store that failed.
    #[serde(default)]
    pub write_failures_total: u64,
    /// Times that the stream was not there or did not answer.
    #[serde(default)]
    pub stream_failures_total: u64,
    /// Stored, but not in the stream yet.
    #[serde(default)]
    pub waiting: u64,
    /// The bytes of these.
    #[serde(default)]
    pub waiting_bytes: u64,
    /// The age of the oldest of them, in milliseconds; 0: none waits.
    #[serde(default)]
    pub oldest_age_ms: u64,
    /// Whether the stream accepts events now, or none is configured.
    #[serde(default)]
    pub is_delivering: bool,
}
