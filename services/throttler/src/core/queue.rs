//! Which pulls may run now: slots, a token bucket and a fair queue.

use std::time::Duration;

use clock::Now;
use contract::messages::throttler::PermitCounts;
use contract::{DEADLINES, PermitId};

use super::bucket::TokenBucket;
use super::pulls::Pulls;

/// Kubelet's error text, unchanged.
const QPS_EXCEEDED: &str = "pull QPS exceeded";

/// What happens to a pull when the bucket is empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnExhausted {
    /// It waits for a token.
    #[default]
    Wait,
    /// It fails with `pull QPS exceeded`, as in kubelet.
    Fail,
}

/// The node's own limits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ThrottlePolicy {
    /// Pulls that may begin in a second; 0 for no limit.
    pub per_second: f64,
    /// Pulls that may begin at once.
    pub burst: u32,
    /// Pulls that run at once; 0 for no limit. 1 is kubelet's serial mode.
    pub slots: usize,
    /// What happens when the bucket is empty.
    pub on_exhausted: OnExhausted,
    /// Pulls that may wait; further ones are refused.
    pub queue: usize,
}

/// An input of the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A caller requests a permit, or renews one.
    Acquire {
        /// Chosen by the caller.
        permit: PermitId,
        /// The image to pull.
        image: String,
    },
    /// A permit is not needed any more.
    Release {
        /// The permit.
        permit: PermitId,
    },
    /// Time has passed.
    Tick,
}

/// A decision of the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The pull may begin.
    Grant {
        /// The permit.
        permit: PermitId,
    },
    /// The pull may not begin.
    Refuse {
        /// The permit.
        permit: PermitId,
        /// The reason, in kubelet's words if kubelet has some.
        text: String,
    },
}

/// The state machine of the node's queue.
#[derive(Debug)]
pub struct Queue {
    policy: ThrottlePolicy,
    bucket: Option<TokenBucket>,
    pulls: Pulls,
    counts: PermitCounts,
}

impl Queue {
    /// An empty queue with a full bucket.
    #[must_use]
    pub fn new(policy: ThrottlePolicy) -> Self {
        let bucket = (policy.per_second > 0.0).then(|| TokenBucket::full(policy.per_second, policy.burst));
        Self { policy, bucket, pulls: Pulls::default(), counts: PermitCounts::default() }
    }

    /// Handles one input and returns the resulting effects.
    pub fn step(&mut self, now: Now, input: Input) -> Vec<Effect> {
        let now = now.monotonic;
        let mut effects = Vec::new();
        self.expire(now);
        match input {
            Input::Acquire { permit, image } => self.acquire(now, permit, image, &mut effects),
            Input::Release { permit } => self.pulls.remove(permit),
            Input::Tick => {}
        }
        self.admit(now, &mut effects);
        self.assert_invariants();
        effects
    }

    /// Checks what must hold after each step.
    fn assert_invariants(&self) {
        if !cfg!(debug_assertions) {
            return;
        }
        let ThrottlePolicy { slots, queue, .. } = self.policy;
        let (granted, waiting) = (self.pulls.granted_count(), self.pulls.waiting_count());
        debug_assert!(slots == 0 || granted <= slots, "{granted} permits of {slots} slots");
        debug_assert!(waiting <= queue, "{waiting} wait, {queue} may");
        self.pulls.assert_invariants();
    }

    /// How long until the next tick is due at the latest; none if nothing is pending.
    #[must_use]
    pub fn wake_in(&self, now: Now) -> Option<Duration> {
        let expiry = self.pulls.silent_since().map(|last_seen| (last_seen + DEADLINES.permit_lease).saturating_sub(now.monotonic));
        let token = match &self.bucket {
            Some(bucket) if self.pulls.waiting_count() > 0 && self.slot_is_free() => bucket.ready_in(now.monotonic),
            _ => None,
        };
        expiry.into_iter().chain(token).min()
    }

    /// How many pulls wait before this one; none if it does not wait.
    #[must_use]
    pub fn ahead_of(&self, permit: PermitId) -> Option<u64> {
        self.pulls.ahead_of(permit)
    }

    /// Whether this permit is granted.
    #[must_use]
    pub fn is_granted(&self, permit: PermitId) -> bool {
        self.pulls.is_granted(permit)
    }

