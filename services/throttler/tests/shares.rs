//! Shares of a budget, in simulated time.
//!
//! Contracts: a node that reaches no leader takes its share of the rate and of pulls at once. If a quota is used up, `budget.alone`
//! decides: the node continues (`open`), or waits until the window is over (`share`). A leader keeps the share of nodes that have been
//! silent for less than ten minutes, in rate and in pulls at once.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::time::Duration;

use clock::{Now, Random};
use contract::messages::throttler::{BudgetAnswer, GrantBudget, KnownLimits, RegistryLimit, ReturnBudget};
use contract::policy::Caps;
use contract::{DEADLINES, PermitId};
use throttler::core::budget::{Alone, BudgetPolicy, BudgetReply, BudgetRequest, Budgets, Effect, Input, Term};

pub(crate) const OWNER: &str = "default registry.example/anonymous@egress";
pub(crate) const SECOND: Duration = Duration::from_secs(1);
/// The time between two ticks, because timers have whole milliseconds.
const TICK: Duration = Duration::from_millis(5);

/// One node with a simulated clock.
pub(crate) struct Node {
    pub(crate) core: Budgets,
    random: Random,
    pub(crate) now: Duration,
    /// When each permit was granted to this node, and whether without a leader.
    pub(crate) granted: Vec<(Duration, PermitId, bool)>,
    /// When a node was called by this one as the leader: a permit was granted then.
    called: Vec<Duration>,
    /// The caps that other nodes state when they ask this one.
    pub(crate) others_state: Caps,
}

impl Node {
    pub(crate) fn new(number: u64, policy: BudgetPolicy) -> Self {
        let core = Budgets::new(format!("n{number}").parse().unwrap(), policy, Random::seeded(number));
        Self {
            core,
            random: Random::seeded(1_000 + number),
            now: SECOND,
            granted: Vec::new(),
            called: Vec::new(),
            others_state: Caps::NONE,
        }
    }

    /// One of `alive` nodes, without a bus from the beginning; 0 if it does not know how many there are.
    pub(crate) fn alone(number: u64, alive: u64, policy: BudgetPolicy) -> Self {
        let mut node = Self::new(number, policy);
        if alive > 0 {
            node.give(Input::Fleet { alive });
        }
        node.give(Input::BusLost);
        node
    }

    /// The leader of a fleet of `alive` nodes, from now on and for hours.
    pub(crate) fn leading(alive: u64, policy: BudgetPolicy) -> Self {
        let mut node = Self::new(0, policy);
        node.give(Input::Fleet { alive });
        node.lead();
        node
    }

    pub(crate) fn lead(&mut self) {
        let permit = self.want();
        let term = Term { epoch: 1, first: true, until: self.now + 100 * DEADLINES.known_for };
        self.give(Input::Elected { owner: OWNER.to_owned(), term });
        self.give(Input::Release { permit, limits: Vec::new(), served: Some(true) });
    }

    pub(crate) fn give(&mut self, input: Input) -> Vec<BudgetReply> {
        let now = Now { monotonic: self.now, wall: Duration::ZERO };
        let mut replies = Vec::new();
        for effect in self.core.step(now, input) {
            match effect {
                // A node that asks again for a granted permit gets it again.
                Effect::Granted { permit, alone, .. } if self.granted.iter().all(|(_, known, _)| *known != permit) => {
                    self.granted.push((self.now, permit, alone));
                }
                Effect::Reply(reply) => replies.push(reply),
                Effect::Turn { .. } => self.called.push(self.now),
                _ => {}
            }
        }
        replies
    }

    pub(crate) fn want(&mut self) -> PermitId {
        let permit = PermitId::random(&mut self.random);
        self.give(Input::Want { owner: OWNER.to_owned(), permit });
        permit
    }

    pub(crate) fn until(&mut self, end: Duration) {
        while self.now < end {
            self.now += TICK;
            self.give(Input::Tick);
        }
    }

    /// Another node asks this one for a permit.
    pub(crate) fn asked(&mut self, by: u64) -> (GrantBudget, BudgetAnswer) {
        let (owner, node) = (OWNER.to_owned(), format!("other{by}").parse().unwrap());
        // The registry has stated no quota to any node, so that only the rate and pulls at once limit grants.
        let known = KnownLimits { none_stated: true, limits: Vec::new() };
        let ask = GrantBudget { owner, node, permit: PermitId::random(&mut self.random), known, caps: self.others_state };
        let replies = self.give(Input::Called(BudgetRequest::Grant(ask.clone())));
        match &replies[..] {
            [BudgetReply::Granted(answer)] => (ask, answer.clone()),
            other => panic!("{other:?}"),
        }
    }

