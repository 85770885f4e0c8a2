//! The queue under random requests, renewals, releases and silences.
//!
//! Contracts: never more permits out than slots; never more pulls begun than the bucket has held; a node that keeps asking gets its turn; a
//! silent node loses permit and place; the counters are right; the alarm is never too late.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::time::Duration;

use clock::{Now, Random};
use contract::{DEADLINES, PermitId};
use proptest::prelude::*;
use throttler::core::{Effect, Input, OnExhausted, Queue, ThrottlePolicy};

#[derive(Clone, Debug)]
enum Move {
    Ask { image: u8 },
    AskAgain { which: usize },
    Release { which: usize },
    Pass { milliseconds: u64 },
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let one = prop_oneof![
        3 => (0..3_u8).prop_map(|image| Move::Ask { image }),
        3 => any::<usize>().prop_map(|which| Move::AskAgain { which }),
        3 => any::<usize>().prop_map(|which| Move::Release { which }),
        2 => (0..20_000_u64).prop_map(|milliseconds| Move::Pass { milliseconds }),
    ];
    proptest::collection::vec(one, 0..120)
}

fn policies() -> impl Strategy<Value = ThrottlePolicy> {
    (prop_oneof![Just(0.0), Just(0.5), Just(5.0)], 1..4_u32, 0..4_usize, any::<bool>(), 1..6_usize).prop_map(
        |(per_second, burst, slots, fails, queue)| {
            let on_exhausted = if fails { OnExhausted::Fail } else { OnExhausted::Wait };
            ThrottlePolicy { per_second, burst, slots, on_exhausted, queue }
        },
    )
}

struct Node {
    policy: ThrottlePolicy,
    queue: Queue,
    now: Now,
    random: Random,
    /// Requested, and neither refused nor released. Some may have expired.
    known: Vec<(PermitId, String)>,
    granted: BTreeSet<PermitId>,
    begun: u64,
}

impl Node {
    fn new(policy: ThrottlePolicy) -> Self {
        let queue = Queue::new(policy);
        Self { policy, queue, now: Now::default(), random: Random::seeded(1), known: Vec::new(), granted: BTreeSet::new(), begun: 0 }
    }

    fn make(&mut self, one: &Move) {
        match *one {
            Move::Ask { image } => {
                let permit = PermitId::random(&mut self.random);
                self.known.push((permit, image.to_string()));
                self.ask(permit, image.to_string());
            }
            Move::AskAgain { which } if !self.known.is_empty() => {
                let (permit, image) = self.known[which % self.known.len()].clone();
                self.ask(permit, image);
            }
            Move::Release { which } if !self.known.is_empty() => {
                let (permit, _) = self.known.remove(which % self.known.len());
                self.granted.remove(&permit);
                self.step(Input::Release { permit });
                assert_eq!(self.queue.ahead_of(permit), None);
            }
            Move::Pass { milliseconds } => self.pass(Duration::from_millis(milliseconds)),
            _ => {}
        }
        self.check();
    }

    fn ask(&mut self, permit: PermitId, image: String) {
        let effects = self.step(Input::Acquire { permit, image });
        if self.granted.contains(&permit) && !effects.contains(&Effect::Grant { permit }) {
            // Its lease had ended, so it is in the queue again, or refused.
            self.granted.remove(&permit);
        }
    }

    fn step(&mut self, input: Input) -> Vec<Effect> {
        let granted_before = self.queue.counts().granted_total;
        let effects = self.queue.step(self.now, input);
        for effect in &effects {
            match effect {
                Effect::Grant { permit } => {
                    self.granted.insert(*permit);
                }
                Effect::Refuse { permit, .. } => {
                    self.known.retain(|(known, _)| known != permit);
                    self.granted.remove(permit);
                }
            }
        }
        self.begun += self.queue.counts().granted_total - granted_before;
        effects
    }

    /// Lets time pass from alarm to alarm, as the actor does.
    fn pass(&mut self, mut left: Duration) {
        while let Some(wake) = self.queue.wake_in(self.now).filter(|wake| *wake <= left) {
            self.now = self.now.after(wake);
            left -= wake;
            self.step(Input::Tick);
            let next = self.queue.wake_in(self.now);
            assert_ne!(next, Some(Duration::ZERO), "an alarm settles what it was for");
        }
        self.now = self.now.after(left);
    }

    fn check(&self) {
        let counts = self.queue.counts();
        if self.policy.slots > 0 {
            assert!(counts.granted <= self.policy.slots as u64, "{counts:?}");
        }
        assert!(counts.queued <= self.policy.queue as u64, "{counts:?}");
        assert!(counts.granted <= self.granted.len() as u64, "{counts:?}");
        assert_eq!(counts.granted_total, self.begun);
        if self.policy.per_second > 0.0 {
            let held = f64::from(self.policy.burst) + self.now.monotonic.as_secs_f64() * self.policy.per_second;
            assert!(self.begun as f64 <= held + 1e-6, "{} begun of {held}", self.begun);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn budget_is_kept_and_every_permit_returns(policy in policies(), moves in moves()) {
        let mut node = Node::new(policy);
        for one in &moves {
            node.make(one);
        }
        // All nodes fall silent, so permits and places become free again.
        node.pass(DEADLINES.permit_lease * 2 + Duration::from_secs(60));
        let counts = node.queue.counts();
        prop_assert_eq!((counts.granted, counts.queued), (0, 0));
        prop_assert_eq!(node.queue.wake_in(node.now), None);
    }

    #[test]
    fn repeated_request_is_granted_in_its_turn(policy in policies(), images in proptest::collection::vec(0..3_u8, 1..5)) {
        let policy = ThrottlePolicy { on_exhausted: OnExhausted::Wait, queue: 5, ..policy };
        let mut node = Node::new(policy);
        for image in &images {
            node.make(&Move::Ask { image: *image });
        }
        let mut served = 0;
        // Each pull gets a turn and takes 1 s; waiting ones ask again meanwhile.
        for _ in 0..200 {
            let holders: Vec<PermitId> = node.granted.iter().copied().collect();
            for permit in holders {
                let place = node.known.iter().position(|(known, _)| *known == permit).unwrap();
                node.make(&Move::Release { which: place });
                served += 1;
            }
            node.pass(Duration::from_secs(1));
            for which in 0..node.known.len() {
                node.make(&Move::AskAgain { which });
            }
        }
        prop_assert_eq!(served, images.len());
    }
}
