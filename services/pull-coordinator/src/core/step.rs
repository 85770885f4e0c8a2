//! The inputs and effects of the state machine.

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

use super::registry_feedback::RegistryFeedback;

/// One caller's request on this node. The shell numbers them and uses no number twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestId(pub u64);

/// One pull on this node and all its callers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FlightId(pub u64);

/// An image that is present on the node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageFacts {
    /// The runtime's name for it.
    pub image_ref: String,
    /// Bytes; 0 when unknown.
    pub size_bytes: u64,
    /// The manifest's digest, if known.
    pub digest: Option<String>,
    /// `os/arch[/variant]`, if known.
    pub platform: Option<String>,
}

/// An image that the runtime reports as pulled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PulledFacts {
    /// The runtime's name for it.
    pub image_ref: String,
    /// The manifest's digest, if known.
    pub digest: Option<String>,
    /// `os/arch[/variant]`, if known.
    pub platform: Option<String>,
    /// Which credentials were used.
    pub auth: String,
    /// The registry's limits.
    pub limits: Vec<RegistryLimit>,
}

/// Why the runtime failed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Failure {
    /// The runtime's error text.
    pub text: String,
    /// The failure's class.
    pub class: FailureClass,
    /// Which credentials were used.
    pub auth: String,
    /// True if the registry's own answer shows the failure.
    pub authoritative: bool,
    /// `host:port` of the endpoint that failed, if the runtime shows it.
    pub endpoint: Option<String>,
    /// The stage of the registry that failed.
    pub stage: Stage,
    /// The image has no manifest for the platform.
    pub no_such_platform: bool,
    /// The registry's `Retry-After`.
    pub retry_after: Option<Duration>,
    /// The registry's limits.
    pub limits: Vec<RegistryLimit>,
}

/// A standing pull as stored on disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptStandingPull {
    /// Its id.
    pub standing_pull: StandingPullId,
    /// What is wanted.
    pub ask: EnsureImage,
    /// When it was made, in milliseconds since 1970.
    pub since_ms: u64,
    /// When it expires, in milliseconds since 1970.
    pub until_ms: u64,
}

/// Something that happened.
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
        /// The request.
        request: RequestId,
        /// The runtime's answer.
        found: Result<Option<ImageFacts>, Failure>,
    },
    /// The answer to [`Effect::FindTarget`].
    TargetFound {
        /// The request.
        request: RequestId,
        /// What is wanted, as the fleet sees it; none when this node shares nothing.
        target: Option<Arc<Target>>,
        /// Bytes free where images lie, if that was asked and can be said.
        free_bytes: Option<u64>,
    },
    /// The answer to [`Effect::RequestClearance`].
    ClearanceAnswered {
        /// The flight.
        flight: FlightId,
        /// Which question.
        turn: u64,
        /// The tracker's answer; none: it gave none.
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
        /// The standing pull.
        standing_pull: StandingPullId,
        /// The user who ends it; empty if unknown.
        by: String,
    },
    /// The time of [`super::Coordinator::next_alarm`] has come.
    AlarmRang,
    /// The answer to [`Effect::CheckBackoff`].
    BackoffChecked {
        /// The request.
        request: RequestId,
        /// The tracker's answer.
        answer: BackoffAnswer,
    },
    /// The answer to [`Effect::AcquirePermit`].
    Permitted {
        /// The flight.
        flight: FlightId,
        /// The throttler's answer.
        answer: PermitAnswer,
    },
    /// The answer to [`Effect::Recheck`].
    Rechecked {
        /// The flight.
        flight: FlightId,
        /// The runtime's answer.
        found: Result<Option<ImageFacts>, Failure>,
    },
    /// The runtime knows which manifest the tag means, or may know it: who asks from now on with Always must ask again.
    Resolved {
        /// The flight.
        flight: FlightId,
        /// It was seen that the registry has given the manifest.
        seen: bool,
    },
    /// The runtime has shown that another stage of the registry has answered.
    Reached {
        /// The flight.
        flight: FlightId,
        /// The stage.
        stage: Stage,
    },
    /// A blob was asked for, and no byte of any has come yet.
    BlobAwaited {
        /// The flight.
        flight: FlightId,
    },
    /// The size of what is being pulled is known.
    Sized {
        /// The flight.
        flight: FlightId,
        /// Bytes still to come.
        missing_bytes: u64,
        /// Bytes free where images lie, if that can be said.
        free_bytes: Option<u64>,
    },
    /// The answer to [`Effect::StartPull`].
    Pulled {
        /// The flight.
        flight: FlightId,
        /// The runtime's answer.
        result: Result<PulledFacts, Failure>,
    },
    /// The answer to [`Effect::Verify`].
    Verified {
        /// The flight.
        flight: FlightId,
        /// The runtime's answer.
        found: Result<Option<ImageFacts>, Failure>,
    },
    /// The answer to [`Effect::Report`].
    Reported {
        /// The request.
        request: RequestId,
        /// Milliseconds until the next attempt is allowed, after a failure.
        next_attempt_ms: Option<u64>,
    },
    /// The answer to [`Effect::Record`], however it went.
    Recorded {
        /// The request.
        request: RequestId,
    },
    /// The caller is abandoned: it was killed, disconnected, or has cancelled its request.
    CallerAbandoned {
        /// The request.
        request: RequestId,
    },
    /// The caller's time is over.
    TimeOver {
        /// The request.
        request: RequestId,
    },
}

