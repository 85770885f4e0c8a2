//! A core and helpers to drive it: the test gives the inputs and answers the effects.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::sync::Arc;
use std::time::Duration;

use clock::{Now, Random};
use contract::messages::backoff_tracker::{
    AttemptFailure, BackoffAnswer, Clearance, Refusal, ReportAttempt, RequestClearance, ResolveAttempt,
};
use contract::messages::pull_coordinator::{EnsureImage, PullOutcome, PullPolicy};
use contract::messages::throttler::PermitAnswer;
use contract::{EventReason, FailureClass, PodRef, PullEvent, Stage, Target, TraceContext, View};
use pull_coordinator::core::{Coordinator, Effect, Failure, FlightId, ImageFacts, Input, Policy, PulledFacts, RequestId};

/// A core and all its effects so far.
pub(crate) struct World {
    pub(crate) core: Coordinator,
    pub(crate) now: Now,
    /// Every effect in order.
    pub(crate) all_effects: Vec<Effect>,
    random: Random,
    last_request: u64,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::pulling(Policy::default())
    }

    pub(crate) fn pulling(policy: Policy) -> Self {
        let node = "n1".parse().expect("a name");
        Self {
            core: Coordinator::new(node, policy, Random::seeded(1)),
            now: Now::default(),
            all_effects: Vec::new(),
            random: Random::seeded(2),
            last_request: 0,
        }
    }

    pub(crate) fn pass(&mut self, milliseconds: u64) {
        self.now = self.now.after(Duration::from_millis(milliseconds));
    }

    /// Gives an input; returns its effects and adds them to `all_effects`.
    pub(crate) fn give(&mut self, input: Input) -> Vec<Effect> {
        let effects = self.core.step(self.now, input);
        self.all_effects.extend(effects.iter().cloned());
        effects
    }

    pub(crate) fn ask(&mut self, ask: EnsureImage) -> (RequestId, Vec<Effect>) {
        self.last_request += 1;
        let request = RequestId(self.last_request);
        let trace = TraceContext::root(&mut self.random);
        let effects = self.give(Input::Asked { request, ask, trace });
        (request, effects)
    }

    /// Makes a request that finds its image absent and no back-off, up to its flight. Its Pulling event is recorded.
    pub(crate) fn ask_until_flight(&mut self, ask: EnsureImage) -> (RequestId, Vec<Effect>) {
        let inspects = ask.policy != Some(PullPolicy::Always);
        let (request, _) = self.ask(ask);
        if inspects {
            self.give(absent(request));
        }
        let effects = self.give(Input::BackoffChecked { request, answer: BackoffAnswer::Allowed });
        self.give(Input::Recorded { request });
        (request, effects)
    }

    /// As [`World::ask_until_flight`], on a node that shares: up to the request for clearance. A run of a standing pull has no back-off
    /// check.
    pub(crate) fn ask_until_clearance(&mut self, ask: EnsureImage) -> (RequestId, Vec<Effect>) {
        let (request, effects) = self.ask(ask);
        (request, self.answer_until_clearance(effects))
    }

    /// Answers the effects before the request for clearance: image absent, no back-off.
    pub(crate) fn answer_until_clearance(&mut self, effects: Vec<Effect>) -> Vec<Effect> {
        let (mut open, mut last) = (effects, Vec::new());
        while let Some(effect) = open.pop() {
            let input = match effect {
                Effect::Inspect { request, .. } => absent(request),
                Effect::CheckBackoff { request, .. } => Input::BackoffChecked { request, answer: BackoffAnswer::Allowed },
                _ => continue,
            };
            last = self.give(input);
            open.extend(last.iter().cloned());
        }
        last
    }

    /// Answers a flight's last request for clearance.
    pub(crate) fn clearance(&mut self, flight: FlightId, answer: Option<Clearance>) -> Vec<Effect> {
        let turn = self.clearances_requested(flight).last().expect("clearance was asked for").0;
        self.give(Input::ClearanceAnswered { flight, turn, answer })
    }

    /// A flight's requests for clearance, with their turns.
    pub(crate) fn clearances_requested(&self, wanted: FlightId) -> Vec<(u64, RequestClearance)> {
        let asked = |effect: &Effect| match effect {
            Effect::RequestClearance { flight, turn, ask, .. } if *flight == wanted => Some((*turn, (**ask).clone())),
            _ => None,
        };
        self.all_effects.iter().filter_map(asked).collect()
    }

    /// Lets time pass; every alarm rings when it is due.
    pub(crate) fn let_pass(&mut self, milliseconds: u64) -> Vec<Effect> {
        let end = self.now.after(Duration::from_millis(milliseconds));
        let mut all = Vec::new();
        while let Some(time) = self.core.next_alarm().filter(|time| *time <= end.monotonic) {
            self.now = self.now.after(time.saturating_sub(self.now.monotonic));
            all.extend(self.give(Input::AlarmRang));
        }
        self.now = end;
        all
    }

    pub(crate) fn resolves(&self) -> Vec<ResolveAttempt> {
        let resolve = |effect: &Effect| match effect {
            Effect::Resolve { resolve, .. } => Some((**resolve).clone()),
            _ => None,
        };
        self.all_effects.iter().filter_map(resolve).collect()
    }

    pub(crate) fn grant(&mut self, flight: FlightId) -> Vec<Effect> {
        self.give(Input::Permitted { flight, answer: PermitAnswer::Granted { lease_ms: 30_000 } })
    }

    pub(crate) fn pulled(&mut self, flight: FlightId) -> Vec<Effect> {
        let facts = PulledFacts { image_ref: "sha256:pulled".to_owned(), auth: "anonymous".to_owned(), ..PulledFacts::default() };
        self.give(Input::Pulled { flight, result: Ok(facts) })
    }

    pub(crate) fn verified(&mut self, flight: FlightId) -> Vec<Effect> {
        self.give(Input::Verified { flight, found: Ok(Some(present_image())) })
    }

    /// Answers all records and reports, also those that follow from them; returns all effects.
    pub(crate) fn settle(&mut self, effects: Vec<Effect>) -> Vec<Effect> {
        let (mut open, mut all) = (effects, Vec::new());
        while !open.is_empty() {
            let mut next = Vec::new();
            for effect in &open {
                match effect {
                    Effect::Record { request, .. } => next.extend(self.give(Input::Recorded { request: *request })),
                    Effect::Report { request, report, .. } => {
                        let next_attempt_ms = report.failure.as_ref().map(|_| 10_000);
                        next.extend(self.give(Input::Reported { request: *request, next_attempt_ms }));
                    }
                    _ => {}
                }
            }
            all.append(&mut open);
            open = next;
        }
        all
    }

    pub(crate) fn answers_to(&self, wanted: RequestId) -> Vec<PullOutcome> {
        let answer = |effect: &Effect| match effect {
            Effect::Answer { request, outcome } if *request == wanted => Some(outcome.clone()),
            _ => None,
        };
        self.all_effects.iter().filter_map(answer).collect()
    }

    /// The one answer to a request.
    pub(crate) fn answer_to(&self, request: RequestId) -> PullOutcome {
        let answers = self.answers_to(request);
        assert_eq!(answers.len(), 1, "{request:?} is answered once: {answers:?}");
        answers.into_iter().next().expect("there is one")
    }

    pub(crate) fn events_of(&self, wanted: RequestId) -> Vec<PullEvent> {
        let event = |effect: &Effect| match effect {
            Effect::Record { request, event } if *request == wanted => Some(event.clone()),
            _ => None,
        };
        self.all_effects.iter().filter_map(event).collect()
    }

    pub(crate) fn reasons_of(&self, request: RequestId) -> Vec<EventReason> {
        self.events_of(request).into_iter().map(|event| event.reason).collect()
    }

    pub(crate) fn reports(&self) -> Vec<ReportAttempt> {
        let report = |effect: &Effect| match effect {
            Effect::Report { report, .. } => Some(report.clone()),
            _ => None,
        };
        self.all_effects.iter().filter_map(report).collect()
    }

    pub(crate) fn count(&self, kind: &str) -> usize {
        self.all_effects.iter().filter(|effect| name(effect) == kind).count()
    }
}

