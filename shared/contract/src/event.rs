//! Events: those of kubelet's image manager, in kubelet's words, and others about findings of the fleet, actions of operators and the state
//! of agents.
//!
//! An event about a node's own pull belongs to that node. An event about the fleet belongs to exactly one node; the description of each
//! reason names it.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::open::{UnknownText, open_text};
use crate::{AttemptId, FailureClass, MessageId, NodeName, PodRef, TraceContext};

/// The most characters of a name that an operator's command has, in an event.
const NAME_CHARACTERS: usize = 300;

/// A name that an operator's command has, as an event shows it: a person, an image, a registry, a budget. It ends after 300 characters.
#[must_use]
pub fn bounded_name(name: &str) -> &str {
    name.char_indices().nth(NAME_CHARACTERS).map_or(name, |(end, _)| &name[..end])
}

/// What happened. The first six reasons are kubelet's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EventReason {
    /// A pull begins.
    Pulling,
    /// The image is present: just pulled, or there before.
    Pulled,
    /// Not attempted, because the last failure is too recent.
    BackOff,
    /// A pull failed.
    Failed,
    /// The runtime did not answer, or the reference cannot be parsed.
    InspectFailed,
    /// The image is absent, and the policy is Never.
    ErrImageNeverPull,
    /// An operator paused sharing.
    SharingPaused,
    /// An operator ended the pause.
    SharingResumed,
    /// An operator cleared back-off entries of an image or a registry, or a budget's quota.
    BackoffCleared,
    /// Events of this node were lost: the outbox was full, or the machine lost power.
    EventsDropped,
    /// A back-off entry is open now. Recorded by the node whose report opened it: the one with which the reports stored by the bus are
    /// enough. All nodes see them in the same order.
    BackoffOpened,
    /// A node has probed an entry for all, and failed. Recorded by that node.
    BackoffProbed,
    /// An entry is closed, because its attempts succeed again. Recorded by the node whose success the bus stored first, mostly the prober.
    /// Nothing is recorded for an entry that no node has attempted for ten minutes.
    BackoffReleased,
    /// A pull waits for the node's own slots or rate, or for the fleet's budget. Recorded by the node that pulls.
    Throttled,
    /// A budget allows fewer pulls per second than before. Recorded by the budget leader.
    RateLowered,
    /// A budget allows more pulls per second than before. Recorded by the budget leader.
    RateRaised,
    /// An entry about a whole registry, its token server or its blobs is open. Recorded by the node that records `BackoffOpened`.
    RegistryUnavailable,
    /// Such an entry is closed. Recorded by the node that records `BackoffReleased`.
    RegistryRecovered,
    /// An agent serves its node. Recorded by that agent.
    AgentStarted,
    /// An agent was stopped. Recorded by that agent.
    AgentStopped,
    /// An agent lacks its bus or its runtime. Recorded by that agent; the fleet's stream gets it when the bus is back.
    AgentDegraded,
    /// An agent is no longer degraded. Recorded by that agent.
    AgentRecovered,
    /// A reason of a newer version.
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

    /// The word, as kubelet writes it.
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

    /// Normal or Warning, as in kubelet (a back-off is Normal).
    #[must_use]
    pub fn event_type(self) -> EventType {
        match self {
            Self::Pulling | Self::Pulled | Self::BackOff | Self::SharingPaused | Self::SharingResumed | Self::BackoffCleared => {
                EventType::Normal
            }
            Self::BackoffProbed | Self::BackoffReleased | Self::Throttled | Self::RateRaised | Self::RegistryRecovered => EventType::Normal,
            Self::AgentStarted | Self::AgentStopped | Self::AgentRecovered => EventType::Normal,
            // The CloudEvent of its writer has the type.
            Self::Unknown(_) => EventType::Normal,
            Self::Failed | Self::InspectFailed | Self::ErrImageNeverPull | Self::EventsDropped => EventType::Warning,
            Self::BackoffOpened | Self::RateLowered | Self::RegistryUnavailable | Self::AgentDegraded => EventType::Warning,
        }
    }

    /// Whether repeats are folded into one event with a count, so that a failure of hours gives only a few events.
    #[must_use]
    pub fn is_folded(self) -> bool {
        let of_pull = matches!(self, Self::BackOff | Self::Failed | Self::InspectFailed | Self::ErrImageNeverPull);
        of_pull || matches!(self, Self::BackoffProbed | Self::Throttled | Self::AgentDegraded | Self::AgentRecovered)
    }

    /// Whether no answer waits until the event is stored: its pull goes on, or it is about an entry or a rate. The recorder answers at
    /// once, and stores it with the next event or a moment later.
    #[must_use]
    pub fn is_noted(self) -> bool {
        let of_entry = matches!(self, Self::BackoffOpened | Self::BackoffProbed | Self::BackoffReleased);
        let of_registry = matches!(self, Self::RegistryUnavailable | Self::RegistryRecovered | Self::RateLowered | Self::RateRaised);
        of_entry || of_registry || matches!(self, Self::Pulling | Self::Throttled)
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

/// The event types of Kubernetes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum EventType {
    /// Everything is as expected.
    Normal,
    /// A person may want to check.
    Warning,
}

