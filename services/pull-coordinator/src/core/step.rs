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

/// The feedback about the registry that a returned permit carries to the throttler.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegistryFeedback {
    /// The limits that the registry stated during the pull.
    pub limits: Vec<RegistryLimit>,
    /// Whether the registry could serve the request; none: it was not asked, or the pull's end does not show it.
    pub served: Option<bool>,
}

/// A standing pull as stored on disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptStandingPull {
    /// Its id.
    pub standing_pull: StandingPullId,
    /// The request of the standing pull.
    pub ask: EnsureImage,
    /// When it was made, in milliseconds since 1970.
    pub since_ms: u64,
    /// When it expires, in milliseconds since 1970.
    pub until_ms: u64,
}

/// An input of the state machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A caller wants an image.
    Asked {
        /// The new request.
        request: RequestId,
        /// The caller's command.
        ask: EnsureImage,
        /// The span of the request.
        trace: TraceContext,
    },
    /// The answer to [`Effect::Inspect`].
    Inspected {
        /// The request.
        request: RequestId,
        /// The image; none if it is absent or the runtime was not asked for it.
        found: Result<Option<ImageFacts>, Failure>,
        /// The target of the request in the fleet; none if this node shares nothing.
        target: Option<Arc<Target>>,
        /// The free bytes of the file system of images; none: not requested or unknown.
        free_bytes: Option<u64>,
    },
    /// The answer to [`Effect::RequestClearance`].
    ClearanceAnswered {
        /// The flight.
        flight: FlightId,
        /// The number of the request for clearance.
        turn: u64,
        /// The tracker's answer; none: the tracker gave none.
        answer: Option<Clearance>,
    },
    /// The standing pulls that were stored when the agent ended.
    StandingPullsLoaded {
        /// All of them.
        standing_pulls: Vec<KeptStandingPull>,
    },
    /// The answer to [`Effect::KeepStandingPulls`].
    StandingPullsKept {
        /// Why they could not be stored; none: they are stored.
        error: Option<String>,
    },
    /// A user cancels a standing pull.
    StandingPullCancelled {
        /// The standing pull.
        standing_pull: StandingPullId,
        /// The user; empty if unknown.
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
    /// The runtime knows which manifest the tag means, or may know it: a later caller with policy Always needs a new flight.
    Resolved {
        /// The flight.
        flight: FlightId,
        /// True if the registry is known to have given the manifest.
        seen: bool,
    },
    /// The runtime has shown that another stage of the registry has answered.
    Reached {
        /// The flight.
        flight: FlightId,
        /// The stage.
        stage: Stage,
    },
    /// A blob was requested, and no byte of any blob has come yet.
    BlobAwaited {
        /// The flight.
        flight: FlightId,
    },
    /// The size of the image that is being pulled is known.
    Sized {
        /// The flight.
        flight: FlightId,
        /// The bytes that are still missing.
        missing_bytes: u64,
        /// The free bytes of the file system of images, if known.
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
    /// The answer to [`Effect::Record`], also if the recording failed.
    Recorded {
        /// The request.
        request: RequestId,
    },
    /// The caller is abandoned: it was killed, disconnected, or has cancelled its request.
    CallerAbandoned {
        /// The request.
        request: RequestId,
    },
    /// The caller's time-out is over.
    TimeOver {
        /// The request.
        request: RequestId,
    },
}

/// An effect that the shell carries out. Each is answered by the input of the same name, except `Cancel`, `Release`, `Resolve`, `Withdraw`
/// and `Answer`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Ask the runtime, in one call, whether the image is present, and if it is not, for its target in the fleet and the free bytes.
    Inspect {
        /// The request.
        request: RequestId,
        /// The image.
        reference: Reference,
        /// The platform; none: the node's own.
        platform: Option<Platform>,
        /// Whether it matters that the image is present.
        presence: bool,
        /// Whether the target is needed.
        target: bool,
        /// Whether the free bytes are needed.
        room: bool,
    },
    /// Ask the back-off tracker whether a back-off applies.
    CheckBackoff {
        /// The request.
        request: RequestId,
        /// The local key.
        key: LocalKey,
        /// The target, by which the tracker finds the fleet's back-off entries; none if this node shares nothing.
        target: Option<Arc<Target>>,
        /// The span of the request.
        trace: TraceContext,
    },
    /// Ask the back-off tracker for clearance.
    RequestClearance {
        /// The flight.
        flight: FlightId,
        /// The number of the request for clearance.
        turn: u64,
        /// The command.
        ask: Box<RequestClearance>,
        /// The span of the attempt.
        trace: TraceContext,
    },
    /// Tell the back-off tracker the result of an attempt.
    Resolve {
        /// The command.
        resolve: Box<ResolveAttempt>,
        /// The span of the attempt.
        trace: TraceContext,
    },
    /// Tell the back-off tracker that a flight's request for clearance is over; sent when its last `Resolve` is answered.
    Withdraw {
        /// The flight.
        flight: FlightId,
        /// The request for clearance.
        clearance: ClearanceId,
        /// The span of the attempt.
        trace: TraceContext,
    },
    /// Store the standing pulls.
    KeepStandingPulls {
        /// All of them.
        standing_pulls: Vec<KeptStandingPull>,
    },
    /// Ask the throttler for a permit.
    AcquirePermit {
        /// The flight.
        flight: FlightId,
        /// The permit's id, the same in each request of the flight.
        permit: PermitId,
        /// The image.
        image: String,
        /// The owner of the fleet's budget that the pull counts towards, if this node shares.
        budget: Option<String>,
        /// The span of the attempt.
        trace: TraceContext,
    },
    /// Ask the runtime again whether the image is present, because the permit came late.
    Recheck {
        /// The flight.
        flight: FlightId,
        /// The image.
        reference: Reference,
        /// The platform; none: the node's own.
        platform: Option<Platform>,
    },
    /// Start the runtime's pull, and renew the permit during the pull.
    StartPull {
        /// The flight.
        flight: FlightId,
        /// The permit to renew.
        permit: PermitId,
        /// As in `AcquirePermit`.
        budget: Option<String>,
        /// The first report to the back-off tracker, if this node shares and the runtime shows the manifest or a fleet waits.
        begin: Option<BeginAttempt>,
        /// Whether the fleet waits for the result of the manifest. If the runtime does not show it, a side-channel check requests it as
        /// well.
        fleet_waits: bool,
        /// Whether to request one blob alone until its first byte arrives, because no node is known to have received a blob lately.
        one_blob_first: bool,
        /// Whether the route to the registry is known, so that a side-channel check may run if the runtime shows little of the pull.
        route_known: bool,
        /// Whether [`Input::Sized`] is wanted.
        report_size: bool,
        /// The image.
        reference: Reference,
        /// The platform; none: the node's own.
        platform: Option<Platform>,
        /// The span of the attempt.
        trace: TraceContext,
    },
    /// Cancel the work of a flight that has no callers any more, got no answer in time, needs too much room, or begins anew.
    Cancel {
        /// The flight.
        flight: FlightId,
    },
    /// Return the permit.
    Release {
        /// The flight.
        flight: FlightId,
        /// The permit.
        permit: PermitId,
        /// What the pull has shown of the registry.
        feedback: RegistryFeedback,
        /// The span of the attempt.
        trace: TraceContext,
    },
    /// Ask the runtime whether the image is really present, and for its size.
    Verify {
        /// The flight.
        flight: FlightId,
        /// The image.
        reference: Reference,
        /// The platform; none: the node's own.
        platform: Option<Platform>,
    },
    /// Report to the back-off tracker how the attempt ended.
    Report {
        /// The request.
        request: RequestId,
        /// The command.
        report: ReportAttempt,
        /// The span of the request.
        trace: TraceContext,
    },
    /// Record an event.
    Record {
        /// The request.
        request: RequestId,
        /// The event.
        event: PullEvent,
    },
    /// Answer the caller. The request is over.
    Answer {
        /// The request.
        request: RequestId,
        /// The answer.
        outcome: PullOutcome,
    },
}
