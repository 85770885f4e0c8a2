//! One caller's request.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use clock::Now;
use contract::messages::backoff_tracker::LocalKey;
use contract::messages::pull_coordinator::{EnsureImage, OutcomeKind, PullOutcome, PullPolicy};
use contract::{AttemptId, EventDetails, EventReason, FailureClass, NodeName, PullEvent, Reason, Target, TraceContext};
use image::{Platform, Reference};

use super::step::{FlightId, ImageFacts};

/// What a request waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The runtime, asked whether the image is present, for its target and for the free bytes.
    Inspecting,
    /// The back-off tracker's check.
    CheckingBackoff,
    /// Its flight.
    InFlight(FlightId),
    /// Its events to be recorded and its failure to be reported; then `outcome` is the answer.
    Ending { outcome: PullOutcome, reporting: bool },
}

/// One caller's request and its state.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) ask: EnsureImage,
    pub(super) reference: Reference,
    pub(super) platform: Option<Platform>,
    pub(super) policy: PullPolicy,
    pub(super) trace: TraceContext,
    pub(super) stage: Stage,
    /// True for a run of a standing pull.
    pub(super) standing: bool,
    /// The image as the fleet sees it; none if this node shares nothing.
    pub(super) target: Option<Arc<Target>>,
    /// How long its flight had waited for the fleet when this request joined.
    pub(super) fleet_waited_before: Duration,
    /// The attempt failed before the stage that its clearance was for: the fleet decides when a standing pull goes on.
    pub(super) fleet_decides: bool,
    /// How many flights had pulled an image when the request came in.
    pub(super) images_pulled_before: u64,
    /// The time of its Pulling event, from which kubelet counts the waiting.
    pub(super) pulling_since: Option<Now>,
    /// The event about the wait for a permit is recorded.
    pub(super) throttled_recorded: bool,
    /// Events that wait until the one under way is recorded.
    pub(super) events: VecDeque<PullEvent>,
    pub(super) recording: bool,
}

impl Request {
    pub(super) fn key(&self) -> LocalKey {
        LocalKey { pod: self.ask.pod.clone(), image: self.ask.image.clone() }
    }

    /// The time since its Pulling event.
    pub(super) fn waited(&self, now: Now) -> Duration {
        self.pulling_since.map_or(Duration::ZERO, |since| now.monotonic.saturating_sub(since.monotonic))
    }

    /// An outcome with the fields that every outcome has.
    pub(super) fn outcome(&self, outcome: OutcomeKind) -> PullOutcome {
        PullOutcome { outcome, trace_id: self.trace.trace_id_hex(), ..PullOutcome::default() }
    }

    /// The image was present.
    pub(super) fn present(&self, facts: ImageFacts, event: &Fact) -> PullOutcome {
        PullOutcome {
            message: event.message.clone(),
            image_ref: facts.image_ref,
            size_bytes: facts.size_bytes,
            digest: facts.digest,
            platform: facts.platform,
            ..self.outcome(OutcomeKind::Present)
        }
    }

    /// The request failed for this reason.
    pub(super) fn refused(&self, reason: Reason, message: String, class: FailureClass) -> PullOutcome {
        PullOutcome { reason: Some(reason), message, class: Some(class), ..self.outcome(OutcomeKind::Failed) }
    }
}

/// The policy of a request. If none is given, Kubernetes sets Always for `latest`, else IfNotPresent.
pub(crate) fn policy_of(given: Option<PullPolicy>, reference: &Reference) -> PullPolicy {
    given.unwrap_or(if reference.is_latest() { PullPolicy::Always } else { PullPolicy::IfNotPresent })
}

/// An event's fields besides its reason and message.
#[derive(Clone, Debug, Default)]
pub(super) struct EventFields {
    pub(super) duration: Option<Duration>,
    pub(super) waiting: Option<Duration>,
    pub(super) size_bytes: Option<u64>,
    pub(super) class: Option<FailureClass>,
    pub(super) attempt: Option<AttemptId>,
    pub(super) next_attempt_ms: Option<u64>,
    pub(super) learned_by: Option<NodeName>,
    pub(super) learned_ms_ago: Option<u64>,
    pub(super) learned_trace: Option<TraceContext>,
    pub(super) entry: Option<String>,
    pub(super) details: Option<EventDetails>,
}

/// Whole milliseconds.
pub(crate) fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The content of an event.
pub(super) struct Fact {
    pub(super) reason: EventReason,
    pub(super) message: String,
    pub(super) fields: EventFields,
}

impl Fact {
    /// A fact without further fields.
    pub(super) fn plain(reason: EventReason, message: String) -> Self {
        Self { reason, message, fields: EventFields::default() }
    }
}
