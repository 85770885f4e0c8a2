//! What the back-off tracker answers.

mod clearance;
mod entry_about;
mod entry_query;
mod operating;

use serde::{Deserialize, Serialize};

pub use self::clearance::*;
pub use self::entry_about::{EntryAbout, EntryKind};
pub use self::entry_query::{EntryQuery, is_key};
pub use self::operating::*;

use super::registrar::FleetSeen;
use crate::open::open_answer;
use crate::{AttemptId, Command, FailureClass, NodeName, PodRef, Service, Stage, Target, TraceContext};

/// Whose back-off: kubelet's key, the pod and the image string as asked for (`busybox` and `busybox:latest` are two).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LocalKey {
    /// The pod; none for the nameless one.
    #[serde(default)]
    pub pod: Option<PodRef>,
    /// The image as asked for.
    pub image: String,
}

/// May this image be tried now?
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckBackoff {
    /// The key.
    pub key: LocalKey,
    /// Only looking: the cause of the last failure is kept even if a try is allowed.
    #[serde(default)]
    pub peek: bool,
    /// What is wanted, for what the fleet knows of it; none: this node's own back-off alone is looked at.
    #[serde(default)]
    pub target: Option<Target>,
}

impl Command for CheckBackoff {
    type Reply = BackoffAnswer;
    const SERVICE: Service = Service::BackoffTracker;
    const VERB: &'static str = "check";
}

/// The answer to [`CheckBackoff`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self", rename_all = "snake_case")]
pub enum BackoffAnswer {
    /// Go ahead.
    Allowed,
    /// Too soon.
    Refused(Refusal),
    /// What a newer version answered. Never written.
    #[serde(skip)]
    Unknown {
        /// Its name.
        name: String,
    },
}

open_answer!(BackoffAnswer: "allowed", "refused");

/// Why it is too soon.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// `<reason>: <message>` of the failure; empty if it is not known any more.
    pub cause: String,
    /// What the failure was about.
    pub class: FailureClass,
    /// Milliseconds until a try is allowed, by any node.
    pub next_attempt_ms: u64,
    /// Which node found out; none: this one.
    #[serde(default)]
    pub learned_by: Option<NodeName>,
    /// How long ago that was, in milliseconds.
    #[serde(default)]
    pub learned_ms_ago: u64,
    /// The span of the attempt that failed, for a link.
    #[serde(default)]
    pub learned_trace: Option<TraceContext>,
    /// One other node alone reports it: an attempt waits until then, and nobody is refused for it.
    #[serde(default)]
    pub unconfirmed: bool,
    /// The entry, by its key as listed; none: it is this node's own rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entry: Option<String>,
}

/// How an attempt ended. Reporting the same attempt for the same key again changes nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportAttempt {
    /// Whose back-off it moves.
    pub key: LocalKey,
    /// Which attempt.
    pub attempt: AttemptId,
    /// The span of that attempt if it has failed: what refusals by this back-off link to. None: the registry was not asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt_span: Option<TraceContext>,
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
    /// Whether a registry said so itself, with its error body, a header of its own, 429 or `Retry-After`.
    #[serde(default)]
    pub authoritative: bool,
    /// `host:port` that was asked, if another than the target's first: a mirror, token server, blob host.
    #[serde(default)]
    pub endpoint: Option<String>,
    /// Which stage failed.
    #[serde(default, skip_serializing_if = "Stage::is_default")]
    pub stage: Stage,
    /// The image has nothing for the platform, as opposed to broken content.
    #[serde(default)]
    pub no_such_platform: bool,
    /// How long the registry asks to be left alone, in milliseconds.
    #[serde(default)]
    pub retry_after_ms: Option<u64>,
}

impl Command for ReportAttempt {
    type Reply = AttemptReported;
    const SERVICE: Service = Service::BackoffTracker;
    const VERB: &'static str = "report";
}

/// The answer to [`ReportAttempt`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptReported {
    /// Milliseconds until the next attempt is allowed; none after a success.
    #[serde(default)]
    pub next_attempt_ms: Option<u64>,
    /// The shared entry that the failure opened or kept open, by its key as listed; none: it is this node's own affair.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entry: Option<String>,
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
    /// Keys whose next attempt is not allowed yet.
    pub held: u64,
    /// Keys that are remembered.
    pub known: u64,
    /// Checks answered with a refusal since start.
    pub refused_total: u64,
    /// Failures counted since start.
    pub failures_total: u64,
    /// Keys forgotten because there were too many.
    pub evicted_total: u64,
    /// What the fleet shares, as far as this node takes part.
    #[serde(default)]
    pub shared: SharedCounts,
}

/// How sharing with the fleet goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SharedCounts {
    /// Whether the bus is gone, so that the node goes by kubelet's rule.
    pub alone: bool,
    /// Whether the node only observes: it refuses nothing by what is shared.
    pub observes: bool,
    /// Entries of all back-off keys that fail now.
    pub entries: u64,
    /// Of them those that hold this node back: neither alone, nor observing, nor during a pause.
    #[serde(default)]
    pub binding: u64,
    /// Reports held.
    pub reports: u64,
    /// Clearances that wait or go.
    pub requests: u64,
    /// Pauses in force.
    pub pauses: u64,
    /// Refusals because of what other nodes learned.
    pub refused_total: u64,
    /// What `fleet.share = observe` or a pause would have refused.
    pub observed_total: u64,
    /// Attempts made on behalf of all: leads and probes.
    pub for_all_total: u64,
    /// Attempts abandoned: they hung while others were answered, or waited for a permit when others failed.
    pub abandoned_total: u64,
    /// Clearances withdrawn because nobody asked for them any more.
    pub lapsed_total: u64,
    /// Failures that came after their lease had run out, dropped.
    pub late_results_total: u64,
    /// Requests for clearance refused because there was no room.
    pub no_room_total: u64,
    /// Reports put on the bus.
    pub reports_sent_total: u64,
    /// Reports that the bus did not take, to be written again.
    pub reports_unsent_total: u64,
    /// Reports heard that said something new.
    pub reports_heard_total: u64,
    /// Reports that changed nothing.
    pub reports_stale_total: u64,
    /// Reports that could not be read or that were not their writer's to make.
    pub reports_refused_total: u64,
    /// Of them those that were of a version which this node does not read.
    #[serde(default)]
    pub other_version_total: u64,
    /// Reports with a time that could not be, clamped.
    pub reports_clamped_total: u64,
    /// Reports forgotten because there was no room.
    pub reports_evicted_total: u64,
    /// Reporters that others contradicted.
    pub contradicted_total: u64,
    /// Failures that this node kept to itself because others contradicted it.
    pub kept_to_itself_total: u64,
    /// Answers of the bus that did not come in time.
    pub bus_misses_total: u64,
    /// Changes that the registrar has announced and this node does not hold yet.
    pub replica_lag: u64,
    /// Times that this node has missed something on the bus.
    pub gaps_total: u64,
    /// Times that all reports were read.
    pub snapshots_total: u64,
    /// Clears heard or made.
    pub cleared_total: u64,
}

/// To the node's own tracker: how the fleet stands, as the registrar says it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeeFleet(pub FleetSeen);

impl Command for SeeFleet {
    type Reply = FleetNoted;
    const SERVICE: Service = Service::BackoffTracker;
    const VERB: &'static str = "fleet";
}

/// The answer to [`SeeFleet`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FleetNoted {}
