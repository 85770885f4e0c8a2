//! Clearance for a flight, and what becomes of its attempts.

use serde::{Deserialize, Serialize};

use super::{AttemptFailure, LocalKey, Refusal};
use crate::open::open_answer;
use crate::{AttemptId, ClearanceId, Command, Service, Stage, Target, TraceContext};

/// May this image be attempted, as far as the fleet is concerned? Asked once for a flight after [`CheckBackoff`](super::CheckBackoff) was clear, and
/// again with the same id and attempt while the answer is [`Clearance::Waiting`], and every [`CLEARANCE_WATCHED_EVERY_MS`] while the attempt goes on,
/// to hear of [`Clearance::Abandoned`]. A request that is not repeated for [`CLEARANCE_LAPSES_AFTER_MS`] is withdrawn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestClearance {
    /// The same for all attempts of one flight.
    pub clearance: ClearanceId,
    /// The attempt that would begin.
    pub attempt: AttemptId,
    /// The span of that attempt; it is sampled if the attempt will be exported should it fail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt_span: Option<TraceContext>,
    /// For the local rule.
    pub key: LocalKey,
    /// Keys of the flight's other callers, at most [`OTHER_KEYS_MOST`]: the local rule holds the flight only while it holds all keys.
    /// Each question replaces the keys of the one before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub other_keys: Vec<LocalKey>,
    /// What is wanted.
    pub target: Target,
    /// Whether a standing pull asks: it is answered only when it may go ahead, and with [`Clearance::Waiting`] when `patience_ms` is over.
    #[serde(default)]
    pub standing: bool,
    /// How long the answer may be held back while nothing is decided, in milliseconds.
    pub patience_ms: u64,
}

/// The most keys beside the first: kubelet runs 110 pods on a node by default.
pub const OTHER_KEYS_MOST: usize = 110;
/// How often an attempt under way asks whether it was abandoned.
pub const CLEARANCE_WATCHED_EVERY_MS: u64 = 10_000;
/// A request that is not repeated for so long counts as withdrawn, because its caller died.
pub const CLEARANCE_LAPSES_AFTER_MS: u64 = 30_000;

impl Command for RequestClearance {
    type Reply = Clearance;
    const SERVICE: Service = Service::BackoffTracker;
    const VERB: &'static str = "clearance";
}

/// The answer to [`RequestClearance`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self", rename_all = "snake_case")]
pub enum Clearance {
    /// Go ahead, or on.
    Granted {
        /// Whether the attempt is made on behalf of others too (lead or probe).
        for_all: bool,
        /// `until` must have answered within so many milliseconds from now, else the attempt is to be ended as failed; none: no haste.
        #[serde(default)]
        answer_within_ms: Option<u64>,
        /// The stage that must have answered by then. What the attempt holds for all it holds until then.
        #[serde(default, skip_serializing_if = "Stage::is_default")]
        until: Stage,
        /// The span of the attempt that succeeded, by which the entry that held this one was closed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        released_by: Option<TraceContext>,
    },
    /// Not before its next attempt. Not said to a standing pull, and not of what is unconfirmed.
    Refused(Refusal),
    /// Nothing is decided yet: ask again. Somebody else is finding out, a standing pull is held, or one other node alone reports a failure.
    Waiting {
        /// What holds a standing pull, or delays any, if something does.
        #[serde(default)]
        held: Option<Refusal>,
    },
    /// End the attempt without a word: it hangs, while others are answered, or it waits for a permit, and others have failed. Then ask
    /// with a new attempt.
    Abandoned,
    /// What a newer version answered. Never written.
    #[serde(skip)]
    Unknown {
        /// Its name.
        name: String,
    },
}

open_answer!(Clearance: "granted", "refused", "waiting", "abandoned");

/// An attempt that had clearance has its permit and begins now. Until this is said its silence is the queue's and not the registry's:
/// nobody is told that it is unanswered. And clearance that is not for all lapses if others fail meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BeginAttempt {
    /// Of which request for clearance.
    pub clearance: ClearanceId,
    /// Which attempt.
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

/// What an attempt with clearance has come to: sent when a stage has answered, and when the attempt fails before the stage that its clearance
/// covers. A later failure is reported by [`ReportAttempt`](super::ReportAttempt) alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResolveAttempt {
    /// Of which request for clearance.
    pub clearance: ClearanceId,
    /// Which attempt.
    pub attempt: AttemptId,
    /// None: `stage` has answered.
    #[serde(default)]
    pub failure: Option<AttemptFailure>,
    /// Which stage has answered.
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

/// The request for clearance is over, fulfilled or not. To withdraw an unknown one changes nothing.
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
