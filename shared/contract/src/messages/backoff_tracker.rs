//! What the back-off tracker answers.

use serde::{Deserialize, Serialize};

use crate::{AttemptId, Command, FailureClass, PodRef, Service};

/// Whose back-off: kubelet's key, the pod and the image string as asked for (`busybox` and `busybox:latest` are two).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BackoffKey {
    /// The pod; none for the nameless one.
    #[serde(default)]
    pub pod: Option<PodRef>,
    /// The image as asked for.
    pub image: String,
}

/// May this image be tried now?
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckBackoff {
    /// Whose.
    pub key: BackoffKey,
    /// Only looking: the cause of the last failure is kept even if a try is allowed.
    #[serde(default)]
    pub peek: bool,
}

impl Command for CheckBackoff {
    type Reply = BackoffAnswer;
    const SERVICE: Service = Service::BackoffTracker;
    const VERB: &'static str = "check";
}

/// The answer to [`CheckBackoff`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BackoffAnswer {
    /// Go ahead.
    Clear,
    /// Too soon.
    Held(Held),
}

/// Why it is too soon.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// `<reason>: <message>` of the failure; empty if it is not known any more.
    pub cause: String,
    /// What the failure was about.
    pub class: FailureClass,
    /// Milliseconds until a try is allowed.
    pub next_try_ms: u64,
}

/// How an attempt ended. Reporting the same attempt for the same key again changes nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportAttempt {
    /// Whose back-off it moves.
    pub key: BackoffKey,
    /// Which attempt.
    pub attempt: AttemptId,
    /// None: it succeeded.
    #[serde(default)]
    pub failure: Option<AttemptFailure>,
}

/// Why an attempt failed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptFailure {
    /// What it was about.
    pub class: FailureClass,
    /// `<reason>: <message>`, kept as the cause of refusals.
    pub cause: String,
}

impl Command for ReportAttempt {
    type Reply = AttemptReported;
    const SERVICE: Service = Service::BackoffTracker;
    const VERB: &'static str = "report";
}

/// The answer to [`ReportAttempt`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptReported {
    /// Milliseconds until the next try is allowed; none after a success.
    #[serde(default)]
    pub next_try_ms: Option<u64>,
}

/// How many keys are held back now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountBackoffs {}

impl Command for CountBackoffs {
    type Reply = BackoffCounts;
    const SERVICE: Service = Service::BackoffTracker;
    const VERB: &'static str = "count";
}

/// The answer to [`CountBackoffs`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackoffCounts {
    /// Keys whose next try is not allowed yet.
    pub held: u64,
    /// Keys that are remembered.
    pub known: u64,
    /// Checks answered with a refusal since start.
    pub refused_total: u64,
    /// Failures counted since start.
    pub failures_total: u64,
    /// Keys forgotten because there were too many.
    pub evicted_total: u64,
}
