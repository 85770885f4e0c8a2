//! The core under random interleavings of inputs, compared with a model of the effects that are allowed.
//!
//! Contracts, for every order of inputs with late and repeated ones: every request gets exactly one answer, after its events and its
//! report; every permit that was asked for is returned exactly once; nothing happens for a request or flight that is over; no image is in
//! two flights that a caller could have shared; equal inputs give equal effects.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};

use contract::messages::backoff_tracker::{BackoffAnswer, Refusal};
use contract::messages::pull_coordinator::{EnsureImage, OutcomeKind, PullOutcome, PullPolicy};
use contract::messages::throttler::PermitAnswer;
use contract::{EventReason, PermitId};
use proptest::prelude::*;
use pull_coordinator::core::{Effect, FlightId, ImageFacts, Input, PulledFacts, RequestId};

use super::world::{World, failure, pod, present_image, wanted};

/// One random action; the numbers choose among the inputs that are possible at that moment.
#[derive(Clone, Debug)]
enum Move {
    Ask { image: usize, policy: usize, pod: usize },
    Answer { which: usize, how: usize },
    Repeat { which: usize },
    Resolve { which: usize },
    TimeOver { which: usize },
    Pass { milliseconds: u64 },
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let one = prop_oneof![
        4 => (0..4_usize, 0..4_usize, 0..3_usize).prop_map(|(image, policy, pod)| Move::Ask { image, policy, pod }),
        12 => (any::<usize>(), any::<usize>()).prop_map(|(which, how)| Move::Answer { which, how }),
        3 => any::<usize>().prop_map(|which| Move::Repeat { which }),
        1 => any::<usize>().prop_map(|which| Move::Resolve { which }),
        2 => any::<usize>().prop_map(|which| Move::TimeOver { which }),
        1 => (0..200_u64).prop_map(|milliseconds| Move::Pass { milliseconds }),
    ];
    proptest::collection::vec(one, 0..150)
}

/// The core, and the effects and requests that are still open.
struct Model {
    world: World,
    /// Effects that are not answered yet.
    open: Vec<Effect>,
    /// Earlier inputs, for repetition.
    given: Vec<Input>,
    asked: BTreeSet<RequestId>,
    answered: BTreeMap<RequestId, PullOutcome>,
    reports: BTreeMap<RequestId, bool>,
    events: BTreeMap<RequestId, Vec<EventReason>>,
    permits: BTreeMap<PermitId, FlightId>,
    over: BTreeSet<FlightId>,
    granted: BTreeSet<FlightId>,
    started: BTreeSet<FlightId>,
    cancelled: BTreeSet<FlightId>,
}

impl Model {
    fn new() -> Self {
        Self {
            world: World::new(),
            open: Vec::new(),
            given: Vec::new(),
            asked: BTreeSet::new(),
            answered: BTreeMap::new(),
            reports: BTreeMap::new(),
            events: BTreeMap::new(),
            permits: BTreeMap::new(),
            over: BTreeSet::new(),
            granted: BTreeSet::new(),
            started: BTreeSet::new(),
            cancelled: BTreeSet::new(),
        }
    }

    fn make(&mut self, one: &Move) {
        match *one {
            Move::Ask { image, policy, pod } => self.ask(image, policy, pod),
            Move::Answer { which, how } if !self.open.is_empty() => {
                let question = self.open.remove(which % self.open.len());
                let input = answer(&question, how);
                self.given.push(input.clone());
                self.give(input);
            }
            Move::Repeat { which } if !self.given.is_empty() => self.repeat(which),
            Move::Resolve { which } if !self.permits.is_empty() => {
                let flight = *self.permits.values().nth(which % self.permits.len()).unwrap();
                self.give(Input::Resolved { flight, seen: false });
            }
            Move::TimeOver { which } if !self.asked.is_empty() => {
                let request = *self.asked.iter().nth(which % self.asked.len()).unwrap();
                self.give(Input::TimeOver { request });
            }
            Move::Pass { milliseconds } => self.world.pass(milliseconds),
            _ => {}
        }
    }

