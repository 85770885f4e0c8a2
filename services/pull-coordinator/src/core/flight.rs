//! A flight: one pull and all its callers.

use std::sync::Arc;
use std::time::Duration;

use clock::Now;
use contract::messages::backoff_tracker::{LocalKey, Refusal};
use contract::{AttemptId, ClearanceId, FailureClass, PermitId, Stage, Target, TraceContext};
use image::{Platform, Reference};

use super::outcomes;
use super::step::{PulledFacts, RequestId};

/// A standing pull that keeps waiting for the same cause repeats its event this often. A new subscriber of events learns of all waiting
/// pulls within this time, and 5,000 waiting nodes publish about 80 events per second.
const REPEAT_EVENT_AFTER: Duration = Duration::from_secs(60);

/// What a flight pulls: two requests with the same key want the same bytes. (All callers of a node use its keyring, so the login is the
/// same too.)
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FlightKey {
    /// The normalised reference: `busybox` and `docker.io/library/busybox:latest` are one.
    pub(super) reference: String,
    /// The platform as text; none: the node's own.
    pub(super) platform: Option<String>,
    /// The login's scope and fingerprint, so that a changed login gets a flight of its own. None if this node shares nothing.
    pub(super) login: Option<(String, String)>,
}

/// What a flight is doing or waiting for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FlightStage {
    AwaitingClearance,
    /// Waits for a permit.
    Queued,
    /// Asks the runtime whether another pull has brought the image meanwhile.
    Rechecking,
    /// The runtime pulls.
    Pulling,
    /// Asks the runtime whether the image is really present.
    Verifying(PulledFacts),
}

/// One pull and its state.
#[derive(Clone, Debug)]
pub(super) struct Flight {
    pub(super) key: FlightKey,
    pub(super) reference: Reference,
    pub(super) platform: Option<Platform>,
    pub(super) attempt: AttemptId,
    pub(super) permit: PermitId,
    pub(super) trace: TraceContext,
    pub(super) callers: Vec<RequestId>,
    pub(super) stage: FlightStage,
    /// The tag is resolved, or may be: a caller with policy Always does not join any more.
    pub(super) resolved: bool,
    /// A blob was requested, and no byte of any blob had come when the progress was last read.
    pub(super) awaits_blob: bool,
    /// How many flights had pulled an image when the first caller asked.
    pub(super) images_pulled_before: u64,
    pub(super) queued_since: Now,
    /// Its clearance and waits for the fleet; none if this node shares nothing.
    pub(super) fleet: Option<FleetState>,
    /// When it got its permit; kubelet counts the pull's time from here.
    pub(super) turn_since: Option<Now>,
}

impl Flight {
    /// Whether a permit was requested and not returned.
    pub(super) fn wants_permit(&self) -> bool {
        self.stage != FlightStage::AwaitingClearance || self.fleet.as_ref().is_some_and(|fleet| fleet.has_permit)
    }

    /// Whether the runtime pulls or verifies.
    pub(super) fn is_at_runtime(&self) -> bool {
        matches!(self.stage, FlightStage::Pulling | FlightStage::Verifying(_))
    }

    /// The owner of the budget that the flight counts towards.
    pub(super) fn budget(&self) -> Option<String> {
        self.fleet.as_ref().map(|fleet| fleet.target.budget_owner.clone())
    }

    /// How long it has pulled.
    pub(super) fn pull_time(&self, now: Now) -> Duration {
        self.turn_since.map_or(Duration::ZERO, |since| now.monotonic.saturating_sub(since.monotonic))
    }
}

/// A flight's clearance, and its waits for the fleet.
#[derive(Clone, Debug)]
pub(super) struct FleetState {
    pub(super) target: Arc<Target>,
    pub(super) clearance: ClearanceId,
    /// The tracker was asked for this clearance.
    pub(super) is_known: bool,
    /// The number of the last request for clearance; an answer to an earlier one is ignored.
    pub(super) turn: u64,
    /// The last request for clearance is not answered yet.
    pub(super) asking: bool,
    pub(super) asked_at: Duration,
    /// The local keys that the last request named.
    pub(super) asked_for: Vec<LocalKey>,
    /// When the tracker should have answered.
    pub(super) answer_due: Duration,
    /// The tracker answered the last request in time.
    pub(super) answered: bool,
    /// It got its permit after its clearance had lapsed, and keeps it until clearance is answered again.
    pub(super) has_permit: bool,
    /// Clearance was granted, but holds no more.
    pub(super) lapsed: bool,
    /// When clearance was granted, and by when the stage `until` must have answered; none: no limit.
    pub(super) answer_by: Option<(Duration, Duration)>,
    /// The stage of the registry that clearance was granted for.
    pub(super) until: Stage,
    /// The stages that were reported to the tracker as answered.
    pub(super) reached: Vec<Stage>,
    /// Whether the tracker has a report that the attempt failed or that the stage `until` has answered.
    pub(super) resolve_sent: bool,
    /// Why clearance is withheld, and when the tracker answered so.
    pub(super) refusal: Option<(Refusal, Duration)>,
    /// The last such reason, while the tracker gives none.
    refusal_before: Option<(Refusal, Duration)>,
    /// The class, cause and time of the last event about why the flight waits.
    last_recorded: Option<(FailureClass, String, Duration)>,
    /// The expected wait for the fleet's budget, and when the throttler stated it; none: the flight does not wait for the budget.
    pub(super) budget_wait: Option<(Duration, Duration)>,
    /// Since when it waits for the fleet.
    waiting_since: Option<Duration>,
    waited: Duration,
}

