//! What goes into the state machine and what comes out of it.

use std::sync::Arc;
use std::time::Duration;

use contract::messages::backoff_tracker::{
    BackoffAnswer, BeginAttempt, Clearance, LocalKey, ReportAttempt, RequestClearance, ResolveAttempt,
};
use contract::messages::pull_coordinator::{EnsureImage, PullOutcome};
use contract::messages::throttler::{PermitAnswer, RegistryLimit};
use contract::{ClearanceId, FailureClass, PermitId, PullEvent, Stage, StandingPullId, Target, TraceContext};
use image::{Platform, Reference};
use serde::{Deserialize, Serialize};

use super::registry_word::RegistryWord;

/// One caller's request on this node. Given by the shell, never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestId(pub u64);

/// One pull on this node, whoever waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FlightId(pub u64);

/// An image that is on the node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageFacts {
    /// The runtime's name for it.
    pub image_ref: String,
    /// Bytes; 0 when unknown.
    pub size_bytes: u64,
    /// The manifest's digest, if the runtime says it.
    pub digest: Option<String>,
    /// `os/arch[/variant]`, if the runtime says it.
    pub platform: Option<String>,
}

/// An image that the runtime says it pulled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PulledFacts {
    /// The runtime's name for it.
    pub image_ref: String,
    /// The manifest's digest, if the runtime says it.
    pub digest: Option<String>,
    /// `os/arch[/variant]`, if the runtime says it.
    pub platform: Option<String>,
    /// Which credentials were used.
    pub auth: String,
    /// What the registry said of its limits.
    pub limits: Vec<RegistryLimit>,
}

/// Why the runtime failed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Failure {
    /// Its text.
    pub text: String,
    /// What it is about.
    pub class: FailureClass,
    /// Which credentials were used.
    pub auth: String,
    /// Whether a registry said so itself.
    pub authoritative: bool,
    /// `host:port` of the endpoint that failed, if the runtime shows it.
    pub endpoint: Option<String>,
    /// The stage of the registry that failed.
    pub stage: Stage,
    /// The image has nothing for the platform, as opposed to broken content.
    pub no_such_platform: bool,
    /// How long the registry asked to stay away.
    pub retry_after: Option<Duration>,
    /// What the registry said of its limits.
    pub limits: Vec<RegistryLimit>,
}

/// A standing pull as it outlives a restart of the agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptStandingPull {
    /// Its id.
    pub standing_pull: StandingPullId,
    /// What is wanted.
    pub ask: EnsureImage,
    /// Since when it stands, milliseconds since 1970.
    pub since_ms: u64,
    /// Until when it stands, milliseconds since 1970.
    pub until_ms: u64,
}

/// What happens to the state machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A caller wants an image.
    Asked {
        /// The new request.
        request: RequestId,
        /// What is wanted.
        ask: EnsureImage,
        /// The span of the request.
        trace: TraceContext,
    },
    /// The answer to [`Effect::Inspect`].
    Inspected {
        /// Whose.
        request: RequestId,
        /// What the runtime said.
        found: Result<Option<ImageFacts>, Failure>,
    },
    /// The answer to [`Effect::LookAround`].
    LookedAround {
        /// Whose.
        request: RequestId,
        /// What is wanted, as the fleet sees it; none when this node shares nothing.
        target: Option<Arc<Target>>,
        /// Bytes free where images lie, if that was asked and can be said.
        free_bytes: Option<u64>,
    },
    /// The answer to [`Effect::RequestClearance`].
    ClearanceAnswered {
        /// Whose.
        flight: FlightId,
        /// Which question.
        turn: u64,
        /// What the tracker said; none: nothing.
        answer: Option<Clearance>,
    },
    /// The standing pulls that stood when the agent ended.
    StandingPullsLoaded {
        /// All of them.
        standing_pulls: Vec<KeptStandingPull>,
    },
    /// The answer to [`Effect::KeepStandingPulls`].
    StandingPullsKept {
        /// Why they could not be kept, if so.
        error: Option<String>,
    },
    /// Somebody ends a standing pull.
    StandingPullCancelled {
        /// Which.
        standing_pull: StandingPullId,
        /// Who ends it; empty: not said.
        by: String,
    },
    /// The time of [`super::Coordinator::next_alarm`] has come.
    AlarmRang,
    /// The answer to [`Effect::CheckBackoff`].
    BackoffChecked {
        /// Whose.
        request: RequestId,
        /// What the tracker said.
        answer: BackoffAnswer,
    },
    /// The answer to [`Effect::AcquirePermit`].
    Permitted {
        /// Whose.
        flight: FlightId,
        /// What the throttler said.
        answer: PermitAnswer,
    },
    /// The answer to [`Effect::Recheck`].
    Rechecked {
        /// Whose.
        flight: FlightId,
        /// What the runtime said.
        found: Result<Option<ImageFacts>, Failure>,
    },
    /// The runtime knows which manifest the tag means, or may know it: who asks from now on with Always must ask again.
    Resolved {
        /// Whose.
        flight: FlightId,
        /// It was seen that the registry has given the manifest.
        seen: bool,
    },
    /// The runtime has shown that another stage of the registry has answered.
    Reached {
        /// Whose.
        flight: FlightId,
        /// Which.
        stage: Stage,
    },
    /// A blob was asked for, and no byte of any has come yet.
    BlobAwaited {
        /// Whose.
        flight: FlightId,
    },
    /// The size of what is being pulled is known.
    Sized {
        /// Whose.
        flight: FlightId,
        /// Bytes still to come.
        missing_bytes: u64,
        /// Bytes free where images lie, if that can be said.
        free_bytes: Option<u64>,
    },
    /// The answer to [`Effect::StartPull`].
    Pulled {
        /// Whose.
        flight: FlightId,
        /// What the runtime said.
        result: Result<PulledFacts, Failure>,
    },
    /// The answer to [`Effect::Verify`].
    Verified {
        /// Whose.
        flight: FlightId,
        /// What the runtime said.
        found: Result<Option<ImageFacts>, Failure>,
    },
    /// The answer to [`Effect::Report`].
    Reported {
        /// Whose.
        request: RequestId,
        /// Milliseconds until the next attempt is allowed, after a failure.
        next_attempt_ms: Option<u64>,
    },
    /// The answer to [`Effect::Record`], however it went.
    Recorded {
        /// Whose.
        request: RequestId,
    },
    /// Nobody waits for the answer any more: the caller was killed, disconnected, or has cancelled its request.
    CallerGone {
        /// Whose.
        request: RequestId,
    },
    /// The caller's time is over.
    TimeOver {
        /// Whose.
        request: RequestId,
    },
}