    /// The counters.
    #[must_use]
    pub fn counts(&self) -> PermitCounts {
        PermitCounts { granted: self.pulls.granted_count() as u64, queued: self.pulls.waiting_count() as u64, ..self.counts }
    }

    fn acquire(&mut self, now: Duration, permit: PermitId, image: String, effects: &mut Vec<Effect>) {
        let waiting = self.pulls.waiting_count();
        if self.pulls.refresh(now, permit) {
            if self.pulls.is_granted(permit) {
                effects.push(Effect::Grant { permit });
            }
        } else if waiting >= self.policy.queue {
            self.refuse(permit, format!("{waiting} pulls wait already on this node: try again later"), effects);
        } else {
            self.pulls.push(now, permit, image);
        }
    }

    fn admit(&mut self, now: Duration, effects: &mut Vec<Effect>) {
        while self.slot_is_free()
            && let Some(permit) = self.pulls.next_turn()
        {
            let allowed = self.bucket.as_mut().is_none_or(|bucket| bucket.take(now));
            let hopeless = self.bucket.as_ref().is_some_and(|bucket| bucket.ready_in(now).is_none());
            if !allowed && self.policy.on_exhausted == OnExhausted::Wait && !hopeless {
                return;
            }
            if allowed {
                self.counts.granted_total += 1;
                self.pulls.grant(permit);
                effects.push(Effect::Grant { permit });
            } else {
                self.pulls.remove(permit);
                self.refuse(permit, QPS_EXCEEDED.to_owned(), effects);
            }
        }
    }

    fn slot_is_free(&self) -> bool {
        self.policy.slots == 0 || self.pulls.granted_count() < self.policy.slots
    }

    fn refuse(&mut self, permit: PermitId, text: String, effects: &mut Vec<Effect>) {
        self.counts.refused_total += 1;
        effects.push(Effect::Refuse { permit, text });
    }

    fn expire(&mut self, now: Duration) {
        self.counts.reclaimed_total += self.pulls.expire(now, DEADLINES.permit_lease);
    }
}

#[cfg(test)]
mod tests {
    use clock::Random;

    use super::*;

    const UNLIMITED: ThrottlePolicy = ThrottlePolicy { per_second: 0.0, burst: 0, slots: 0, on_exhausted: OnExhausted::Wait, queue: 100 };

    struct Node {
        queue: Queue,
        random: Random,
    }

    impl Node {
        fn new(policy: ThrottlePolicy) -> Self {
            Self { queue: Queue::new(policy), random: Random::seeded(1) }
        }

        fn acquire(&mut self, at_ms: u64, image: &str) -> (PermitId, Vec<Effect>) {
            let permit = PermitId::random(&mut self.random);
            let effects = self.queue.step(at(at_ms), Input::Acquire { permit, image: image.to_owned() });
            (permit, effects)
        }

        fn release(&mut self, at_ms: u64, permit: PermitId) -> Vec<Effect> {
            self.queue.step(at(at_ms), Input::Release { permit })
        }
    }

    fn at(ms: u64) -> Now {
        Now::default().after(Duration::from_millis(ms))
    }

    #[test]
    fn without_limits_all_pulls_begin_at_once() {
        let mut node = Node::new(UNLIMITED);
        for _ in 0..50 {
            let (permit, effects) = node.acquire(0, "a");
            assert_eq!(effects, [Effect::Grant { permit }]);
        }
    }

    #[test]
    fn serial_mode_is_one_slot_in_order() {
        let mut node = Node::new(ThrottlePolicy { slots: 1, ..UNLIMITED });
        let (first, _) = node.acquire(0, "a");
        let (second, waits) = node.acquire(0, "b");
        let (third, _) = node.acquire(0, "c");
        assert_eq!(waits, []);
        assert_eq!(node.queue.ahead_of(third), Some(1));
        assert_eq!(node.release(5, first), [Effect::Grant { permit: second }]);
        assert_eq!(node.release(6, second), [Effect::Grant { permit: third }]);
    }