/// The policy of a node that shares and where a caller waits 10 s for the fleet.
pub(crate) fn sharing() -> Policy {
    Policy { clearance_within: Some(Duration::from_secs(10)), ..Policy::default() }
}

pub(crate) fn target() -> Target {
    let view = View { registry: "registry.example".to_owned(), ..View::default() };
    Target { view, budget_owner: "owner".to_owned(), scope: "anonymous".to_owned(), shows_blobs: true, ..Target::default() }
}

/// The runtime's answer that the image is absent, with its target.
pub(crate) fn absent(request: RequestId) -> Input {
    Input::Inspected { request, found: Ok(None), target: Some(Arc::new(target())), free_bytes: Some(u64::MAX) }
}

/// Clearance for this node alone, without a time limit.
pub(crate) fn granted() -> Option<Clearance> {
    Some(Clearance::Granted { for_all: false, answer_within_ms: None, until: Stage::Manifest, released_by: None })
}

/// Clearance as leader or prober: the manifest must be there within 15 s.
pub(crate) fn granted_for_all() -> Option<Clearance> {
    Some(Clearance::Granted { for_all: true, answer_within_ms: Some(15_000), until: Stage::Manifest, released_by: None })
}

/// Clearance as leader or prober: the first byte of a blob must be there within 15 s.
pub(crate) fn granted_until_blob() -> Option<Clearance> {
    Some(Clearance::Granted { for_all: true, answer_within_ms: Some(15_000), until: Stage::Blob, released_by: None })
}

