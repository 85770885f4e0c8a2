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
    /// The runtime's word whether the image is there.
    Inspecting,
    /// The shell's word whom the image is asked from, and how much room there is.
    LookingAround,
    /// The back-off tracker's word.
    CheckingBackoff,
    /// Its flight.
    Flying(FlightId),
    /// Its events to be recorded and its failure to be reported; then this is the answer.
    Ending { outcome: PullOutcome, reporting: bool },
}

/// One caller's request with what is known of it.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) ask: EnsureImage,
    pub(super) reference: Reference,
    pub(super) platform: Option<Platform>,
    pub(super) policy: PullPolicy,
    pub(super) trace: TraceContext,
    pub(super) stage: Stage,
    /// It is a run of a standing pull.
    pub(super) standing: bool,
    /// What is wanted, as the fleet sees it; none when this node shares nothing.
    pub(super) target: Option<Arc<Target>>,
    /// For how long its flight had waited for the fleet when it boarded.
    pub(super) fleet_waited_before: Duration,
    /// The fleet decides when a failed standing pull goes on, if the tracker answers.
    pub(super) fleet_decides: bool,
    /// How many flights had brought an image when this was asked.
    pub(super) landed_before: u64,
    /// When its Pulling event was made: what kubelet counts the waiting from.
    pub(super) pulling_since: Option<Now>,
    /// Made, but not recorded yet; the first is under way if `recording`.
    pub(super) events: VecDeque<PullEvent>,
    pub(super) recording: bool,
}

impl Request {
    pub(super) fn key(&self) -> LocalKey {
        LocalKey { pod: self.ask.pod.clone(), image: self.ask.image.clone() }
    }

    /// How long it waits since its Pulling event.
    pub(super) fn waited(&self, now: Now) -> Duration {
        self.pulling_since.map_or(Duration::ZERO, |since| now.monotonic.saturating_sub(since.monotonic))
    }

    /// An outcome with what every outcome has.
    pub(super) fn outcome(&self, outcome: OutcomeKind) -> PullOutcome {
        PullOutcome { outcome, trace_id: self.trace.trace_id_hex(), ..PullOutcome::default() }
    }

    /// The image was there already, as the event says.
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

    /// It ended without a pull being tried.
    pub(super) fn refused(&self, reason: Reason, message: String, class: FailureClass) -> PullOutcome {
        PullOutcome { reason: Some(reason), message, class: Some(class), ..self.outcome(OutcomeKind::Failed) }
    }
}

/// The policy as Kubernetes sets it when none is given: Always for `latest`, else IfNotPresent.
pub(super) fn default_policy(reference: &Reference) -> PullPolicy {
    if reference.is_latest() { PullPolicy::Always } else { PullPolicy::IfNotPresent }
}

/// What an event says besides its reason and message.
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
pub(super) fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// An event's reason with its words.
pub(super) struct Fact {
    pub(super) reason: EventReason,
    pub(super) message: String,
    pub(super) fields: EventFields,
}

impl Fact {
    /// A fact that says nothing more than its words.
    pub(super) fn plain(reason: EventReason, message: String) -> Self {
        Self { reason, message, fields: EventFields::default() }
    }
}
