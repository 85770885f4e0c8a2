//! Pulls that are retried until their image is there.

use serde::{Deserialize, Serialize};

use crate::{Command, FailureClass, PodRef, Service, StandingPullId};

/// Asks for the standing pulls of this node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListStandingPulls {}

impl Command for ListStandingPulls {
    type Reply = StandingPullList;
    const SERVICE: Service = Service::PullCoordinator;
    const VERB: &'static str = "standing-pulls";
}

/// The answer to [`ListStandingPulls`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StandingPullList {
    /// Oldest first, as many as fit into a message; see `left_out`.
    pub standing_pulls: Vec<StandingPullStatus>,
    /// How many more there are.
    #[serde(default)]
    pub left_out: u64,
}

/// The state of one standing pull.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StandingPullStatus {
    /// Its id, for `cancel`.
    pub standing_pull: StandingPullId,
    /// The image as asked for.
    pub image: String,
    /// The pod, if one was named.
    #[serde(default)]
    pub pod: Option<PodRef>,
    /// Which platform, if one was named.
    #[serde(default)]
    pub platform: Option<String>,
    /// What it is doing.
    #[serde(default)]
    pub state: StandingPullState,
    /// For how long it has existed, in milliseconds.
    #[serde(default)]
    pub since_ms: u64,
    /// For how long it will still be kept, in milliseconds.
    #[serde(default)]
    pub left_ms: u64,
    /// How many callers wait for it; it goes on without any.
    #[serde(default)]
    pub callers: u32,
    /// How often it was tried or refused so far.
    #[serde(default)]
    pub attempts: u64,
    /// What holds it, held it last, or why its last attempt failed: `<reason>: <message>`. Without a class, what it waits for in words;
    /// empty while it waits only for its node. Its beginning, if it is long and there are many standing pulls.
    #[serde(default)]
    pub cause: String,
    /// The class of that cause.
    #[serde(default)]
    pub class: Option<FailureClass>,
    /// Milliseconds until the next attempt, by any node.
    #[serde(default)]
    pub next_attempt_ms: Option<u64>,
    /// Which node learned of the failure; none: this one.
    #[serde(default)]
    pub learned_by: Option<String>,
    /// How long ago that was, in milliseconds.
    #[serde(default)]
    pub learned_ms_ago: Option<u64>,
    /// The trace of the attempt that failed, 32 hex digits.
    #[serde(default)]
    pub learned_trace_id: Option<String>,
}

/// What a standing pull is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StandingPullState {
    /// A failure prevents the next attempt.
    Held,
    /// The runtime is pulling.
    Pulling,
    /// It waits for a permit. Also stands for states of a newer version.
    #[default]
    #[serde(other)]
    Waiting,
}

/// Cancels standing pulls. Their callers are answered; a running pull goes on if another caller waits for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CancelStandingPull {
    /// The id of a standing pull, or an image, for all its standing pulls.
    pub what: String,
    /// Who cancels, `user@host`; empty: an older version does not report it.
    #[serde(default)]
    pub by: String,
}

impl Command for CancelStandingPull {
    type Reply = StandingPullsCancelled;
    const SERVICE: Service = Service::PullCoordinator;
    const VERB: &'static str = "cancel";
}

/// The answer to [`CancelStandingPull`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StandingPullsCancelled {
    /// The cancelled ones, as many as fit into a message; see `left_out`. Empty: nothing matched.
    pub cancelled: Vec<StandingPullStatus>,
    /// How many more were cancelled.
    #[serde(default)]
    pub left_out: u64,
    /// Why they would begin again after a restart of the agent; none: they do not.
    #[serde(default)]
    pub problem: Option<String>,
}
