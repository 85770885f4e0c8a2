//! What goes into the state machine and what comes out of it.

use contract::messages::backoff_tracker::{BackoffAnswer, ReportAttempt};
use contract::messages::pull_coordinator::{EnsureImage, PullOutcome};
use contract::messages::throttler::PermitAnswer;
use contract::{FailureClass, PermitId, PullEvent, TraceContext};
use image::{Platform, Reference};

use contract::messages::backoff_tracker::BackoffKey;

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
        /// The caller's span.
        trace: TraceContext,
    },
    /// The answer to [`Effect::Inspect`].
    Inspected {
        /// Whose.
        request: RequestId,
        /// What the runtime said.
        found: Result<Option<ImageFacts>, Failure>,
    },
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
    /// The runtime knows which manifest the tag means: who asks from now on with Always must ask again.
    Resolved {
        /// Whose.
        flight: FlightId,
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
        /// Milliseconds until the next try is allowed, after a failure.
        next_try_ms: Option<u64>,
    },
    /// The answer to [`Effect::Record`], however it went.
    Recorded {
        /// Whose.
        request: RequestId,
    },
    /// The caller's time is over.
    TimeOver {
        /// Whose.
        request: RequestId,
    },
}

/// What the state machine wants done. Each is answered by the input of the same name, but for `Cancel`, `Release` and `Answer`.
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
    /// Ask the back-off tracker.
    CheckBackoff {
        /// For whom.
        request: RequestId,
        /// Which key.
        key: BackoffKey,
        /// Within this span.
        trace: TraceContext,
    },
    /// Ask the throttler.
    AcquirePermit {
        /// For whom.
        flight: FlightId,
        /// The same each time.
        permit: PermitId,
        /// Which image.
        image: String,
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
        /// Which.
        permit: PermitId,
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
