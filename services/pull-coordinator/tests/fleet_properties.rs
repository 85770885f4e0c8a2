//! The core of a node that shares, with standing pulls, under random interleavings of inputs.
//!
//! Contracts, for every order of inputs with late and repeated ones: every caller gets exactly one answer; no pull begins without its own
//! clearance and permit; every permit is returned exactly once; every clearance is withdrawn exactly once and not used afterwards; the
//! result of an attempt is resolved at most once, and only if the attempt was made; at the end nothing is left and no alarm is set; equal
//! inputs give equal effects.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use contract::messages::backoff_tracker::{BackoffAnswer, Clearance};
use contract::messages::pull_coordinator::{EnsureImage, PullPolicy};
use contract::messages::throttler::PermitAnswer;
use contract::{AttemptId, ClearanceId, PermitId, Stage, StandingPullId};
use proptest::prelude::*;
use pull_coordinator::core::{Effect, FlightId, ImageFacts, Input, Policy, PulledFacts, RequestId};

use super::world::{World, failure, granted, granted_for_all, present_image, refusal, sharing, target, wanted};

/// One random action; the numbers choose among the inputs that are possible at that moment.
#[derive(Clone, Debug)]
enum Move {
    Ask { image: usize, how: usize },
    Answer { which: usize, how: usize },
    Repeat { which: usize },
    Resolve { which: usize },
    TimeOver { which: usize },
    Cancel { number: u8 },
    Pass { milliseconds: u64 },
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let one = prop_oneof![
        4 => (0..3_usize, any::<usize>()).prop_map(|(image, how)| Move::Ask { image, how }),
        14 => (any::<usize>(), any::<usize>()).prop_map(|(which, how)| Move::Answer { which, how }),
        2 => any::<usize>().prop_map(|which| Move::Repeat { which }),
        1 => any::<usize>().prop_map(|which| Move::Resolve { which }),
        1 => any::<usize>().prop_map(|which| Move::TimeOver { which }),
        1 => (0..4_u8).prop_map(|number| Move::Cancel { number }),
        3 => (0..9_000_u64).prop_map(|milliseconds| Move::Pass { milliseconds }),
    ];
    proptest::collection::vec(one, 0..150)
}

fn id(number: u8) -> StandingPullId {
    format!("{number:032x}").try_into().unwrap()
}

/// The clearance and permit that a flight has.
#[derive(Debug, Default)]
struct Flown {
    requested: Option<ClearanceId>,
    turn: u64,
    /// When the tracker should have answered; no answer by then counts as clearance.
    due: std::time::Duration,
    clearance: bool,
    permit: Option<PermitId>,
    has_permit: bool,
    pulling: Option<AttemptId>,
    attempt: Option<AttemptId>,
}

struct Model {
    world: World,
    open: Vec<Effect>,
    given: Vec<Input>,
    asked: BTreeSet<RequestId>,
    answered: BTreeSet<RequestId>,
    flights: BTreeMap<FlightId, Flown>,
    acquired: BTreeSet<PermitId>,
    released: BTreeSet<PermitId>,
    requested: BTreeSet<ClearanceId>,
    withdrawn: BTreeSet<ClearanceId>,
    resolved: BTreeSet<(AttemptId, Stage)>,
}

impl Model {
    fn new() -> Self {
        let policy = Policy { writes_standing_pulls: true, keep_free: Some(1_000), ..sharing() };
        Self {
            world: World::pulling(policy),
            open: Vec::new(),
            given: Vec::new(),
            asked: BTreeSet::new(),
            answered: BTreeSet::new(),
            flights: BTreeMap::new(),
            acquired: BTreeSet::new(),
            released: BTreeSet::new(),
            requested: BTreeSet::new(),
            withdrawn: BTreeSet::new(),
            resolved: BTreeSet::new(),
        }
    }

    fn make(&mut self, one: &Move) {
        match *one {
            Move::Ask { image, how } => self.ask(image, how),
            Move::Answer { which, how } if !self.open.is_empty() => {
                let question = self.open.remove(which % self.open.len());
                let input = answer(&question, how);
                if is_harmless_twice(&input) {
                    self.given.push(input.clone());
                }
                self.give(input);
            }
            Move::Repeat { which } if !self.given.is_empty() => {
                let input = self.given[which % self.given.len()].clone();
                let effects = self.world.give(input.clone());
                assert_eq!(effects, [], "{input:?} again");
            }
            Move::Resolve { which } if !self.flights.is_empty() => {
                let flight = *self.flights.keys().nth(which % self.flights.len()).unwrap();
                self.give(Input::Resolved { flight, seen: which.is_multiple_of(2) });
            }
            Move::TimeOver { which } if !self.asked.is_empty() => {
                let request = *self.asked.iter().nth(which % self.asked.len()).unwrap();
                self.give(Input::TimeOver { request });
            }
            Move::Cancel { number } => self.give(Input::StandingPullCancelled { standing_pull: id(number), by: String::new() }),
            Move::Pass { milliseconds } => self.pass(milliseconds),
            _ => {}
        }
    }