    #[test]
    fn an_empty_bucket_lets_wait_by_default_and_wakes_in_time() {
        let mut node = Node::new(ThrottlePolicy { per_second: 5.0, burst: 1, ..UNLIMITED });
        node.acquire(0, "a");
        let (second, waits) = node.acquire(0, "b");
        assert_eq!(waits, []);
        let wake = node.queue.wake_in(at(0)).expect("something is pending");
        assert!(wake >= Duration::from_millis(200) && wake < Duration::from_millis(201), "{wake:?}");
        assert_eq!(node.queue.step(at(0).after(wake), Input::Tick), [Effect::Grant { permit: second }]);
    }

    #[test]
    fn empty_bucket_fails_as_in_kubelet_if_so_configured() {
        let mut node = Node::new(ThrottlePolicy { per_second: 5.0, burst: 1, on_exhausted: OnExhausted::Fail, ..UNLIMITED });
        node.acquire(0, "a");
        let (permit, effects) = node.acquire(0, "b");
        assert_eq!(effects, [Effect::Refuse { permit, text: "pull QPS exceeded".to_owned() }]);
    }

    #[test]
    fn burst_of_zero_refuses_pulls_even_if_they_may_wait() {
        let mut node = Node::new(ThrottlePolicy { per_second: 2_000.0, burst: 0, ..UNLIMITED });
        let (permit, effects) = node.acquire(0, "a");
        assert_eq!(effects, [Effect::Refuse { permit, text: "pull QPS exceeded".to_owned() }]);
    }

    #[test]
    fn the_slot_comes_before_the_token() {
        let mut node = Node::new(ThrottlePolicy { per_second: 1.0, burst: 2, slots: 1, on_exhausted: OnExhausted::Fail, ..UNLIMITED });
        let (first, _) = node.acquire(0, "a");
        let (second, waits) = node.acquire(0, "b");
        assert_eq!(waits, [], "a pull that waits for a slot has not asked for a token yet");
        assert_eq!(node.release(0, first), [Effect::Grant { permit: second }]);
    }

    #[test]
    fn the_queue_is_bounded() {
        let mut node = Node::new(ThrottlePolicy { slots: 1, queue: 2, ..UNLIMITED });
        for _ in 0..3 {
            node.acquire(0, "a");
        }
        let (permit, effects) = node.acquire(0, "a");
        assert_eq!(effects, [Effect::Refuse { permit, text: "2 pulls wait already on this node: try again later".to_owned() }]);
        assert_eq!(node.queue.counts().refused_total, 1);
    }

    #[test]
    fn one_image_does_not_hold_back_another() {
        let mut node = Node::new(ThrottlePolicy { slots: 2, ..UNLIMITED });
        let (first, _) = node.acquire(0, "a");
        node.acquire(0, "a");
        let (again, _) = node.acquire(0, "a");
        let (other, _) = node.acquire(0, "b");
        assert_eq!(node.release(1, first), [Effect::Grant { permit: other }]);
        assert_eq!(node.release(2, other), [Effect::Grant { permit: again }]);
    }

    #[test]
    fn asking_again_keeps_the_place_and_renews() {
        let mut node = Node::new(ThrottlePolicy { slots: 1, ..UNLIMITED });
        let (first, _) = node.acquire(0, "a");
        let (second, _) = node.acquire(0, "b");
        let again = Input::Acquire { permit: second, image: "b".to_owned() };
        assert_eq!(node.queue.step(at(20_000), again), []);
        let renewal = Input::Acquire { permit: first, image: "a".to_owned() };
        assert_eq!(node.queue.step(at(20_000), renewal), [Effect::Grant { permit: first }]);
        assert_eq!(node.queue.step(at(40_000), Input::Tick), [], "both were seen 20 s ago");
        assert_eq!(node.queue.counts().queued, 1);
    }

    #[test]
    fn a_dead_holders_permit_comes_back() {
        let mut node = Node::new(ThrottlePolicy { slots: 1, ..UNLIMITED });
        node.acquire(0, "a");
        let (second, _) = node.acquire(15_000, "b");
        assert_eq!(node.queue.wake_in(at(15_000)), Some(Duration::from_secs(15)));
        assert_eq!(node.queue.step(at(30_000), Input::Tick), [Effect::Grant { permit: second }]);
        assert_eq!(node.queue.counts().reclaimed_total, 1);
    }
}
