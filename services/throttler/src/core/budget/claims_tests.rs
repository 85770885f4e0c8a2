//! What becomes of a permit, and the cost of a message, which does not depend on how many of a node's pulls wait. It is counted in claims
//! that are looked at.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::VecDeque;
use std::time::Duration;

use clock::{Now, Random};
use contract::PermitId;

use super::{BudgetPolicy, Budgets, Effect, Input, Term};

const OWNER: &str = "owner";
/// Pulls that end while claims are counted.
const ENDED: usize = 200;
/// The most claims that are looked at for one pull from its request to its end, however many wait: a few tens for each slot of the node.
const LOOKED_AT_MOST: usize = 200;

/// A node that runs three pulls at once and leads the budget.
struct Node {
    now: Duration,
    random: Random,
    budgets: Budgets,
    pulling: VecDeque<PermitId>,
}

impl Node {
    fn leading() -> Self {
        let mut random = Random::seeded(1);
        let policy = BudgetPolicy { per_second: 0.0, ..BudgetPolicy::default() };
        let budgets = Budgets::new("n1".parse().expect("a name"), policy, Random::seeded(random.word())).with_slots(3);
        let mut node = Self { now: Duration::from_secs(100), random, budgets, pulling: VecDeque::new() };
        node.want();
        let term = Term { epoch: 1, first: true, until: Duration::from_secs(1_000_000) };
        node.step(Input::Elected { owner: OWNER.to_owned(), term });
        node
    }

    fn want(&mut self) {
        let permit = PermitId::random(&mut self.random);
        self.step(Input::Want { owner: OWNER.to_owned(), permit });
    }

    fn step(&mut self, input: Input) {
        let now = Now { monotonic: self.now, wall: self.now };
        for effect in self.budgets.step(now, input) {
            if let Effect::Granted { permit, .. } = effect {
                self.pulling.push_back(permit);
            }
        }
        // The shell asks this after each step.
        assert!(self.budgets.known_waits(now).count() <= 3);
        assert!(self.budgets.wake_in(now).is_some());
    }
}

/// How many claims are looked at for each pull while `waiting` pulls wait.
fn looked_at_for_a_pull(waiting: usize) -> usize {
    let mut node = Node::leading();
    while node.budgets.count(contract::messages::throttler::PermitCounts::default()).budget_waiting < waiting as u64 {
        node.want();
    }
    node.budgets.take_looked_at();
    for _ in 0..ENDED {
        node.now += Duration::from_millis(10);
        let permit = node.pulling.pop_front().expect("a slot is used");
        node.step(Input::Release { permit, limits: Vec::new(), served: Some(true) });
        node.step(Input::Tick);
        node.want();
    }
    node.budgets.take_looked_at() / ENDED
}

#[test]
fn a_pull_costs_the_same_however_many_wait() {
    let (few, many) = (looked_at_for_a_pull(20), looked_at_for_a_pull(2_000));
    assert_eq!(few, many);
    assert!(many <= LOOKED_AT_MOST, "{many}");
}

#[test]
fn permit_that_is_requested_again_is_not_returned_any_more() {
    let mut random = Random::seeded(1);
    let budgets = Budgets::new("n1".parse().expect("a name"), BudgetPolicy::default(), Random::seeded(random.word()));
    let permit = PermitId::random(&mut random);
    let mut node = Node { now: Duration::from_secs(100), random, budgets, pulling: VecDeque::new() };
    let request = || Input::Want { owner: OWNER.to_owned(), permit };
    node.step(request());
    node.step(Input::Release { permit, limits: Vec::new(), served: None });
    node.step(request());
    assert_eq!(node.budgets.count(contract::messages::throttler::PermitCounts::default()).budget_waiting, 1);
}