    fn ask(&mut self, image: usize, how: usize) {
        let image = ["a:1", "docker.io/library/a:1", "b"][image];
        let policy = [PullPolicy::Always, PullPolicy::IfNotPresent][how % 2];
        let wait_ms = [None, Some(30_000), Some(3_000)][how / 2 % 3];
        let number = u8::try_from(how / 6 % 4).unwrap();
        let detach = (how / 24).is_multiple_of(3);
        let ask = EnsureImage { wait_ms, standing_pull: wait_ms.map(|_| id(number)), detach, timeout_ms: Some(5), ..wanted(image, policy) };
        let (request, effects) = self.world.ask(ask);
        self.asked.insert(request);
        self.take(effects);
    }

    /// Lets time pass, alarm by alarm.
    fn pass(&mut self, milliseconds: u64) {
        let end = self.world.now.after(std::time::Duration::from_millis(milliseconds));
        while let Some(time) = self.world.core.next_alarm().filter(|time| *time <= end.monotonic) {
            self.world.now = self.world.now.after(time.saturating_sub(self.world.now.monotonic));
            self.give(Input::AlarmRang);
        }
        self.world.now = end;
    }

    fn give(&mut self, input: Input) {
        match &input {
            Input::Permitted { flight, answer: PermitAnswer::Granted { .. } } => {
                self.flights.get_mut(flight).unwrap().has_permit = true;
            }
            Input::ClearanceAnswered { flight, turn, answer } => {
                let flown = self.flights.get_mut(flight).unwrap();
                if flown.turn == *turn {
                    flown.clearance |= matches!(answer, None | Some(Clearance::Granted { .. }));
                    flown.due = std::time::Duration::MAX;
                }
            }
            Input::AlarmRang => {
                for flown in self.flights.values_mut() {
                    flown.clearance |= flown.due < self.world.now.monotonic;
                }
            }
            _ => {}
        }
        let effects = self.world.give(input);
        self.take(effects);
    }

    /// Checks each effect against the model.
    fn take(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match &effect {
                Effect::RequestClearance { flight, turn, ask, .. } => {
                    assert!(!self.withdrawn.contains(&ask.clearance), "a withdrawn clearance is not used");
                    self.requested.insert(ask.clearance);
                    let flown = self.flights.entry(*flight).or_default();
                    assert!(*turn > flown.turn);
                    // A new attempt has no clearance yet.
                    flown.clearance &= flown.attempt == Some(ask.attempt);
                    flown.due = self.world.now.monotonic + std::time::Duration::from_millis(ask.patience_ms);
                    (flown.turn, flown.requested, flown.attempt) = (*turn, Some(ask.clearance), Some(ask.attempt));
                }
                Effect::AcquirePermit { flight, permit, budget, .. } => {
                    assert!(!self.released.contains(permit), "a returned permit is not asked for again");
                    assert!(budget.is_some());
                    self.acquired.insert(*permit);
                    let flown = self.flights.get_mut(flight).unwrap();
                    assert!(flown.clearance, "no permit is asked for without clearance");
                    flown.permit = Some(*permit);
                    self.open.retain(|open| work_of(open) != Some(*flight));
                }
                Effect::StartPull { flight, permit, begin, .. } => {
                    let flown = self.flights.get_mut(flight).unwrap();
                    let begins = begin.map(|begin| (Some(begin.clearance), Some(begin.attempt)));
                    assert_eq!(begins, Some((flown.requested, flown.attempt)), "the attempt has the ids of its request for clearance");
                    assert!(flown.clearance && flown.has_permit && flown.permit == Some(*permit), "{flown:?}");
                    flown.pulling = flown.attempt;
                }
                Effect::Release { permit, .. } => {
                    assert!(self.acquired.contains(permit) && self.released.insert(*permit), "each permit is given back once");
                    for flown in self.flights.values_mut().filter(|flown| flown.permit == Some(*permit)) {
                        (flown.has_permit, flown.pulling, flown.permit) = (false, None, None);
                    }
                }
                Effect::Resolve { resolve, .. } => {
                    assert!(!self.withdrawn.contains(&resolve.clearance), "resolve comes before withdraw");
                    assert!(self.resolved.insert((resolve.attempt, resolve.stage)), "each stage of an attempt is resolved once");
                    let made = |flown: &&Flown| flown.pulling == Some(resolve.attempt) && flown.requested == Some(resolve.clearance);
                    assert!(self.flights.values().any(|flown| made(&flown)), "only attempts are resolved");
                }
                Effect::Withdraw { clearance, .. } => {
                    assert!(
                        self.requested.contains(clearance) && self.withdrawn.insert(*clearance),
                        "each request for clearance is withdrawn once"
                    );
                }
                Effect::Cancel { flight } => self.open.retain(|open| work_of(open) != Some(*flight)),
                Effect::Answer { request, .. } => {
                    assert!(self.asked.contains(request) && self.answered.insert(*request), "{request:?} is answered once");
                }
                _ => {}
            }
            let question = !matches!(
                effect,
                Effect::Cancel { .. } | Effect::Release { .. } | Effect::Answer { .. } | Effect::Resolve { .. } | Effect::Withdraw { .. }
            );
            if question {
                self.open.push(effect);
            }
        }
    }

    /// Answers every open effect with success and lets time pass, until nothing is left.
    fn come_to_rest(&mut self) {
        for _ in 0..20_000 {
            match self.open.pop() {
                Some(question) => self.give(answer(&question, 0)),
                None if self.world.core.next_alarm().is_some() => self.pass(1_000),
                None => return,
            }
        }
        panic!("the core does not come to rest: {:?}", self.open);
    }
}

