//! Requests to pull, and their outcomes.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::open::{UnknownText, open_text};
use crate::{Command, FailureClass, PodRef, Reason, Service, StandingPullId};

/// When to ask the registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum PullPolicy {
    /// Always.
    Always,
    /// Only if the image is not on the node.
    IfNotPresent,
    /// Never.
    Never,
}

impl PullPolicy {
    /// The policy, as Kubernetes writes it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Always => "Always",
            Self::IfNotPresent => "IfNotPresent",
            Self::Never => "Never",
        }
    }
}

impl fmt::Display for PullPolicy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

impl FromStr for PullPolicy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        [Self::Always, Self::IfNotPresent, Self::Never]
            .into_iter()
            .find(|policy| policy.as_str().eq_ignore_ascii_case(text))
            .ok_or_else(|| format!("{text:?} is not a pull policy; it is one of Always, IfNotPresent, Never"))
    }
}

/// Makes sure that an image is on this node. The answer comes when the outcome is known, however long that takes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnsureImage {
    /// The image as asked for.
    pub image: String,
    /// None: Kubernetes' default (Always for `latest`, else IfNotPresent).
    #[serde(default)]
    pub policy: Option<PullPolicy>,
    /// `os/arch[/variant]`; none: the node's own.
    #[serde(default)]
    pub platform: Option<String>,
    /// The pod. All callers on a node without one count as one nameless pod.
    #[serde(default)]
    pub pod: Option<PodRef>,
    /// How long the caller waits; its time-out ends only its own wait.
    #[serde(default)]
    pub timeout_ms: Option<u64>,
    /// For how long the node keeps a standing pull, in milliseconds: it goes on until the image is there, despite failures and refusals.
    /// None: the answer is kubelet's, at once.
    #[serde(default)]
    pub wait_ms: Option<u64>,
    /// The id of the standing pull, chosen by the asker, to ask again after a lost answer and to cancel it; none: the agent chooses one.
    #[serde(default)]
    pub standing_pull: Option<StandingPullId>,
    /// Whether to answer as soon as the standing pull is kept, instead of when it is over.
    #[serde(default)]
    pub detach: bool,
}

impl Command for EnsureImage {
    type Reply = PullOutcome;
    const SERVICE: Service = Service::PullCoordinator;
    const VERB: &'static str = "ensure";
}

/// The kind of an outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OutcomeKind {
    /// Pulled just now.
    Pulled,
    /// The image was there already.
    Present,
    /// The pull failed, or could not be tried.
    #[default]
    Failed,
    /// Not attempted, because the last failure is too recent.
    Backoff,
    /// A kind of a newer version.
    Unknown(UnknownText),
}

open_text!(OutcomeKind);

impl OutcomeKind {
    /// Every kind that this version writes.
    pub const ALL: [Self; 4] = [Self::Pulled, Self::Present, Self::Failed, Self::Backoff];

    /// The kind as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Pulled => "pulled",
            Self::Present => "present",
            Self::Failed => "failed",
            Self::Backoff => "backoff",
            Self::Unknown(text) => text.as_str(),
        }
    }
}

/// The answer to [`EnsureImage`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PullOutcome {
    /// How it ended.
    pub outcome: OutcomeKind,
    /// Kubelet's reason; none on success and on a time-out.
    #[serde(default)]
    pub reason: Option<Reason>,
    /// Kubelet's message, letter for letter; empty after a successful pull.
    pub message: String,
    /// The class of the failure; none on success.
    #[serde(default)]
    pub class: Option<FailureClass>,
    /// The runtime's name for the image; empty on failure.
    #[serde(default)]
    pub image_ref: String,
    /// The manifest's digest, if the runtime reports it.
    #[serde(default)]
    pub digest: Option<String>,
    /// `os/arch[/variant]`, if the runtime reports it.
    #[serde(default)]
    pub platform: Option<String>,
    /// The image's size; 0: unknown.
    #[serde(default)]
    pub size_bytes: u64,
    /// How long the pull itself took.
    #[serde(default)]
    pub duration_ms: u64,
    /// How long it waited before that. For a standing pull that ended with the image, this includes its earlier attempts.
    #[serde(default)]
    pub waiting_ms: u64,
    /// Milliseconds until the next attempt is allowed, after a failure.
    #[serde(default)]
    pub next_attempt_ms: Option<u64>,
    /// Which login was used, by its entry and file, never its user; empty: none was needed.
    #[serde(default)]
    pub auth: String,
    /// 32 hex digits.
    #[serde(default)]
    pub trace_id: String,
    /// The caller's time-out ended first. The pull goes on if another caller waits for it.
    #[serde(default)]
    pub timed_out: bool,
    /// On a refusal, which node learned of the failure; none: this one.
    #[serde(default)]
    pub learned_by: Option<String>,
    /// How long ago that was, in milliseconds.
    #[serde(default)]
    pub learned_ms_ago: Option<u64>,
    /// The trace of the attempt that failed, 32 hex digits.
    #[serde(default)]
    pub learned_trace_id: Option<String>,
    /// The standing pull, if one was kept.
    #[serde(default)]
    pub standing_pull: Option<StandingPullId>,
    /// The standing pull is kept, and nothing more is awaited: `outcome` has no meaning. Only after `detach`.
    #[serde(default)]
    pub stands: bool,
}
