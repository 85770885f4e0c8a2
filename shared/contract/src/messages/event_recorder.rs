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
    /// Handed to the bus.
    pub published_total: u64,
    /// Not handed to the bus, because it was not there or the event was too large.
    pub unpublished_total: u64,
    /// Kept now.
    pub kept: u64,
}
