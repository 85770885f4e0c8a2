//! One pull and all its callers.

use std::sync::Arc;
use std::time::Duration;

use clock::Now;
use contract::messages::backoff_tracker::{LocalKey, Refusal};
use contract::{AttemptId, ClearanceId, FailureClass, PermitId, Stage, Target, TraceContext};
use image::{Platform, Reference};

use super::step::{PulledFacts, RequestId};

/// A standing pull that goes on waiting for the same says so again so often: who begins to listen to events hears within that of all
/// who wait, and 5,000 nodes that wait say 80 in a second.
const SAID_AGAIN_AFTER: Duration = Duration::from_secs(60);

/// What one flight is for: two requests with the same key want the same bytes. (All callers of a node share its keyring, so the
/// login is the same too.)
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FlightKey {
    /// The normalised reference: `busybox` and `docker.io/library/busybox:latest` are one.
    pub(super) reference: String,
    /// As text; none for the node's own.
    pub(super) platform: Option<String>,
    /// Who asks, as hashes: a node whose login changed asks anew. None when this node shares nothing.
    pub(super) login: Option<(String, String)>,
}

/// What a flight waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FlightStage {
    /// Clearance.
    AwaitingClearance,
    /// Its permit.
    Queued,
    /// The runtime's word whether somebody else has pulled the image meanwhile.
    Rechecking,
    /// The runtime's pull.
    Pulling,
    /// The runtime's word that the image is really there.
    Verifying(PulledFacts),
}

/// One pull with what is known of it.
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
    /// One of its callers wants the registry asked whatever is there.
    pub(super) always: bool,
    /// The tag is resolved: what comes is settled.
    pub(super) resolved: bool,
    /// The runtime has shown the manifest's coming.
    pub(super) seen: bool,
    /// A blob was asked for, and no byte of any had come when that was last looked for.
    pub(super) awaits_blob: bool,
    /// How many flights had brought an image when its first caller asked.
    pub(super) landed_before: u64,
    pub(super) queued_since: Now,
    /// Its callers were told that it waits for its turn.
    pub(super) told_throttled: bool,
    /// What the fleet has to do with it; none when this node shares nothing.
    pub(super) fleet: Option<FleetSide>,
    /// When it got its turn: what kubelet counts the pull from.
    pub(super) turn_since: Option<Now>,
}

impl Flight {
    /// Whether the throttler knows its permit.
    pub(super) fn wants_permit(&self) -> bool {
        self.stage != FlightStage::AwaitingClearance || self.fleet.as_ref().is_some_and(|fleet| fleet.has_permit)
    }

    /// Whether the runtime is at work.
    pub(super) fn is_at_runtime(&self) -> bool {
        matches!(self.stage, FlightStage::Pulling | FlightStage::Verifying(_))
    }

    /// On whose budget the fleet counts it.
    pub(super) fn budget(&self) -> Option<String> {
        self.fleet.as_ref().map(|fleet| fleet.target.budget_owner.clone())
    }

    /// How long the pull itself takes by now.
    pub(super) fn pull_time(&self, now: Now) -> Duration {
        self.turn_since.map_or(Duration::ZERO, |since| now.monotonic.saturating_sub(since.monotonic))
    }
}