impl FleetState {
    pub(super) fn new(target: Arc<Target>, clearance: ClearanceId) -> Self {
        Self {
            target,
            clearance,
            is_known: false,
            turn: 0,
            asking: false,
            asked_at: Duration::ZERO,
            asked_for: Vec::new(),
            answer_due: Duration::ZERO,
            answered: false,
            has_permit: false,
            lapsed: false,
            answer_by: None,
            until: Stage::Manifest,
            reached: Vec::new(),
            resolve_sent: false,
            refusal: None,
            refusal_before: None,
            last_recorded: None,
            budget_wait: None,
            waiting_since: None,
            waited: Duration::ZERO,
        }
    }

    /// The wait for the fleet begins, unless it has begun.
    pub(super) fn begin_waiting(&mut self, now: Duration) {
        self.waiting_since.get_or_insert(now);
    }

    /// The wait for the fleet ends.
    pub(super) fn stop_waiting(&mut self, now: Duration) {
        self.waited = self.waited_for_fleet(now);
        self.waiting_since = None;
        self.budget_wait = None;
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.waiting_since.is_some()
    }

    /// How long it has waited for the fleet, in all.
    pub(super) fn waited_for_fleet(&self, now: Duration) -> Duration {
        self.waited + self.waiting_since.map_or(Duration::ZERO, |since| now.saturating_sub(since))
    }

    /// Whether clearance holds and at least half of the time for the registry's answer is left.
    pub(super) fn is_in_time(&self, now: Duration) -> bool {
        !self.lapsed && self.answer_by.is_none_or(|(given, by)| now <= given + (by - given) / 2)
    }

    /// Sets why clearance is withheld, as far as the tracker reports it.
    pub(super) fn set_refusal(&mut self, now: Duration, refusal: Option<Refusal>) {
        let before = std::mem::replace(&mut self.refusal, refusal.map(|refusal| (refusal, now)));
        self.refusal_before = if self.refusal.is_some() { None } else { before.or(self.refusal_before.take()) };
    }

    /// Whether an event should report that this refusal withholds clearance. The same class and cause again is not new: in an outage every
    /// node learns of every attempt.
    pub(super) fn is_new_refusal(&mut self, now: Duration, refusal: &Refusal) -> bool {
        let known = |(class, cause, at): &(FailureClass, String, Duration)| {
            (*class, cause.as_str()) == (refusal.class, refusal.cause.as_str()) && now < *at + REPEAT_EVENT_AFTER
        };
        let news = !self.last_recorded.as_ref().is_some_and(known);
        if news {
            self.last_recorded = Some((refusal.class, refusal.cause.clone(), now));
        }
        news
    }

    pub(super) fn clear_refusals(&mut self) {
        (self.refusal, self.refusal_before, self.last_recorded) = (None, None, None);
    }

    /// Why clearance is withheld, with times as of now.
    pub(super) fn current_refusal(&self, now: Duration) -> Option<Refusal> {
        self.refusal.as_ref().map(|refusal| aged(now, refusal))
    }

    /// The last known reason, with times as of now, while the tracker gives none.
    pub(super) fn previous_refusal(&self, now: Duration) -> Option<Refusal> {
        self.refusal_before.as_ref().map(|refusal| aged(now, refusal))
    }
}

fn aged(now: Duration, (refusal, received_at): &(Refusal, Duration)) -> Refusal {
    let age = super::request::milliseconds(now.saturating_sub(*received_at));
    Refusal {
        next_attempt_ms: refusal.next_attempt_ms.saturating_sub(age),
        learned_ms_ago: if outcomes::is_of_an_attempt(refusal) { refusal.learned_ms_ago.saturating_add(age) } else { 0 },
        ..refusal.clone()
    }
}
