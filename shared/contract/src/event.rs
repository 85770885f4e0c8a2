//! The facts of the image manager, in kubelet's words, and what kubelet has no words for: what the fleet found out, what operators did,
//! and how the agents are.
//!
//! What happens to a node's own pull is an event of that node. What happens to the fleet is the event of exactly one node: each reason
//! says of which.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::open::{UnknownText, open_text};
use crate::{AttemptId, FailureClass, MessageId, NodeName, PodRef, TraceContext};

/// What happened: the first six as kubelet names them.
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
    /// A back-off entry holds the fleet back from now on. Said by the node whose report opened it: the one with which the reports that the
    /// bus has stored so far are enough. All nodes see them in the same order.
    BackoffOpened,
    /// One node tried for all that an entry holds back, and failed. Said by that node.
    BackoffProbed,
    /// An entry is closed, because what had failed succeeds. Said by the node whose success the bus stored first: mostly the prober. Of
    /// what nobody has tried for ten minutes nothing is said any more.
    BackoffReleased,
    /// A pull has to wait for its turn: for the node's own slots or rate, or for the fleet's budget. Said by the node that pulls.
    Throttled,
    /// A budget allows fewer pulls in a second than before. Said by the budget's leader.
    RateLowered,
    /// A budget allows more pulls in a second than it did. Said by the budget's leader.
    RateRaised,
    /// An entry that was opened holds a whole registry, its token server or its blobs. Said by the node that says `BackoffOpened`.
    RegistryUnavailable,
    /// Such an entry is closed. Said by the node that says `BackoffReleased`.
    RegistryRecovered,
    /// An agent serves its node. Said by itself.
    AgentStarted,
    /// An agent ends in good order. Said by itself.
    AgentStopped,
    /// An agent lacks its bus or its runtime. Said by itself; the fleet's stream has it when the bus is back.
    AgentDegraded,
    /// Nothing is wrong with an agent any more. Said by itself.
    AgentRecovered,
    /// What a newer version wrote.
    Unknown(UnknownText),
}

open_text!(EventReason);

impl EventReason {
    /// Every reason that this version writes.
    pub const ALL: [Self; 22] = [
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
        Self::BackoffOpened,
        Self::BackoffProbed,
        Self::BackoffReleased,
        Self::Throttled,
        Self::RateLowered,
        Self::RateRaised,
        Self::RegistryUnavailable,
        Self::RegistryRecovered,
        Self::AgentStarted,
        Self::AgentStopped,
        Self::AgentDegraded,
        Self::AgentRecovered,
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
            Self::BackoffOpened => "BackoffOpened",
            Self::BackoffProbed => "BackoffProbed",
            Self::BackoffReleased => "BackoffReleased",
            Self::Throttled => "Throttled",
            Self::RateLowered => "RateLowered",
            Self::RateRaised => "RateRaised",
            Self::RegistryUnavailable => "RegistryUnavailable",
            Self::RegistryRecovered => "RegistryRecovered",
            Self::AgentStarted => "AgentStarted",
            Self::AgentStopped => "AgentStopped",
            Self::AgentDegraded => "AgentDegraded",
            Self::AgentRecovered => "AgentRecovered",
        }
    }

    /// Normal or Warning, as kubelet has it (a back-off is Normal).
    #[must_use]
    pub fn event_type(self) -> EventType {
        match self {
            Self::Pulling | Self::Pulled | Self::BackOff | Self::SharingPaused | Self::SharingResumed | Self::BackoffCleared => {
                EventType::Normal
            }
            Self::BackoffProbed | Self::BackoffReleased | Self::Throttled | Self::RateRaised | Self::RegistryRecovered => EventType::Normal,
            Self::AgentStarted | Self::AgentStopped | Self::AgentRecovered => EventType::Normal,
            // Its writer's CloudEvents say which it is.
            Self::Unknown(_) => EventType::Normal,
            Self::Failed | Self::InspectFailed | Self::ErrImageNeverPull | Self::EventsDropped => EventType::Warning,
            Self::BackoffOpened | Self::RateLowered | Self::RegistryUnavailable | Self::AgentDegraded => EventType::Warning,
        }
    }

    /// Whether repeats of it are folded into one event with a count: what goes on for hours is a handful of events.
    #[must_use]
    pub fn is_folded(self) -> bool {
        let of_pull = matches!(self, Self::BackOff | Self::Failed | Self::InspectFailed | Self::ErrImageNeverPull);
        of_pull || matches!(self, Self::BackoffProbed | Self::Throttled | Self::AgentDegraded | Self::AgentRecovered)
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
    /// Milliseconds until the next attempt is allowed; only on failures and back-offs.
    #[serde(default)]
    pub next_attempt_ms: Option<u64>,
    /// Which node found out what this one goes by; none: this one. Only on back-offs.
    #[serde(default)]
    pub learned_by: Option<NodeName>,
    /// How long ago that was, in milliseconds. Only on back-offs.
    #[serde(default)]
    pub learned_ms_ago: Option<u64>,
    /// The span of the attempt that failed. Only on back-offs.
    #[serde(default)]
    pub learned_trace: Option<TraceContext>,
    /// The span that it happened in: of the pull, or of the attempt that opened or closed an entry.
    pub trace: TraceContext,
    /// The back-off entry that it is about, or that held the pull back: its id, the same on all nodes.
    #[serde(default)]
    pub entry: Option<String>,
    /// What only some reasons tell; none: nothing.
    #[serde(default)]
    pub details: Option<EventDetails>,
    /// What repeats it stands for; none: it happened once.
    #[serde(default)]
    pub repeats: Option<Repeats>,
    /// Its place among the stored events of its node; none: it is published and not stored.
    #[serde(default)]
    pub sequence: Option<EventSequence>,
}

/// What events tell that are not about a pull: which of it depends on the reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct EventDetails {
    /// Why, in a word: `quota` or `silent_nodes` of a rate; `slots` or `budget` of a pull that waits; `bus` or `runtime` of an agent.
    pub cause: Option<String>,
    /// How long it lasted, in milliseconds: the failure that is over, or the agent's trouble or life.
    pub lasted_ms: Option<u64>,
    /// How many nodes report the failure.
    pub reporters: Option<u64>,
    /// How often in a row what was probed has failed.
    pub failures: Option<u64>,
    /// How many pulls a budget allows in 1,000 s from now on.
    pub per_1000_s: Option<u64>,
    /// How many it allowed before.
    pub per_1000_s_before: Option<u64>,
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
    /// That something happened on a node, and nothing else of it: about no image, no registry and no pod.
    #[must_use]
    pub fn new(id: MessageId, time_ms: u64, node: NodeName, reason: EventReason, message: String, trace: TraceContext) -> Self {
        Self {
            id,
            time_ms,
            node,
            pod: None,
            image: String::new(),
            registry: None,
            reason,
            message,
            duration_ms: None,
            waiting_ms: None,
            size_bytes: None,
            class: None,
            attempt: None,
            next_attempt_ms: None,
            learned_by: None,
            learned_ms_ago: None,
            learned_trace: None,
            trace,
            entry: None,
            details: None,
            repeats: None,
            sequence: None,
        }
    }

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