    /// How many pulls at once this leader lets other nodes begin. All of them have ended afterwards.
    pub(crate) fn lets_go_at_once(&mut self) -> usize {
        let asked: Vec<(GrantBudget, BudgetAnswer)> = (0..100).map(|other| self.asked(other)).collect();
        for (GrantBudget { owner, node, permit, .. }, _) in &asked {
            let back =
                ReturnBudget { owner: owner.clone(), node: node.clone(), permit: *permit, used: true, limits: None, served: Some(true) };
            self.give(Input::Called(BudgetRequest::Return(back)));
        }
        asked.iter().filter(|(_, answer)| matches!(answer, BudgetAnswer::Granted { .. })).count()
    }

    /// Other nodes pull all the time and nothing fails, so the rate doubles up to its cap.
    pub(crate) fn warms_up(&mut self) {
        for other in 0..2_000 {
            self.until(self.now + TICK);
            let (GrantBudget { owner, node, permit, .. }, answer) = self.asked(other);
            let granted = matches!(answer, BudgetAnswer::Granted { .. });
            let back = ReturnBudget { owner, node, permit, used: granted, limits: None, served: granted.then_some(true) };
            self.give(Input::Called(BudgetRequest::Return(back)));
        }
    }

    /// How often a node was called so far.
    pub(crate) fn called(&self) -> usize {
        self.called.len()
    }

    /// How many calls a second are made in the next 2 s, while 200 nodes want one more permit each.
    pub(crate) fn lets_go_in_a_second(&mut self) -> usize {
        self.warms_up();
        for other in 0..200 {
            self.asked(other);
        }
        let (from, before) = (self.now, self.called.len());
        self.until(from + 2 * SECOND);
        (self.called.len() - before) / 2
    }
}

pub(crate) fn most_in_a_second(at: &[Duration]) -> usize {
    at.iter().map(|from| at.iter().filter(|at| *at >= from && **at < *from + SECOND).count()).max().unwrap_or_default()
}

/// The registry's answer that nothing is left of a quota with this window.
fn used_up(window: Duration) -> Vec<RegistryLimit> {
    vec![RegistryLimit { limit: 6, remaining: 0, window_ms: window.as_millis() as u64, ..RegistryLimit::default() }]
}

#[test]
fn ten_nodes_that_reach_no_leader_take_a_tenth_of_the_rate_each() {
    for alone in [Alone::Open, Alone::Share] {
        let policy = BudgetPolicy { per_second: 20.0, at_once: 0, alone, ..BudgetPolicy::default() };
        let mut nodes: Vec<Node> = (0..10).map(|number| Node::alone(number, 10, policy)).collect();
        for node in &mut nodes {
            for _ in 0..60 {
                node.want();
            }
            node.until(DEADLINES.alone_after + 11 * SECOND);
        }
        let mut all: Vec<Duration> = Vec::new();
        for node in &nodes {
            let at: Vec<Duration> = node.granted.iter().map(|(at, ..)| *at).collect();
            assert!(
                node.granted.iter().all(|(at, _, alone)| *alone && *at >= SECOND + DEADLINES.alone_after),
                "{alone:?}: {:?}",
                node.granted
            );
            assert!(most_in_a_second(&at) <= 2, "{alone:?}: {at:?}");
            assert!(at.len() >= 15, "{alone:?}: its share is its own: {at:?}");
            all.extend(at);
        }
        assert!(most_in_a_second(&all) <= 20, "{alone:?}: {} of all within a second", most_in_a_second(&all));
    }
}

#[test]
fn node_that_reaches_no_leader_takes_its_share_of_pulls_at_once_and_at_least_one() {
    for (at_once, alive, most) in [(20, 10, 2), (20, 20, 1), (3, 10, 1), (20, 0, 1), (20, 1, 20)] {
        for alone in [Alone::Open, Alone::Share] {
            let mut node = Node::alone(1, alive, BudgetPolicy { per_second: 0.0, at_once, alone, ..BudgetPolicy::default() });
            for _ in 0..30 {
                node.want();
            }
            node.until(DEADLINES.alone_after + 5 * SECOND);
            assert_eq!(node.granted.len(), most, "{at_once} at once for {alive}, {alone:?}");
            let (_, over, _) = node.granted[0];
            node.give(Input::Release { permit: over, limits: Vec::new(), served: Some(true) });
            node.until(DEADLINES.alone_after + 6 * SECOND);
            assert_eq!(node.granted.len(), most + 1, "one is over: {at_once} at once for {alive}, {alone:?}");
        }
    }
}

#[test]
fn node_without_leader_obeys_a_used_up_quota_if_alone_is_share() {
    let window = 60 * SECOND;
    for alone in [Alone::Open, Alone::Share] {
        let mut node = Node::alone(1, 10, BudgetPolicy { per_second: 20.0, at_once: 0, alone, ..BudgetPolicy::default() });
        let first = node.want();
        node.until(DEADLINES.alone_after + 2 * SECOND);
        assert_eq!(node.granted.len(), 1, "{alone:?}: a quota that is not known holds no pull");
        node.give(Input::Release { permit: first, limits: used_up(window), served: Some(true) });
        let reported_at = node.now;
        let request = node.want();
        // The caller repeats its request while it waits.
        while node.now < reported_at + window - SECOND {
            node.until((node.now + 5 * SECOND).min(reported_at + window - SECOND));
            node.give(Input::Want { owner: OWNER.to_owned(), permit: request });
        }
        let before = node.granted.len();
        node.until(reported_at + window + 2 * SECOND);
        let (open, share) = ((2, 2), (1, 2));
        assert_eq!((before, node.granted.len()), if alone == Alone::Open { open } else { share }, "{alone:?}: {:?}", node.granted);
    }
}