    fn ask(&mut self, image: usize, policy: usize, pod_number: usize) {
        let image = ["a:1", "docker.io/library/a:1", "b", "NO GOOD"][image];
        let policy = [PullPolicy::Always, PullPolicy::IfNotPresent, PullPolicy::Never, PullPolicy::IfNotPresent][policy];
        let pod = if pod_number == 0 { None } else { pod(&pod_number.to_string()) };
        let (request, effects) = self.world.ask(EnsureImage { pod, timeout_ms: Some(5), ..wanted(image, policy) });
        self.asked.insert(request);
        self.take(effects);
    }

    /// Repeats an earlier input; not a `Recorded` while its request is under way, because the shell answers each record once.
    fn repeat(&mut self, which: usize) {
        let input = self.given[which % self.given.len()].clone();
        if let Input::Recorded { request } = input
            && !self.answered.contains_key(&request)
        {
            return;
        }
        let effects = self.world.give(input.clone());
        // After `Queued` the flight asks again with the same permit.
        let asks_again = matches!(input, Input::Permitted { answer: PermitAnswer::Queued { .. }, .. })
            && effects.iter().all(|effect| matches!(effect, Effect::AcquirePermit { .. }));
        assert!(effects.is_empty() || asks_again || self.is_first_answer(&input), "{input:?} again led to {effects:?}");
        self.take(effects);
    }

    /// Whether a repeated answer fits an open effect, as when a queued flight asks again and gets the same answer.
    fn is_first_answer(&mut self, input: &Input) -> bool {
        let Input::Permitted { flight, .. } = input else { return false };
        let fits = |question: &Effect| matches!(question, Effect::AcquirePermit { flight: asked, .. } if asked == flight);
        self.open.iter().position(fits).map(|place| self.open.remove(place)).is_some()
    }

    fn give(&mut self, input: Input) {
        if let Input::Permitted { flight, answer: PermitAnswer::Granted { .. } } = &input {
            self.granted.insert(*flight);
        }
        let effects = self.world.give(input);
        self.take(effects);
    }

