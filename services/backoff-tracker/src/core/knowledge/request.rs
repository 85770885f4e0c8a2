//! A node's request for clearance.

use std::collections::BTreeMap;
use std::time::Duration;

use contract::messages::backoff_tracker::{LocalKey, OTHER_KEYS_MOST};
use contract::{AttemptId, DEADLINES, Stage, TraceContext};

use super::backoff_key::BackoffKeyId;
use super::input::{Decision, Duty, Refusal};
use super::own_failures::Cleared;
use super::target::TargetKeys;

#[derive(Debug)]
pub(super) struct Request {
    /// The local key that counts: of all its keys the one that is refused the shortest.
    pub(super) key: LocalKey,
    pub(super) other_keys: Vec<LocalKey>,
    pub(super) target_keys: TargetKeys,
    pub(super) state: State,
    /// Whether the bus missed its answer: the next decision is made as without a bus.
    pub(super) unanswered: bool,
    /// Whether an attempt of it was abandoned because it hung while others were answered.
    pub(super) abandoned: bool,
    /// The last decision that was answered.
    pub(super) last_decision: Option<Decision>,
    /// When to look at it again, if nothing happens before.
    pub(super) wake: Option<Duration>,
    /// Since when it waits for the attempt that confirms a failure. The report may arrive long after that attempt was due, at all nodes at
    /// once.
    pub(super) unconfirmed_since: Option<Duration>,
    /// The key of the lease that it waits for. Of all requests that wait for a lease, only the first is looked at when the lease changes.
    pub(super) awaits: Option<BackoffKeyId>,
}

#[derive(Debug)]
pub(super) enum State {
    /// Not looked at yet, or refused by the own rule.
    Fresh,
    /// Refused by an entry, or waiting for another node's report.
    Delayed,
    /// The cause is removed; it continues in its turn.
    Released {
        /// When its turn is.
        at: Duration,
    },
    /// An attempt has clearance or is running.
    RunningAttempt(RunningAttempt),
}

/// An attempt. By default it is made for this node alone, and waits for the manifest.
#[derive(Clone, Debug, Default)]
pub(super) struct RunningAttempt {
    pub(super) duty: Duty,
    pub(super) begun: Duration,
    /// When the lease of its duty expires.
    pub(super) deadline: Option<Duration>,
    pub(super) attempt: Option<(AttemptId, Option<TraceContext>)>,
    /// The stage that must answer before its lease is released.
    pub(super) until: Stage,
    pub(super) reached: Vec<Stage>,
    /// For each key the step that a failure would be, as known when the attempt began.
    pub(super) steps: BTreeMap<BackoffKeyId, u32>,
    pub(super) reported_unanswered: bool,
    /// Whether other nodes were answered while it hung.
    pub(super) others_answered: bool,
    /// Whether the node's own rule allowed it, without clearance. Its failure then changes that rule's delay.
    pub(super) by_own_rule: bool,
    /// Whether the node made it for all nodes, with a lease.
    pub(super) for_all: bool,
    /// Whether the fleet elected or released it. Its failure does not make the floor's delay longer.
    pub(super) exempt: bool,
}

impl RunningAttempt {
    /// The attempt, as the record of its local key needs it.
    pub(super) fn cleared(&self) -> Cleared {
        Cleared { began: self.begun, exempt: self.exempt }
    }

    /// The stage that it waits for.
    pub(super) fn stage(&self) -> Stage {
        if self.reached.contains(&Stage::Manifest) { Stage::Blob } else { Stage::Manifest }
    }

    /// Notes that a stage has answered; returns the stages that this shows for the first time.
    pub(super) fn reach(&mut self, stage: Stage) -> Vec<Stage> {
        let shown = [Stage::Manifest, stage].into_iter().filter(|shown| *shown <= stage && !self.reached.contains(shown));
        let mut shown: Vec<Stage> = shown.collect();
        shown.dedup();
        self.reached.extend(&shown);
        shown
    }
}