/// Whether the shell could give this input twice. It cannot for work that it cancels with the flight.
fn is_harmless_twice(input: &Input) -> bool {
    matches!(input, Input::Inspected { .. } | Input::BackoffChecked { .. } | Input::ClearanceAnswered { .. } | Input::Reported { .. })
}

fn answer(question: &Effect, how: usize) -> Input {
    let bad = how % 3 == 1;
    let found = || match how % 3 {
        0 => Ok(Some(present_image())),
        1 => Err(failure("cannot say")),
        _ => Ok(None::<ImageFacts>),
    };
    match question {
        Effect::Inspect { request, presence, .. } => {
            let found = if *presence { found() } else { Ok(None) };
            let free_bytes = [Some(1_000), Some(999), None, Some(5_000), Some(5_000)][how % 5];
            Input::Inspected { request: *request, found, target: Some(Arc::new(target())), free_bytes }
        }
        Effect::CheckBackoff { request, .. } => {
            let answer = if bad { BackoffAnswer::Refused(refusal()) } else { BackoffAnswer::Allowed };
            Input::BackoffChecked { request: *request, answer }
        }
        Effect::RequestClearance { flight, turn, .. } => {
            let answers = [granted(), granted_for_all(), None, Some(Clearance::Refused(refusal())), Some(Clearance::Abandoned)];
            let waiting = [Some(Clearance::Waiting { held: None }), Some(Clearance::Waiting { held: Some(refusal()) })];
            let answer = answers.iter().chain(&waiting).nth(how % 7).unwrap().clone();
            Input::ClearanceAnswered { flight: *flight, turn: *turn, answer }
        }
        Effect::AcquirePermit { flight, .. } => {
            let queued = |budget_wait_ms| PermitAnswer::Queued { ahead: 1, budget_wait_ms };
            let answer = match how % 7 {
                1 => PermitAnswer::Refused { text: "pull QPS exceeded".to_owned() },
                2 => queued(None),
                3 => queued(Some(4_000)),
                4 => queued(Some(40_000)),
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
        Effect::KeepStandingPulls { .. } => Input::StandingPullsKept { error: bad.then(|| "disk full".to_owned()) },
        _ => panic!("{question:?} is no question"),
    }
}

/// The flight with which the shell cancels this effect's work.
fn work_of(effect: &Effect) -> Option<FlightId> {
    match effect {
        Effect::AcquirePermit { flight, .. }
        | Effect::Recheck { flight, .. }
        | Effect::StartPull { flight, .. }
        | Effect::Verify { flight, .. } => Some(*flight),
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
    fn every_caller_is_answered_and_permits_and_clearances_are_returned(moves in moves()) {
        let model = run(&moves);
        prop_assert_eq!(&model.answered, &model.asked);
        prop_assert_eq!(&model.acquired, &model.released);
        prop_assert_eq!(&model.requested, &model.withdrawn);
        prop_assert!(model.world.core.flights(model.world.now).is_empty());
        prop_assert!(model.world.core.standing_pulls(model.world.now).is_empty());
        prop_assert_eq!(model.world.core.next_alarm(), None);
    }

    #[test]
    fn equal_inputs_give_equal_effects(moves in moves()) {
        prop_assert_eq!(run(&moves).world.all_effects, run(&moves).world.all_effects);
    }
}