/// What the state machine wants done. Each is answered by the input of the same name, but for `Cancel`, `Release`, `Resolve`,
/// `Withdraw` and `Answer`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Ask the runtime whether the image is there.
    Inspect {
        /// For whom.
        request: RequestId,
        /// Which image.
        reference: Reference,
        /// Which platform of it.
        platform: Option<Platform>,
    },
    /// See whom the image is asked from, and how much room there is.
    LookAround {
        /// For whom.
        request: RequestId,
        /// Which image.
        reference: Reference,
        /// Which platform of it.
        platform: Option<Platform>,
        /// Whether the room matters.
        room: bool,
    },
    /// Ask the back-off tracker.
    CheckBackoff {
        /// For whom.
        request: RequestId,
        /// Which key.
        key: LocalKey,
        /// What is wanted, for what the fleet knows of it.
        target: Option<Arc<Target>>,
        /// Within this span.
        trace: TraceContext,
    },
    /// Ask the back-off tracker for clearance.
    RequestClearance {
        /// For whom.
        flight: FlightId,
        /// Which question.
        turn: u64,
        /// What is asked.
        ask: Box<RequestClearance>,
        /// Within this span.
        trace: TraceContext,
    },
    /// Tell the back-off tracker what an attempt has come to for the fleet.
    Resolve {
        /// What it has come to.
        resolve: Box<ResolveAttempt>,
        /// Within this span.
        trace: TraceContext,
    },
    /// Tell the back-off tracker that a flight's request for clearance is over, after all that was told of it.
    Withdraw {
        /// Of which flight.
        flight: FlightId,
        /// Which.
        clearance: ClearanceId,
        /// Within this span.
        trace: TraceContext,
    },
    /// Write down which standing pulls go on.
    KeepStandingPulls {
        /// All of them.
        standing_pulls: Vec<KeptStandingPull>,
    },
    /// Ask the throttler.
    AcquirePermit {
        /// For whom.
        flight: FlightId,
        /// The same each time.
        permit: PermitId,
        /// Which image.
        image: String,
        /// On whose budget the fleet counts it, if this node shares.
        budget: Option<String>,
        /// Within this span.
        trace: TraceContext,
    },
    /// Ask the runtime again, because the turn came late.
    Recheck {
        /// For whom.
        flight: FlightId,
        /// Which image.
        reference: Reference,
        /// Which platform of it.
        platform: Option<Platform>,
    },
    /// Let the runtime pull, and keep the permit alive meanwhile.
    StartPull {
        /// For whom.
        flight: FlightId,
        /// The permit to keep alive.
        permit: PermitId,
        /// As in `AcquirePermit`.
        budget: Option<String>,
        /// What the back-off tracker is told first, if this node shares and the runtime shows the manifest or is in haste.
        begin: Option<BeginAttempt>,
        /// The fleet waits for word of the manifest: it is asked for by another way as well, if the runtime does not show it.
        in_haste: bool,
        /// Nobody is known to have had a blob lately: one is asked for alone until its first byte comes.
        one_blob_first: bool,
        /// The way to the registry is known: it may be asked beside a runtime that shows little.
        routed: bool,
        /// Whether [`Input::Sized`] is wanted.
        measured: bool,
        /// Which image.
        reference: Reference,
        /// Which platform of it.
        platform: Option<Platform>,
        /// Within this span.
        trace: TraceContext,
    },
    /// Nobody wants it any more: stop whatever is under way for this flight.
    Cancel {
        /// Which.
        flight: FlightId,
    },
    /// Give the permit back.
    Release {
        /// Of which flight.
        flight: FlightId,
        /// Which.
        permit: PermitId,
        /// What the pull has shown of the registry.
        word: RegistryWord,
        /// Within this span.
        trace: TraceContext,
    },
    /// Ask the runtime whether the image is really there, and how large it is.
    Verify {
        /// For whom.
        flight: FlightId,
        /// Which image.
        reference: Reference,
        /// Which platform of it.
        platform: Option<Platform>,
    },
    /// Tell the back-off tracker how the attempt ended.
    Report {
        /// For whom.
        request: RequestId,
        /// How it ended.
        report: ReportAttempt,
        /// Within this span.
        trace: TraceContext,
    },
    /// Record a fact.
    Record {
        /// For whom.
        request: RequestId,
        /// The fact.
        event: PullEvent,
    },
    /// Answer the caller. The request is over.
    Answer {
        /// Whom.
        request: RequestId,
        /// How it ended.
        outcome: PullOutcome,
    },
}
