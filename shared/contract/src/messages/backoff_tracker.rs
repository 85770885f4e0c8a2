//! What the back-off tracker answers.

use serde::{Deserialize, Serialize};

use super::registrar::FleetSeen;
use crate::open::open_answer;
use crate::{AttemptId, ClearanceId, Command, FailureClass, NodeName, PodRef, Service, Stage, Target, TraceContext, View};

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
    /// Milliseconds until a try is allowed, by whomever.
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

/// May this image be attempted, as far as the fleet is concerned? Asked once for a flight after [`CheckBackoff`] was clear, and
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

/// What an attempt that had clearance has come to: said of each stage when it has answered, and of a failure that comes before the stage of the
/// leave. What fails later is said by [`ReportAttempt`] alone.
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

/// What this node knows of failures: its own back-offs and what the fleet shares.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListBackoffs {
    /// Only what this names: a key as listed or its beginning, or an image that is held back. None: all.
    #[serde(default)]
    pub what: Option<String>,
    /// Only of this registry, as images name it. None: of all.
    #[serde(default)]
    pub registry: Option<String>,
    /// At most so many entries; none: [`LISTED_MOST`].
    #[serde(default)]
    pub limit: Option<u64>,
    /// Of what is shared the key alone: another node has told the rest.
    #[serde(default)]
    pub shared_by_key: bool,
}

/// The most entries of one list: at half a kilobyte each, what a message may hold.
pub const LISTED_MOST: usize = 1_000;

impl Command for ListBackoffs {
    type Reply = BackoffList;
    const SERVICE: Service = Service::BackoffTracker;
    const VERB: &'static str = "list";
}

/// The answer to [`ListBackoffs`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackoffList {
    /// What is known and looked for, shared entries first. At most [`LISTED_MOST`]; see `left_out`.
    pub entries: Vec<BackoffEntry>,
    /// The keys of what is shared, if no more than these was asked for.
    #[serde(default)]
    pub shared_keys: Vec<String>,
    /// How many more of these there are.
    #[serde(default)]
    pub left_out: u64,
    /// How many others there are that were not looked for.
    #[serde(default)]
    pub others: u64,
    /// `enforce`, `observe`, `off`.
    pub share: String,
    /// Whether the bus is gone, so that the node goes by kubelet's rule.
    #[serde(default)]
    pub alone: bool,
    /// Pauses in force.
    #[serde(default)]
    pub pauses: Vec<Pause>,
}

/// One failure that is known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BackoffEntry {
    /// Names it in `explain` and `clear`: 32 hex digits for what is shared, else the image, for a pod `namespace/name image`.
    pub key: String,
    /// What it is about, in words: `image registry.example/a:1`, `registry registry.example:443 from zone a`.
    pub about: String,
    /// The node's view of the registry; none for what is this node's own.
    pub view: Option<View>,
    /// What kind of failure.
    pub class: FailureClass,
    /// Who binds: `everybody`, `reporters` (not corroborated yet), `this node`.
    pub binds: String,
    /// Who says so, the newest first; at most 10.
    pub reporters: Vec<String>,
    /// How many say so.
    pub reporter_count: u64,
    /// Which failure in a row.
    pub step: u32,
    /// How long ago the first of them was, in milliseconds.
    pub since_ms: u64,
    /// How long ago the last was, in milliseconds.
    pub last_ms_ago: u64,
    /// Milliseconds until the next attempt; 0 when it is due.
    pub next_attempt_ms: u64,
    /// Who holds the lead or the probe now, if somebody does.
    pub probed_by: Option<String>,
    /// `<reason>: <message>` of the last failure.
    pub cause: String,
    /// The span of the attempt that failed last.
    pub trace: Option<TraceContext>,
}

/// Forget what holds an image or an entry, here. To every node at once it is said on the bus.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClearBackoff {
    /// A key as listed, or an image.
    pub what: String,
    /// Who clears, for the event: `user@host`.
    pub by: String,
}

impl Command for ClearBackoff {
    type Reply = BackoffCleared;
    const SERVICE: Service = Service::BackoffTracker;
    const VERB: &'static str = "clear";
}

/// The answer to [`ClearBackoff`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackoffCleared {
    /// What was forgotten, as listed in `about`; empty: nothing matched.
    pub cleared: Vec<String>,
    /// What was not cleared, and why, in words.
    #[serde(default)]
    pub still_binding: Vec<String>,
}

/// Nobody is refused by shared knowledge for a while, on every node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PauseSharing {
    /// Of which registry (`host[:port]`); none: all.
    #[serde(default)]
    pub registry: Option<String>,
    /// For how long, in milliseconds; 0 ends a pause.
    pub for_ms: u64,
    /// Who pauses, for the event: `user@host`.
    pub by: String,
}

impl Command for PauseSharing {
    type Reply = SharingPaused;
    const SERVICE: Service = Service::BackoffTracker;
    const VERB: &'static str = "pause";
}

/// The answer to [`PauseSharing`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharingPaused {
    /// The pauses in force now.
    pub pauses: Vec<Pause>,
    /// Why only this node was told, in words: it tells the others when it can. None: all are told.
    #[serde(default)]
    pub only_here: Option<String>,
}

/// A pause in force.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pause {
    /// Of which registry; none: all.
    #[serde(default)]
    pub registry: Option<String>,
    /// Milliseconds until it ends by itself.
    pub left_ms: u64,
    /// Who paused.
    pub by: String,
}
