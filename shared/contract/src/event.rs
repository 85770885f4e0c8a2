//! The facts of the image manager, in kubelet's words, and what operators did to what a fleet knows, for which kubelet has none.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::open::{UnknownText, open_text};
use crate::{AttemptId, FailureClass, MessageId, NodeName, PodRef, TraceContext};

/// What happened, as kubelet names it; the last four are not kubelet's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EventReason {
    /// A pull begins.
    Pulling,
    /// The image is there: pulled just now, or before.
    Pulled,
    /// Not tried, because a failure is too recent.
    BackOff,
    /// A pull failed.
    Failed,
    /// The runtime could not be asked, or the reference cannot be parsed.
    InspectFailed,
    /// Absent, and the policy is Never.
    ErrImageNeverPull,
    /// Somebody paused what the fleet shares.
    SharingPaused,
    /// Somebody ended such a pause.
    SharingResumed,
    /// Somebody cleared what held an image or a registry back.
    BackoffCleared,
    /// Events of this node were lost: the outbox was full, or the machine lost power.
    EventsDropped,
    /// What a newer version wrote.
    Unknown(UnknownText),
}

open_text!(EventReason);

impl EventReason {
    /// Every reason that this version writes.
    pub const ALL: [Self; 10] = [
        Self::Pulling,
        Self::Pulled,
        Self::BackOff,
        Self::Failed,
        Self::InspectFailed,
        Self::ErrImageNeverPull,
        Self::SharingPaused,
        Self::SharingResumed,
        Self::BackoffCleared,
        Self::EventsDropped,
    ];

    /// The word as kubelet writes it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Unknown(text) => text.as_str(),
            Self::Pulling => "Pulling",
            Self::Pulled => "Pulled",
            Self::BackOff => "BackOff",
            Self::Failed => "Failed",
            Self::InspectFailed => "InspectFailed",
            Self::ErrImageNeverPull => "ErrImageNeverPull",
            Self::SharingPaused => "SharingPaused",
            Self::SharingResumed => "SharingResumed",
            Self::BackoffCleared => "BackoffCleared",
            Self::EventsDropped => "EventsDropped",
        }
    }

    /// Normal or Warning, as kubelet has it (a back-off is Normal).
    #[must_use]
    pub fn event_type(self) -> EventType {
        match self {
            Self::Pulling | Self::Pulled | Self::BackOff | Self::SharingPaused | Self::SharingResumed | Self::BackoffCleared => {
                EventType::Normal
            }
            // Its writer's CloudEvents say which it is.
            Self::Unknown(_) => EventType::Normal,
            Self::Failed | Self::InspectFailed | Self::ErrImageNeverPull | Self::EventsDropped => EventType::Warning,
        }
    }
}

impl FromStr for EventReason {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|reason| reason.as_str().eq_ignore_ascii_case(text)).ok_or_else(|| {
            let known: Vec<&str> = Self::ALL.iter().map(Self::as_str).collect();
            format!("{text:?} is not a reason; it is one of {}", known.join(", "))
        })
    }
}

/// Kubernetes' two types of event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum EventType {
    /// As it should be.
    Normal,
    /// Somebody may want to look.
    Warning,
}

impl EventType {
    /// The word as Kubernetes writes it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// One fact about one image on one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PullEvent {
    /// Unique; the same for an event that is sent again.
    pub id: MessageId,
    /// Milliseconds since 1970 on the node's clock.
    pub time_ms: u64,
    /// Where.
    pub node: NodeName,
    /// For whom, if somebody said so.
    #[serde(default)]
    pub pod: Option<PodRef>,
    /// The image as asked for; empty if it is about no image.
    pub image: String,
    /// Its registry (`host[:port]`); none if the reference cannot be parsed, or if it is about no single registry.
    #[serde(default)]
    pub registry: Option<String>,
    /// What happened.
    pub reason: EventReason,
    /// Kubelet's message, letter for letter, where the reason is kubelet's.
    pub message: String,
    /// How long the pull took, waiting aside; only on Pulled after a pull and on Failed.
    #[serde(default)]
    pub duration_ms: Option<u64>,
    /// How long it waited before that.
    #[serde(default)]
    pub waiting_ms: Option<u64>,
    /// The image's size; only on Pulled.
    #[serde(default)]
    pub size_bytes: Option<u64>,
    /// What the failure is about; only on failures and back-offs.
    #[serde(default)]
    pub class: Option<FailureClass>,
    /// Which attempt this is about.
    #[serde(default)]
    pub attempt: Option<AttemptId>,
    /// Milliseconds until the next try is allowed; only on failures and back-offs.
    #[serde(default)]
    pub next_try_ms: Option<u64>,
    /// Which node found out what this one goes by; none: this one. Only on back-offs.
    #[serde(default)]
    pub learned_by: Option<NodeName>,
    /// How long ago that was, in milliseconds. Only on back-offs.
    #[serde(default)]
    pub learned_ms_ago: Option<u64>,
    /// The span of the attempt that failed. Only on back-offs.
    #[serde(default)]
    pub learned_trace: Option<TraceContext>,
    /// The trace of the pull.
    pub trace: TraceContext,
    /// What repeats it stands for; none: it happened once.
    #[serde(default)]
    pub repeats: Option<Repeats>,
    /// Its place among the stored events of its node; none: it is published and not stored.
    #[serde(default)]
    pub sequence: Option<EventSequence>,
}

/// What happened several times and is one event: `time_ms` is the last time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Repeats {
    /// How often since the event of the same kind before.
    pub count: u64,
    /// The first of these, in milliseconds since 1970.
    pub first_ms: u64,
}

/// The place of an event among those that its node has stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventSequence {
    /// Made with the node's state directory: a node that is replaced under its old name counts anew.
    pub incarnation: String,
    /// Counts from 1 without a gap; a gap is an event that was lost.
    pub number: u64,
}

impl PullEvent {
    /// Whether it is stored until the fleet's stream has it. That an image was there already is published alone.
    #[must_use]
    pub fn is_durable(&self) -> bool {
        !(self.reason == EventReason::Pulled && self.duration_ms.is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_read_in_any_case_and_a_wrong_one_names_the_right_ones() {
        assert_eq!("backoff".parse(), Ok(EventReason::BackOff));
        let error = EventReason::from_str("Pul").expect_err("not a reason");
        assert!(error.contains("Pulling, Pulled, BackOff, Failed, InspectFailed, ErrImageNeverPull"), "{error}");
    }
}