/// Something that the shell has to do. Each is answered by the input of the same name, but for `Cancel`, `Release`, `Resolve`,
/// `Withdraw` and `Answer`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Ask the runtime whether the image is there.
    Inspect {
        /// The request.
        request: RequestId,
        /// Which image.
        reference: Reference,
        /// Which platform of it.
        platform: Option<Platform>,
    },
    /// See whom the image is asked from, and how much room there is.
    FindTarget {
        /// The request.
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
        /// The request.
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
        /// The flight.
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
    /// Tell the back-off tracker that a flight's request for clearance is over, after all reports about it.
    Withdraw {
        /// Of which flight.
        flight: FlightId,
        /// The request for clearance.
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
        /// The flight.
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
        /// The flight.
        flight: FlightId,
        /// Which image.
        reference: Reference,
        /// Which platform of it.
        platform: Option<Platform>,
    },
    /// Let the runtime pull, and keep the permit alive meanwhile.
    StartPull {
        /// The flight.
        flight: FlightId,
        /// The permit to keep alive.
        permit: PermitId,
        /// As in `AcquirePermit`.
        budget: Option<String>,
        /// The first report to the back-off tracker, if this node shares and the runtime shows the manifest or a fleet waits.
        begin: Option<BeginAttempt>,
        /// Whether the fleet waits for the result of the manifest. If the runtime does not show it, a manifest check requests it as well.
        fleet_waits: bool,
        /// Whether to request one blob alone until its first byte arrives, because no node is known to have received a blob lately.
        one_blob_first: bool,
        /// Whether the route to the registry is known, so that a manifest check may run beside a runtime that shows little.
        route_known: bool,
        /// Whether [`Input::Sized`] is wanted.
        report_size: bool,
        /// Which image.
        reference: Reference,
        /// Which platform of it.
        platform: Option<Platform>,
        /// Within this span.
        trace: TraceContext,
    },
    /// The flight has no callers any more: stop what is under way for it.
    Cancel {
        /// The flight.
        flight: FlightId,
    },
    /// Give the permit back.
    Release {
        /// Of which flight.
        flight: FlightId,
        /// The permit.
        permit: PermitId,
        /// What the pull has shown of the registry.
        feedback: RegistryFeedback,
        /// Within this span.
        trace: TraceContext,
    },
    /// Ask the runtime whether the image is really there, and how large it is.
    Verify {
        /// The flight.
        flight: FlightId,
        /// Which image.
        reference: Reference,
        /// Which platform of it.
        platform: Option<Platform>,
    },
    /// Tell the back-off tracker how the attempt ended.
    Report {
        /// The request.
        request: RequestId,
        /// How it ended.
        report: ReportAttempt,
        /// Within this span.
        trace: TraceContext,
    },
    /// Record a fact.
    Record {
        /// The request.
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
