//! Clearance for a flight, and the results of its attempts.

use serde::{Deserialize, Serialize};

use super::{AttemptFailure, LocalKey, Refusal};
use crate::open::open_answer;
use crate::{AttemptId, ClearanceId, Command, Service, Stage, Target, TraceContext};

/// Asks whether the fleet allows an attempt at this image. Sent once for a flight after [`CheckBackoff`](super::CheckBackoff) was clear,
/// again with the same id and attempt while the answer is [`Clearance::Waiting`], and every `DEADLINES.clearance_watched_every` during the
/// attempt, to receive [`Clearance::Abandoned`]. A request that is not repeated for `DEADLINES.clearance_lapses_after` is withdrawn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestClearance {
    /// The same for all attempts of one flight.
    pub clearance: ClearanceId,
    /// The attempt that is to begin.
    pub attempt: AttemptId,
    /// The span of that attempt; sampled if the attempt is exported when it fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt_span: Option<TraceContext>,
    /// The local key of the node's own rule.
    pub key: LocalKey,
    /// Keys of the flight's other callers, at most [`OTHER_KEYS_MOST`]: the own rule refuses the flight only while it refuses all keys.
    /// Each request replaces the keys of the previous one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub other_keys: Vec<LocalKey>,
    /// The wanted image.
    pub target: Target,
    /// Whether a standing pull asks. It gets an answer only when it is granted, or [`Clearance::Waiting`] after `patience_ms`.
    #[serde(default)]
    pub standing: bool,
    /// The longest time until the answer if nothing is decided, in milliseconds.
    pub patience_ms: u64,
}

/// The most keys in addition to the first: kubelet runs 110 pods on a node by default.
pub const OTHER_KEYS_MOST: usize = 110;

impl Command for RequestClearance {
    type Reply = Clearance;
    const SERVICE: Service = Service::BackoffTracker;
    const VERB: &'static str = "clearance";
}

/// The answer to [`RequestClearance`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self", rename_all = "snake_case")]
pub enum Clearance {
    /// The attempt may begin, or go on.
    Granted {
        /// Whether the attempt is made on behalf of others too (lead or probe).
        for_all: bool,
        /// `until` must be answered within this many milliseconds from now, else the attempt is to be ended as failed; none: no limit.
        #[serde(default)]
        answer_within_ms: Option<u64>,
        /// The stage that must be answered by then. The attempt keeps its lease for all until it is.
        #[serde(default, skip_serializing_if = "Stage::is_default")]
        until: Stage,
        /// The span of the successful attempt that closed the entry for which this one waited.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        released_by: Option<TraceContext>,
    },
    /// Not before the entry's next attempt. Not sent to a standing pull, and not for an unconfirmed entry.
    Refused(Refusal),
    /// Nothing is decided yet: ask again. Another node is finding out, a standing pull is held, or one other node alone reports a failure.
    Waiting {
        /// The entry that holds a standing pull, or delays any pull, if there is one.
        #[serde(default)]
        held: Option<Refusal>,
    },
    /// End the attempt without reporting a result: it hangs while others are answered, or it waits for a permit and others have failed.
    /// Then ask with a new attempt.
    Abandoned,
    /// An answer of a newer version. Never written.
    #[serde(skip)]
    Unknown {
        /// Its name.
        name: String,
    },
}

open_answer!(Clearance: "granted", "refused", "waiting", "abandoned");

/// An attempt with clearance has its permit and begins now. Before this message, its silence is due to the queue and not the registry, so
/// no unanswered report is published; and clearance that is not for all lapses if others fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BeginAttempt {
    /// The request for clearance.
    pub clearance: ClearanceId,
    /// The attempt.
    pub attempt: AttemptId,
}

impl Command for BeginAttempt {
    type Reply = AttemptBegun;
    const SERVICE: Service = Service::BackoffTracker;
    const VERB: &'static str = "begin";
}

/// The answer to [`BeginAttempt`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptBegun {}

/// The result of an attempt with clearance: sent when a stage is answered, and when the attempt fails before the stage that its clearance
/// covers. A later failure is reported by [`ReportAttempt`](super::ReportAttempt) alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResolveAttempt {
    /// The request for clearance.
    pub clearance: ClearanceId,
    /// The attempt.
    pub attempt: AttemptId,
    /// None: `stage` was answered.
    #[serde(default)]
    pub failure: Option<AttemptFailure>,
    /// The answered stage.
    #[serde(default, skip_serializing_if = "Stage::is_default")]
    pub stage: Stage,
}

impl Command for ResolveAttempt {
    type Reply = AttemptResolved;
    const SERVICE: Service = Service::BackoffTracker;
    const VERB: &'static str = "resolve";
}

/// The answer to [`ResolveAttempt`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptResolved {}

/// The request for clearance is over, fulfilled or not. Withdrawing an unknown one changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WithdrawClearance {
    /// The request for clearance.
    pub clearance: ClearanceId,
}

impl Command for WithdrawClearance {
    type Reply = ClearanceWithdrawn;
    const SERVICE: Service = Service::BackoffTracker;
    const VERB: &'static str = "withdraw";
}

/// The answer to [`WithdrawClearance`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClearanceWithdrawn {}