#[test]
fn a_leader_keeps_the_share_of_nodes_that_were_alive_ten_minutes_ago() {
    let at_once = BudgetPolicy { per_second: 0.0, at_once: 20, alone: Alone::Open, ..BudgetPolicy::default() };
    let rate = BudgetPolicy { per_second: 20.0, at_once: 0, alone: Alone::Open, ..BudgetPolicy::default() };
    let (mut slots, mut limited) = (Node::leading(10, at_once), Node::leading(10, rate));
    assert_eq!((slots.lets_go_at_once(), limited.lets_go_in_a_second()), (20, 18), "all, less what the rate leaves free");
    let silent = slots.now;
    for node in [&mut slots, &mut limited] {
        node.now = silent + 10 * SECOND;
        // Each digest repeats the number.
        for after in [10, 60, 300, 590] {
            node.now = node.now.max(silent + after * SECOND);
            node.give(Input::Fleet { alive: 5 });
        }
    }
    assert_eq!((slots.lets_go_at_once(), limited.lets_go_in_a_second()), (10, 9), "half of the nodes are silent");
    for node in [&mut slots, &mut limited] {
        node.until(silent + DEADLINES.known_for + 10 * SECOND);
        node.give(Input::Fleet { alive: 5 });
    }
    assert_eq!((slots.lets_go_at_once(), limited.lets_go_in_a_second()), (20, 18), "no share is kept for them any more");
}

#[test]
fn leader_elected_while_nodes_are_silent_keeps_their_share_as_well() {
    let policy = BudgetPolicy { per_second: 0.0, at_once: 20, alone: Alone::Open, ..BudgetPolicy::default() };
    let mut node = Node::new(0, policy);
    for alive in [10, 4] {
        node.give(Input::Fleet { alive });
    }
    node.lead();
    assert_eq!(node.lets_go_at_once(), 8, "of 20, for 4 of 10");
    // The silent nodes are back.
    node.give(Input::Fleet { alive: 10 });
    assert_eq!(node.lets_go_at_once(), 20);
}

/// How long pulls wait for a bus, by its state, since when it is so, and whether a pull waited before. A lost bus mostly comes back, so all
/// pulls wait for it. A bus that was never there, or that is unusable, is awaited shortly and once.
#[test]
fn a_bus_that_was_never_there_or_is_unusable_is_waited_for_briefly_and_once() {
    let second = Duration::from_secs;
    let zero = Duration::ZERO;
    for (input, ago, waits) in [
        (Input::BusLost, zero, DEADLINES.alone_after),
        (Input::BusLost, second(5), DEADLINES.alone_after - second(5)),
        (Input::BusLost, second(60), zero),
        (Input::BusUnusable, zero, DEADLINES.alone_after_unusable_bus),
        (Input::BusUnusable, second(1), DEADLINES.alone_after_unusable_bus - second(1)),
        (Input::BusUnusable, second(60), zero),
    ] {
        let mut node = Node::new(1, BudgetPolicy::default());
        node.give(Input::Fleet { alive: 5 });
        node.give(input.clone());
        node.until(SECOND + ago);
        let asked = node.now;
        let permit = node.want();
        node.until(asked + second(20));
        let (granted, _, alone) = node.granted[0];
        assert!(alone && granted >= asked + waits && granted <= asked + waits + TICK, "{input:?} {ago:?} ago: {granted:?}");
        node.give(Input::Release { permit, limits: Vec::new(), served: Some(true) });
        let asked = node.now;
        node.want();
        assert_eq!(node.granted[1].0, asked, "{input:?}: the next waits for nothing");
    }
}

#[test]
fn a_lost_bus_is_waited_for_unless_it_came_back_unusable() {
    let mut node = Node::new(1, BudgetPolicy::default());
    node.give(Input::BusLost);
    node.want();
    node.until(Duration::from_secs(5));
    assert!(node.granted.is_empty());
    node.give(Input::BusUnusable);
    assert_eq!(node.granted.len(), 1);
    node.give(Input::BusBack);
    node.give(Input::BusLost);
    let owner = "another".to_owned();
    node.give(Input::Want { owner, permit: PermitId::random(&mut Random::seeded(9)) });
    node.until(node.now + Duration::from_secs(10));
    assert_eq!(node.granted.len(), 1, "it was there: it is waited for again");
}