/// A refusal because of another node's failure 2 s ago.
pub(crate) fn refusal() -> Refusal {
    Refusal {
        cause: "ErrImagePull: gone".to_owned(),
        class: FailureClass::NotFound,
        next_attempt_ms: 8_000,
        learned_by: Some("n9".parse().expect("a name")),
        learned_ms_ago: 2_000,
        learned_trace: TraceContext::parse("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
        unconfirmed: false,
        entry: None,
    }
}

/// A standing pull of 1 min.
pub(crate) fn standing(image: &str) -> EnsureImage {
    EnsureImage { wait_ms: Some(60_000), ..wanted(image, PullPolicy::IfNotPresent) }
}

pub(crate) fn name(effect: &Effect) -> &'static str {
    match effect {
        Effect::Inspect { .. } => "Inspect",
        Effect::CheckBackoff { .. } => "CheckBackoff",
        Effect::RequestClearance { .. } => "RequestClearance",
        Effect::Resolve { .. } => "Resolve",
        Effect::Withdraw { .. } => "Withdraw",
        Effect::KeepStandingPulls { .. } => "KeepStandingPulls",
        Effect::AcquirePermit { .. } => "AcquirePermit",
        Effect::Recheck { .. } => "Recheck",
        Effect::StartPull { .. } => "StartPull",
        Effect::Cancel { .. } => "Cancel",
        Effect::Release { .. } => "Release",
        Effect::Verify { .. } => "Verify",
        Effect::Report { .. } => "Report",
        Effect::Record { .. } => "Record",
        Effect::Answer { .. } => "Answer",
    }
}

pub(crate) fn names(effects: &[Effect]) -> Vec<&'static str> {
    effects.iter().map(name).collect()
}

/// The flight of the first of these effects that has one.
pub(crate) fn flight_of(effects: &[Effect]) -> FlightId {
    let flight = |effect: &Effect| match effect {
        Effect::AcquirePermit { flight, .. }
        | Effect::RequestClearance { flight, .. }
        | Effect::Recheck { flight, .. }
        | Effect::StartPull { flight, .. }
        | Effect::Verify { flight, .. }
        | Effect::Cancel { flight } => Some(*flight),
        _ => None,
    };
    effects.iter().find_map(flight).expect("an effect of a flight")
}

pub(crate) fn wanted(image: &str, policy: PullPolicy) -> EnsureImage {
    EnsureImage { image: image.to_owned(), policy: Some(policy), ..EnsureImage::default() }
}

pub(crate) fn pod(name: &str) -> Option<PodRef> {
    Some(PodRef { namespace: "shop".to_owned(), name: name.to_owned(), uid: String::new() })
}

pub(crate) fn present_image() -> ImageFacts {
    ImageFacts { image_ref: "sha256:there".to_owned(), size_bytes: 5, ..ImageFacts::default() }
}

pub(crate) fn failure(text: &str) -> Failure {
    Failure { text: text.to_owned(), class: FailureClass::NotFound, auth: "anonymous".to_owned(), ..Failure::default() }
}

pub(crate) fn cause(text: &str) -> AttemptFailure {
    AttemptFailure { class: FailureClass::NotFound, cause: text.to_owned(), ..AttemptFailure::default() }
}