impl Request {
    pub(super) fn new(key: LocalKey, target_keys: TargetKeys) -> Self {
        Self {
            key,
            other_keys: Vec::new(),
            target_keys,
            state: State::Fresh,
            unanswered: false,
            abandoned: false,
            last_decision: None,
            wake: None,
            unconfirmed_since: None,
            awaits: None,
        }
    }

    /// The attempt that is made with this clearance, if none is known yet.
    pub(super) fn attempt_planned(&mut self, attempt: AttemptId, trace: Option<TraceContext>) {
        if let State::RunningAttempt(running) = &mut self.state {
            running.attempt.get_or_insert((attempt, trace));
        }
    }

    /// The attempt asks the registry from now on.
    pub(super) fn attempt_started(&mut self, now: Duration, attempt: AttemptId, trace: Option<TraceContext>) {
        if let State::RunningAttempt(running) = &mut self.state
            && !running.reported_unanswered
        {
            running.attempt = Some((attempt, trace));
            running.begun = now;
            self.wake = Some(now + DEADLINES.unanswered_after);
        }
    }

    /// Takes the keys of the flight's callers. Returns whether they have changed.
    pub(super) fn set_keys(&mut self, key: LocalKey, mut other_keys: Vec<LocalKey>) -> bool {
        other_keys.truncate(OTHER_KEYS_MOST);
        let now = || std::iter::once(&key).chain(&other_keys);
        let same =
            now().all(|key| self.has_key(key)) && self.other_keys.iter().chain([&self.key]).all(|known| now().any(|key| key == known));
        if !same {
            (self.key, self.other_keys) = (key, other_keys);
        }
        !same
    }

    /// Refuses it until the next attempt is due; then it is looked at again.
    pub(super) fn refuse(&mut self, refusal: Refusal) -> Decision {
        self.state = State::Delayed;
        self.unconfirmed_since = None;
        self.wake = Some(refusal.next_attempt);
        Decision::Refused(refusal)
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &LocalKey> {
        std::iter::once(&self.key).chain(&self.other_keys)
    }

    pub(super) fn has_key(&self, key: &LocalKey) -> bool {
        self.key == *key || self.other_keys.contains(key)
    }

    /// Chooses the key that is refused the shortest; `held` returns how long each is refused.
    pub(super) fn choose_key(&mut self, held: impl Fn(&LocalKey) -> Option<Duration>) {
        let shortest = self.other_keys.iter_mut().map(|key| (held(key), key)).min_by_key(|(left, _)| *left);
        if let Some((_, key)) = shortest.filter(|(left, _)| *left < held(&self.key)) {
            std::mem::swap(&mut self.key, key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use contract::{PodRef, Target};

    use super::*;

    fn key(pod: &str) -> LocalKey {
        LocalKey { pod: Some(PodRef { name: pod.to_owned(), ..PodRef::default() }), image: "a:1".to_owned() }
    }

    #[test]
    fn request_uses_the_caller_key_with_the_shortest_delay() {
        let seconds: BTreeMap<LocalKey, u64> = [(key("a"), 300), (key("b"), 10)].into();
        let held = |key: &LocalKey| seconds.get(key).copied().map(Duration::from_secs);
        let mut request = Request::new(key("a"), TargetKeys::new(Target::default()));
        // Each question follows the one before, and its keys come in any order.
        for (keys, changed, chosen) in [
            (vec!["a"], false, "a"),
            (vec!["a", "b"], true, "b"),
            (vec!["b", "a"], false, "b"),
            (vec!["a", "b", "free"], true, "free"),
            (vec!["a", "b"], true, "b"),
            (vec!["a"], true, "a"),
        ] {
            let mut others: Vec<LocalKey> = keys.iter().copied().map(key).collect();
            assert_eq!(request.set_keys(others.remove(0), others), changed, "{keys:?}");
            request.choose_key(held);
            assert_eq!(request.key, key(chosen), "{keys:?}");
        }
    }
}
