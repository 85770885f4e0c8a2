//! The cost of a pull, counted in looks at requests, does not depend on how many images the node requests.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::VecDeque;
use std::time::Duration;

use clock::Random;
use contract::messages::backoff_tracker::LocalKey;
use contract::{AttemptId, FailureClass, Target, View};

use super::{AttemptFailure, Decision, Effect, Input, Knowledge, LeaseAnswer, Outcome, RequestId};
use crate::core::BackoffPolicy;

/// Pulls that end while looks are counted.
const ENDED: usize = 100;
/// The most looks at requests for one pull, from its request to its end, for any number of waiting requests.
const LOOKED_AT_MOST: usize = 40;

/// The only node of a fleet, on a bus that answers at once. Its registry has none of the images, so no blob answer is known and few images
/// are attempted at a time.
struct Node {
    now: Duration,
    core: Knowledge,
    random: Random,
    last: u64,
    cleared: VecDeque<RequestId>,
}

impl Node {
    fn new() -> Self {
        let mut core = Knowledge::new("me".parse().unwrap(), BackoffPolicy::default());
        core.step(Duration::ZERO, Input::Fleet { alive: 1, rank: Some(0), in_zone: None });
        Self { now: Duration::ZERO, core, random: Random::seeded(1), last: 0, cleared: VecDeque::new() }
    }

    fn give(&mut self, input: Input) {
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            for effect in self.core.step(self.now, input) {
                match effect {
                    Effect::AcquireLease(name) => inputs.push_back(Input::Lease(name, LeaseAnswer::Won)),
                    Effect::ReleaseLease(name) => inputs.push_back(Input::LeaseFreed(name)),
                    Effect::Publish(report, _) => inputs.push_back(Input::ReportStored(report.backoff_key.id())),
                    Effect::Answer(request, Decision::Granted { .. }) => self.cleared.push_back(request),
                    _ => {}
                }
            }
        }
    }

    fn request(&mut self) {
        self.last += 1;
        let image = format!("r/a{}:1", self.last);
        let view = View { registry: "r".to_owned(), ..View::default() };
        let target = Target { view, endpoint: "r:443".to_owned(), reference: image.clone(), shows_blobs: true, ..Target::default() };
        self.give(Input::Request { request: RequestId(self.last), key: LocalKey { pod: None, image }, target });
    }

    /// The next image with clearance is not found.
    fn fail_one(&mut self) {
        let end = self.now + Duration::from_secs(60);
        while self.cleared.is_empty() && self.now < end {
            self.now = self.core.next_wake().expect("a request waits").max(self.now);
            self.give(Input::Tick);
        }
        let (request, attempt) = (self.cleared.pop_front().expect("a request has clearance"), AttemptId::random(&mut self.random));
        self.now += Duration::from_millis(10);
        self.give(Input::AttemptStarted { request, attempt, trace: None });
        let failure =
            AttemptFailure { class: FailureClass::NotFound, cause: "no".to_owned(), authoritative: true, ..AttemptFailure::default() };
        self.give(Input::AttemptResolved { request, attempt, outcome: Outcome::Failed(failure) });
        self.give(Input::Withdraw(request));
    }
}

/// Looks at requests for each pull, while `waiting` requests wait.
fn looked_at_for_a_pull(waiting: usize) -> usize {
    let mut node = Node::new();
    for _ in 0..waiting {
        node.request();
    }
    node.fail_one();
    node.core.requests.looked_at = 0;
    for _ in 0..ENDED {
        node.fail_one();
        node.request();
    }
    node.core.requests.looked_at / ENDED
}

#[test]
fn the_cost_of_a_pull_does_not_depend_on_how_many_requests_wait() {
    let (few, many) = (looked_at_for_a_pull(20), looked_at_for_a_pull(900));
    assert!(few <= LOOKED_AT_MOST && many <= LOOKED_AT_MOST, "{few} while 20 wait, {many} while 900 do");
}