    /// Checks each effect against the model.
    fn take(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match &effect {
                Effect::Inspect { request, .. } | Effect::CheckBackoff { request, .. } => self.check_alive(*request, &effect),
                Effect::Record { request, event } => {
                    self.check_alive(*request, &effect);
                    let recording = |open: &Effect| matches!(open, Effect::Record { request: other, .. } if other == request);
                    assert!(!self.open.iter().any(recording), "one event after the other");
                    self.events.entry(*request).or_default().push(event.reason);
                }
                Effect::Report { request, report, .. } => {
                    self.check_alive(*request, &effect);
                    assert!(self.reports.insert(*request, report.failure.is_some()).is_none(), "{request:?} is reported once");
                }
                Effect::AcquirePermit { flight, permit, .. } => {
                    self.check_in_flight(*flight, &effect);
                    assert_eq!(*self.permits.entry(*permit).or_insert(*flight), *flight);
                    assert!(!self.granted.contains(flight), "a granted permit is not asked for");
                    // Requests with the same permit count as one.
                    self.open.retain(|open| flight_of(open) != Some(*flight));
                }
                Effect::Recheck { flight, .. } => self.check_in_flight(*flight, &effect),
                Effect::StartPull { flight, permit, .. } => {
                    self.check_in_flight(*flight, &effect);
                    assert_eq!(self.permits.get(permit), Some(flight));
                    assert!(self.granted.contains(flight), "no pull without a permit");
                    assert!(self.started.insert(*flight), "one pull for a flight");
                }
                Effect::Verify { flight, .. } => {
                    self.check_in_flight(*flight, &effect);
                    assert!(self.started.contains(flight));
                }
                Effect::Cancel { flight } => {
                    self.check_in_flight(*flight, &effect);
                    self.cancelled.insert(*flight);
                }
                Effect::Release { permit, .. } => {
                    let flight = self.permits[permit];
                    assert!(self.over.insert(flight), "{permit:?} is given back once");
                    let open_before = self.open.len();
                    self.open.retain(|open| flight_of(open) != Some(flight));
                    let was_under_way = self.open.len() < open_before;
                    assert_eq!(was_under_way, self.cancelled.contains(&flight), "what is under way is cancelled, and nothing else");
                }
                Effect::Answer { request, outcome } => self.check_answer(*request, outcome),
                Effect::RequestClearance { .. } | Effect::Resolve { .. } | Effect::Withdraw { .. } | Effect::KeepStandingPulls { .. } => {
                    panic!("{effect:?} on a node that shares nothing")
                }
            }
            if !matches!(effect, Effect::Cancel { .. } | Effect::Release { .. } | Effect::Answer { .. }) {
                self.open.push(effect);
            }
        }
        self.check_flights();
    }

    fn check_alive(&self, request: RequestId, effect: &Effect) {
        assert!(!self.answered.contains_key(&request), "{effect:?} after the answer");
    }

    fn check_in_flight(&self, flight: FlightId, effect: &Effect) {
        assert!(!self.over.contains(&flight), "{effect:?} after the end of its flight");
    }

    fn check_answer(&mut self, request: RequestId, outcome: &PullOutcome) {
        let waits = |open: &&Effect| matches!(open, Effect::Record { request: other, .. } | Effect::Report { request: other, .. } if *other == request);
        assert_eq!(self.open.iter().find(waits), None, "the answer comes last");
        self.open.retain(|open| request_of(open) != Some(request));
        assert!(self.answered.insert(request, outcome.clone()).is_none(), "{request:?} is answered once");
        self.check_events(request, outcome);
    }

    /// Checks that the events and the report of a request fit its outcome.
    fn check_events(&self, request: RequestId, outcome: &PullOutcome) {
        use EventReason::{BackOff, ErrImageNeverPull, Failed, InspectFailed, Pulled, Pulling, Throttled};
        let mut events = self.events.get(&request).cloned().unwrap_or_default();
        assert!(events.iter().filter(|reason| **reason == Throttled).count() <= 1, "Throttled is recorded once: {events:?}");
        assert!(events.last() != Some(&Throttled) || outcome.timed_out, "a wait ends: {events:?}");
        events.retain(|reason| *reason != Throttled);
        let allowed: &[&[EventReason]] = match (outcome.outcome, outcome.timed_out) {
            (OutcomeKind::Failed, true) => &[&[], &[Pulling]],
            (OutcomeKind::Pulled, _) => &[&[Pulling, Pulled]],
            (OutcomeKind::Present, _) => &[&[Pulled], &[Pulling, Pulled]],
            (OutcomeKind::Backoff, _) => &[&[BackOff]],
            (OutcomeKind::Failed, false) => &[&[Pulling, Failed], &[InspectFailed], &[ErrImageNeverPull]],
            (OutcomeKind::Unknown(_), _) => &[],
        };
        assert!(allowed.contains(&events.as_slice()), "{:?} with {events:?}", outcome.outcome);
        let flown = events.len() == 2 && outcome.outcome != OutcomeKind::Present;
        let reported = flown.then_some(outcome.outcome == OutcomeKind::Failed);
        assert_eq!(self.reports.get(&request).copied(), reported, "attempts are reported, and nothing else");
    }

    /// Checks that the listed flights are those with a permit that was asked for and not returned.
    fn check_flights(&self) {
        let shown: BTreeSet<FlightId> = self.world.core.flights(self.world.now).iter().map(|view| view.flight).collect();
        let unreturned: BTreeSet<FlightId> = self.permits.values().copied().filter(|flight| !self.over.contains(flight)).collect();
        assert_eq!(shown, unreturned);
        for view in self.world.core.flights(self.world.now) {
            assert!(view.callers > 0, "no flight without a caller");
        }
    }

    /// Answers every open effect with success, until none is left.
    fn come_to_rest(&mut self) {
        for _ in 0..10_000 {
            let Some(question) = self.open.pop() else { return };
            let input = answer(&question, 0);
            self.give(input);
        }
        panic!("the core does not come to rest");
    }
}

