//! The state machine: the state of all requests and flights, and which function handles each input.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use clock::{Now, Random};
use contract::messages::pull_coordinator::PullOutcome;
use contract::{DEADLINES, NodeName};

use super::alarms::{Alarm, Alarms};
use super::flight::{Flight, FlightKey};
use super::request::Request;
use super::standing_pulls::{self, StandingPulls};
use super::step::{Effect, FlightId, Input, RequestId};

/// The usual number of effects. A `Vec` without capacity would allocate for four, each of some hundred bytes.
const EFFECTS_USUAL: usize = 2;

/// What the coordinator does beyond kubelet's behaviour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// How long a caller without a standing pull waits for clearance and budget, at least 1 s; none: the node shares nothing and
    /// requests no clearance.
    pub clearance_within: Option<Duration>,
    /// Bytes that a pull without a pod must leave free; none: no limit.
    pub keep_free: Option<u64>,
    /// Standing pulls are stored, and a detached one is confirmed only when that is done.
    pub writes_standing_pulls: bool,
}

impl Policy {
    fn bounded(self) -> Self {
        Self { clearance_within: self.clearance_within.map(|limit| DEADLINES.with_max_wait(limit).max_wait), ..self }
    }
}

/// All requests and flights of a node.
#[derive(Debug)]
pub struct Coordinator {
    pub(super) node: NodeName,
    pub(super) policy: Policy,
    pub(super) random: Random,
    pub(super) alarms: Alarms,
    pub(super) standing_pulls: StandingPulls,
    pub(super) requests: BTreeMap<RequestId, Request>,
    pub(super) flights: BTreeMap<FlightId, Flight>,
    /// Flights by their key.
    pub(super) flights_of: BTreeMap<FlightKey, BTreeSet<FlightId>>,
    /// Requests whose image or platform cannot be parsed, with the answer that follows their event.
    pub(super) unparsed: BTreeMap<RequestId, PullOutcome>,
    pub(super) last_flight: u64,
    /// How many flights have pulled an image.
    pub(super) images_pulled: u64,
}

impl Coordinator {
    /// A coordinator without requests.
    #[must_use]
    pub fn new(node: NodeName, policy: Policy, random: Random) -> Self {
        Self {
            node,
            policy: policy.bounded(),
            random,
            alarms: Alarms::default(),
            standing_pulls: StandingPulls::default(),
            requests: BTreeMap::new(),
            flights: BTreeMap::new(),
            flights_of: BTreeMap::new(),
            unparsed: BTreeMap::new(),
            last_flight: 0,
            images_pulled: 0,
        }
    }

    /// Sets the policy. Call it before the first request.
    pub fn set_policy(&mut self, policy: Policy) {
        self.policy = policy.bounded();
    }

    /// When [`Input::AlarmRang`] is due, on the monotonic clock.
    #[must_use]
    pub fn next_alarm(&self) -> Option<Duration> {
        self.alarms.next()
    }

    /// Takes one input and returns its effects. An input for a request or flight that is over changes nothing.
    pub fn step(&mut self, now: Now, input: Input) -> Vec<Effect> {
        let mut effects = Vec::with_capacity(EFFECTS_USUAL);
        match input {
            Input::Asked { request, ask, trace } => match standing_pulls::wait_of(&ask) {
                Some(wait) => self.begin_standing_pull(now, request, ask, wait, trace, &mut effects),
                None => self.asked(now, request, ask, trace, &mut effects),
            },
            Input::Inspected { request, found, target, free_bytes } => {
                self.inspected(now, request, found, (target, free_bytes), &mut effects);
            }
            Input::BackoffChecked { request, answer } => self.backoff_checked(now, request, answer, &mut effects),
            Input::Permitted { flight, answer } => self.permitted(now, flight, answer, &mut effects),
            Input::Rechecked { flight, found } => self.rechecked(now, flight, found, &mut effects),
            Input::ClearanceAnswered { flight, turn, answer } => self.clearance_answered(now, flight, turn, answer, &mut effects),
            Input::Resolved { flight, seen } => self.resolved(flight, seen, &mut effects),
            Input::Reached { flight, stage } => self.resolve_answered(flight, stage, &mut effects),
            Input::BlobAwaited { flight } => self.blob_awaited(flight),
            Input::Sized { flight, missing_bytes, free_bytes } => self.sized(now, flight, missing_bytes, free_bytes, &mut effects),
            Input::Pulled { flight, result } => self.pulled(now, flight, result, &mut effects),
            Input::Verified { flight, found } => self.verified(now, flight, found, &mut effects),
            Input::Reported { request, next_attempt_ms } => self.reported(now, request, next_attempt_ms, &mut effects),
            Input::Recorded { request } => self.recorded(now, request, &mut effects),
            Input::CallerAbandoned { request } => self.caller_abandoned(now, request, &mut effects),
            Input::TimeOver { request } => self.time_over(now, request, &mut effects),
            Input::StandingPullsLoaded { standing_pulls } => self.standing_pulls_loaded(now, standing_pulls),
            Input::StandingPullsKept { error } => self.standing_pulls_kept(now, error.as_deref(), &mut effects),
            Input::StandingPullCancelled { standing_pull, by } => self.standing_pull_cancelled(now, standing_pull, &by, &mut effects),
            Input::AlarmRang => self.alarm_rang(now, &mut effects),
        }
        self.assert_invariants();
        effects
    }

    fn alarm_rang(&mut self, now: Now, effects: &mut Vec<Effect>) {
        self.write_if_clock_was_set(now, effects);
        while let Some(alarm) = self.alarms.take_due(now.monotonic) {
            match alarm {
                Alarm::Patience(flight) => self.patience_over(now, flight, effects),
                Alarm::Manifest(flight) => self.manifest_due(now, flight, effects),
                Alarm::Clearance(flight) => self.clearance_due(now, flight, effects),
                Alarm::StandingPull(standing_pull) => self.standing_pull_due(now, standing_pull, effects),
                Alarm::StandingPullFile => self.write_standing_pulls_again(now, effects),
            }
        }
    }
}