impl EventType {
    /// The word, as Kubernetes writes it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// One event on one node, mostly about one image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PullEvent {
    /// Unique; a repeated event has the same id.
    pub id: MessageId,
    /// Milliseconds since 1970 on the node's clock.
    pub time_ms: u64,
    /// The node.
    pub node: NodeName,
    /// The pod, if one was named.
    #[serde(default)]
    pub pod: Option<PodRef>,
    /// The image as asked for; empty if it is about no image.
    pub image: String,
    /// The image's registry (`host[:port]`); none if the reference cannot be parsed, or if the event is about no single registry.
    #[serde(default)]
    pub registry: Option<String>,
    /// What happened.
    pub reason: EventReason,
    /// The message; kubelet's exact text if the reason is kubelet's.
    pub message: String,
    /// How long the pull took without waiting; only on Failed, and on Pulled after a pull.
    #[serde(default)]
    pub duration_ms: Option<u64>,
    /// How long it waited before that, or until the image turned out to be present.
    #[serde(default)]
    pub waiting_ms: Option<u64>,
    /// The image's size; only on Pulled.
    #[serde(default)]
    pub size_bytes: Option<u64>,
    /// The class of the failure; only on failures and back-offs.
    #[serde(default)]
    pub class: Option<FailureClass>,
    /// The attempt.
    #[serde(default)]
    pub attempt: Option<AttemptId>,
    /// Milliseconds until the next attempt is allowed; only on failures and back-offs.
    #[serde(default)]
    pub next_attempt_ms: Option<u64>,
    /// Which node learned of the failure; none: this one. Only on back-offs.
    #[serde(default)]
    pub learned_by: Option<NodeName>,
    /// How long ago that was, in milliseconds. Only on back-offs.
    #[serde(default)]
    pub learned_ms_ago: Option<u64>,
    /// The span of the attempt that failed. Only on back-offs.
    #[serde(default)]
    pub learned_trace: Option<TraceContext>,
    /// The span of the event: the pull's, or that of the attempt that opened or closed an entry.
    pub trace: TraceContext,
    /// The id of the back-off entry that it is about or that refused the pull; the same on all nodes.
    #[serde(default)]
    pub entry: Option<String>,
    /// Details of some reasons; none: none.
    #[serde(default)]
    pub details: Option<EventDetails>,
    /// The repeats that it stands for; none: it happened once.
    #[serde(default)]
    pub repeats: Option<Repeats>,
    /// Its place among the stored events of its node; none: it is published but not stored.
    #[serde(default)]
    pub sequence: Option<EventSequence>,
}

/// Details of events that are not about a pull; which are set depends on the reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct EventDetails {
    /// The cause in a word: `policy`, `quota`, `silent_nodes`, `overload` or `starting` of a rate; `slots` or `budget` of a waiting pull;
    /// `invalid_name` of a request that cannot be parsed; `bus`, `runtime` or `events` of an agent.
    pub cause: Option<String>,
    /// How long it lasted, in milliseconds: the failure that is over, or the agent's trouble or life.
    pub lasted_ms: Option<u64>,
    /// How many nodes report the failure.
    pub reporters: Option<u64>,
    /// How often in a row the probe has failed.
    pub failures: Option<u64>,
    /// How many pulls a budget now allows in 1,000 s. While it starts, the rate that the start leads to; the message has the rate in force.
    pub per_1000_s: Option<u64>,
    /// How many it allowed before.
    pub per_1000_s_before: Option<u64>,
}

/// Several occurrences in one event; its `time_ms` is the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Repeats {
    /// How many since the previous event of the same kind.
    pub count: u64,
    /// The time of the first, in milliseconds since 1970.
    pub first_ms: u64,
}

/// The place of an event among the stored events of its node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventSequence {
    /// Made with the node's state directory, so a node that is replaced under its old name counts anew.
    pub incarnation: String,
    /// Counts from 1 without gaps; a gap means that an event was lost.
    pub number: u64,
}

impl PullEvent {
    /// An event on a node without details, image, registry or pod.
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

    /// Whether it is stored until the fleet's stream has it. An event that an image was already present is only published, unless the pull
    /// had begun to wait: its Pulling is stored, and the end follows it.
    #[must_use]
    pub fn is_durable(&self) -> bool {
        !(self.reason == EventReason::Pulled && self.duration_ms.is_none() && self.waiting_ms.is_none())
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