fn answer(question: &Effect, how: usize) -> Input {
    let bad = how % 3 == 1;
    let found = || match how % 3 {
        0 => Ok(Some(present_image())),
        1 => Err(failure("cannot say")),
        _ => Ok(None::<ImageFacts>),
    };
    match question {
        Effect::Inspect { request, .. } => Input::Inspected { request: *request, found: found(), target: None, free_bytes: None },
        Effect::CheckBackoff { request, .. } => {
            let answer = if bad { BackoffAnswer::Refused(Refusal::default()) } else { BackoffAnswer::Allowed };
            Input::BackoffChecked { request: *request, answer }
        }
        Effect::AcquirePermit { flight, .. } => {
            let answer = match how % 5 {
                1 => PermitAnswer::Refused { text: "pull QPS exceeded".to_owned() },
                2 | 3 => PermitAnswer::Queued { ahead: 1, budget_wait_ms: None },
                _ => PermitAnswer::Granted { lease_ms: 30_000 },
            };
            Input::Permitted { flight: *flight, answer }
        }
        Effect::Recheck { flight, .. } => Input::Rechecked { flight: *flight, found: found() },
        Effect::StartPull { flight, .. } => {
            let result = if bad { Err(failure("gone")) } else { Ok(PulledFacts { image_ref: "ref".to_owned(), ..PulledFacts::default() }) };
            Input::Pulled { flight: *flight, result }
        }
        Effect::Verify { flight, .. } => Input::Verified { flight: *flight, found: found() },
        Effect::Report { request, report, .. } => {
            Input::Reported { request: *request, next_attempt_ms: report.failure.as_ref().map(|_| 10_000) }
        }
        Effect::Record { request, .. } => Input::Recorded { request: *request },
        _ => panic!("{question:?} is no question"),
    }
}

fn flight_of(effect: &Effect) -> Option<FlightId> {
    match effect {
        Effect::AcquirePermit { flight, .. }
        | Effect::Recheck { flight, .. }
        | Effect::StartPull { flight, .. }
        | Effect::Verify { flight, .. } => Some(*flight),
        _ => None,
    }
}

fn request_of(effect: &Effect) -> Option<RequestId> {
    match effect {
        Effect::Inspect { request, .. } | Effect::CheckBackoff { request, .. } => Some(*request),
        _ => None,
    }
}

fn run(moves: &[Move]) -> Model {
    let mut model = Model::new();
    for one in moves {
        model.make(one);
    }
    model.come_to_rest();
    model
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_request_is_answered_once_and_every_permit_returned(moves in moves()) {
        let model = run(&moves);
        let answered: BTreeSet<RequestId> = model.answered.keys().copied().collect();
        prop_assert_eq!(answered, model.asked);
        let flown: BTreeSet<FlightId> = model.permits.values().copied().collect();
        prop_assert_eq!(flown.len(), model.permits.len(), "a permit for each flight");
        prop_assert_eq!(flown, model.over);
        prop_assert!(model.world.core.flights(model.world.now).is_empty());
    }

    #[test]
    fn equal_inputs_give_equal_effects(moves in moves()) {
        prop_assert_eq!(run(&moves).world.all_effects, run(&moves).world.all_effects);
    }

    /// If nobody asks with policy Always and no tag is resolved before its pull ends, each image has at most one flight at any time.
    #[test]
    fn callers_of_one_image_share_one_flight(moves in moves()) {
        let mut model = Model::new();
        for one in &moves {
            match one {
                Move::Resolve { .. } => {}
                Move::Ask { image, pod, .. } => model.make(&Move::Ask { image: *image, policy: 1, pod: *pod }),
                other => model.make(other),
            }
            let mut images: Vec<String> =
                model.world.core.flights(model.world.now).into_iter().map(|view| view.image.replace("docker.io/library/", "")).collect();
            images.sort_unstable();
            let flights = images.len();
            images.dedup();
            prop_assert_eq!(flights, images.len());
        }
    }
}
