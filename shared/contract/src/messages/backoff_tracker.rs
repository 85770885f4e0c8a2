//! The messages of the back-off tracker.

mod clearance;
mod entry_query;
mod key_parts;
mod operating;

use serde::{Deserialize, Serialize};

pub use self::clearance::*;
pub use self::entry_query::{EntryQuery, is_key};
pub use self::key_parts::{EntryKind, KeyParts};
pub use self::operating::*;

use super::registrar::FleetSeen;
use crate::open::open_answer;
use crate::{AttemptId, Command, FailureClass, NodeName, PodRef, Service, Stage, Target, TraceContext};

/// The local key: the pod and the image string as asked for, as in kubelet (`busybox` and `busybox:latest` are two).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LocalKey {
    /// The pod; none for the nameless one.
    #[serde(default)]
    pub pod: Option<PodRef>,
    /// The image as asked for.
    pub image: String,
}

/// Asks whether an attempt at this image is allowed now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckBackoff {
    /// The key.
    pub key: LocalKey,
    /// Whether this is only a look: the cause of the last failure is kept even if an attempt is allowed.
    #[serde(default)]
    pub peek: bool,
    /// The wanted image, to check the fleet's entries; none: only this node's own back-off is checked.
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
    /// An attempt is allowed.
    Allowed,
    /// It is too soon.
    Refused(Refusal),
    /// An answer of a newer version. Never written.
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
    /// `<reason>: <message>` of the failure; empty if it is no longer known.
    pub cause: String,
    /// The class of the failure.
    pub class: FailureClass,
    /// Milliseconds until the next attempt by any node is allowed.
    pub next_attempt_ms: u64,
    /// Which node learned of the failure; none: this one.
    #[serde(default)]
    pub learned_by: Option<NodeName>,
    /// How long ago that was, in milliseconds.
    #[serde(default)]
    pub learned_ms_ago: u64,
    /// The span of the attempt that failed, for a link.
    #[serde(default)]
    pub learned_trace: Option<TraceContext>,
    /// Only one other node reports it: an attempt waits until then, and nobody is refused because of it.
    #[serde(default)]
    pub unconfirmed: bool,
    /// The entry's key as listed; none: this node's own rule refuses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entry: Option<String>,
}

/// The result of an attempt. Reporting the same attempt for the same key again changes nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportAttempt {
    /// The local key whose back-off it changes.
    pub key: LocalKey,
    /// The attempt.
    pub attempt: AttemptId,
    /// The span of that attempt if it has failed; refusals by this back-off link to it. None: the registry was not asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt_span: Option<TraceContext>,
    /// None: it succeeded.
    #[serde(default)]
    pub failure: Option<AttemptFailure>,
    /// The image that could not be pulled. The back-off tracker uses it if it does not know the attempt; without it, other nodes' successes
    /// do not end the back-off of such an attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<Target>,
}

/// Why an attempt failed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptFailure {
    /// The class.
    pub class: FailureClass,
    /// `<reason>: <message>`, kept as the cause of refusals.
    pub cause: String,
    /// Whether a registry reported it itself, by its error body, a header of its own, 429 or `Retry-After`.
    #[serde(default)]
    pub authoritative: bool,
    /// The `host:port` that was asked, if it is not the target's first endpoint: a mirror, token server, blob host.
    #[serde(default)]
    pub endpoint: Option<String>,
    /// The stage that failed.
    #[serde(default, skip_serializing_if = "Stage::is_default")]
    pub stage: Stage,
    /// The image has no manifest for the platform; its content is not broken.
    #[serde(default)]
    pub no_such_platform: bool,
    /// For how long the registry wants no further requests, in milliseconds.
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
    /// The key, as listed, of the shared entry that the failure opened or kept open; none: it concerns only this node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entry: Option<String>,
}

/// Asks how many keys are in back-off now.
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
    /// Keys that are kept.
    pub known: u64,
    /// Checks answered with a refusal since start.
    pub refused_total: u64,
    /// Failures counted since start.
    pub failures_total: u64,
    /// Keys forgotten because there were too many.
    pub evicted_total: u64,
    /// The counts of sharing, if this node takes part.
    #[serde(default)]
    pub shared: SharedCounts,
}

/// Counts and state of sharing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SharedCounts {
    /// Whether the node is without bus, so that it follows kubelet's rule.
    pub alone: bool,
    /// Whether the node only observes: it refuses nothing by what is shared.
    pub observes: bool,
    /// Back-off entries of failures that have not ended.
    pub entries: u64,
    /// How many of them refuse pulls of this node. None does while the node is observing or in a pause. Without a bus, entries that were
    /// known when it was lost do for a while.
    #[serde(default)]
    pub binding: u64,
    /// Reports in the replica.
    pub reports: u64,
    /// Requests for clearance that wait or are granted.
    pub requests: u64,
    /// Pauses in force.
    pub pauses: u64,
    /// Refusals because of failures that other nodes reported.
    pub refused_total: u64,
    /// Refusals that `fleet.share = observe` or a pause prevented.
    pub observed_total: u64,
    /// Attempts made for all: leads and probes.
    pub for_all_total: u64,
    /// Attempts abandoned: they hung while others were answered, or waited for a permit while others failed.
    pub abandoned_total: u64,
    /// Requests for clearance withdrawn because they were not repeated.
    pub lapsed_total: u64,
    /// Failures dropped because they came after the end of their lease.
    pub late_results_total: u64,
    /// Requests for clearance refused because there was no room.
    pub no_room_total: u64,
    /// Reports published.
    pub reports_sent_total: u64,
    /// Reports that the bus did not take; they are published again.
    pub reports_unsent_total: u64,
    /// Received reports that were new.
    pub reports_received_total: u64,
    /// Reports that changed nothing.
    pub reports_stale_total: u64,
    /// Reports that could not be read or that their writer may not make.
    pub reports_refused_total: u64,
    /// Of them those of a version that this node does not read.
    #[serde(default)]
    pub other_version_total: u64,
    /// Reports with an impossible time, which was clamped.
    pub reports_clamped_total: u64,
    /// Reports forgotten because there was no room.
    pub reports_evicted_total: u64,
    /// Failures that this node did not publish because others succeed where it fails.
    pub kept_to_itself_total: u64,
    /// Answers of the bus that came too late.
    pub bus_misses_total: u64,
    /// Changes that the registrar has announced and the replica lacks.
    pub replica_lag: u64,
    /// Times that the replica had a gap.
    pub gaps_total: u64,
    /// Times that all reports were read.
    pub snapshots_total: u64,
    /// Clears received or made.
    pub cleared_total: u64,
}

/// To the node's own tracker: the state of the fleet, from the registrar.
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