/// What a flight has to do with the fleet.
#[derive(Clone, Debug)]
pub(super) struct FleetSide {
    pub(super) target: Arc<Target>,
    /// The flight's request for clearance.
    pub(super) clearance: ClearanceId,
    /// The tracker has heard of that clearance.
    pub(super) is_known: bool,
    /// The last question for clearance; an answer to another one is late.
    pub(super) turn: u64,
    /// It is not answered yet.
    pub(super) asking: bool,
    pub(super) asked_at: Duration,
    /// The back-off keys of the callers that it was asked for.
    pub(super) asked_for: Vec<LocalKey>,
    /// By when the tracker should have answered.
    pub(super) answer_due: Duration,
    /// The last answer came from the tracker, and not from its silence.
    pub(super) answered: bool,
    /// The permit is there already: clearance was given before and given back.
    pub(super) has_permit: bool,
    /// Clearance was given, but does not hold any more.
    pub(super) lapsed: bool,
    /// When clearance was given, and by when the manifest must be there.
    pub(super) answer_by: Option<(Duration, Duration)>,
    /// The stage that must be there by then.
    pub(super) until: Stage,
    /// The stages that are said to have answered.
    pub(super) reached: Vec<Stage>,
    /// What the attempt came to is said, as far as clearance was given for it.
    pub(super) told: bool,
    /// What holds a standing pull, and when that was heard.
    pub(super) held: Option<(Refusal, Duration)>,
    /// What held it last, while nobody says what does now.
    held_before: Option<(Refusal, Duration)>,
    /// What a standing pull has said last that it waits for, and when.
    said: Option<(FailureClass, String, Duration)>,
    /// The fleet's budget is waited for: for how long, as far as known.
    pub(super) budget_wait: Option<Duration>,
    /// Since when the fleet is waited for, if it is.
    waiting_since: Option<Duration>,
    waited: Duration,
}

impl FleetSide {
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
            told: false,
            held: None,
            held_before: None,
            said: None,
            budget_wait: None,
            waiting_since: None,
            waited: Duration::ZERO,
        }
    }

    /// Waits for the fleet from now on.
    pub(super) fn begin_waiting(&mut self, now: Duration) {
        self.waiting_since.get_or_insert(now);
    }

    /// Waits for the node itself from now on, or for nothing.
    pub(super) fn stop_waiting(&mut self, now: Duration) {
        self.waited = self.waited_for_fleet(now);
        self.waiting_since = None;
        self.budget_wait = None;
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.waiting_since.is_some()
    }

    /// For how long it has waited for the fleet.
    pub(super) fn waited_for_fleet(&self, now: Duration) -> Duration {
        self.waited + self.waiting_since.map_or(Duration::ZERO, |since| now.saturating_sub(since))
    }

    /// Whether there is time enough left for the registry to answer: half of what was given.
    pub(super) fn is_in_time(&self, now: Duration) -> bool {
        !self.lapsed && self.answer_by.is_none_or(|(given, by)| now <= given + (by - given) / 2)
    }

    /// Hears what holds it now, as far as anybody says.
    pub(super) fn hear_of_hold(&mut self, now: Duration, held: Option<Refusal>) {
        let before = std::mem::replace(&mut self.held, held.map(|held| (held, now)));
        self.held_before = if self.held.is_some() { None } else { before.or(self.held_before.take()) };
    }

    /// Whether a standing pull is to say that this holds it. That another attempt has shown the same is no news: in an outage all nodes
    /// of a fleet hear of each attempt.
    pub(super) fn is_to_be_said(&mut self, now: Duration, held: &Refusal) -> bool {
        let known = |(class, cause, at): &(FailureClass, String, Duration)| {
            (*class, cause.as_str()) == (held.class, held.cause.as_str()) && now < *at + SAID_AGAIN_AFTER
        };
        let news = !self.said.as_ref().is_some_and(known);
        if news {
            self.said = Some((held.class, held.cause.clone(), now));
        }
        news
    }

    /// Nothing holds it.
    pub(super) fn let_go(&mut self) {
        (self.held, self.held_before, self.said) = (None, None, None);
    }

    /// What holds it, aged until now.
    pub(super) fn held_now(&self, now: Duration) -> Option<Refusal> {
        self.held.as_ref().map(|held| aged(now, held))
    }

    /// What held it last, aged until now.
    pub(super) fn held_lately(&self, now: Duration) -> Option<Refusal> {
        self.held_before.as_ref().map(|held| aged(now, held))
    }
}

fn aged(now: Duration, (held, heard): &(Refusal, Duration)) -> Refusal {
    let age = super::request::milliseconds(now.saturating_sub(*heard));
    Refusal { next_attempt_ms: held.next_attempt_ms.saturating_sub(age), learned_ms_ago: held.learned_ms_ago + age, ..held.clone() }
}
