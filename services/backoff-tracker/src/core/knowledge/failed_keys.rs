//! The local keys that have failed on this node, with one record each.
//!
//! A record has the last failure, and what follows from all failures since the key's last success for the next attempt:
//!
//! - Own rule: kubelet's delay. It refuses the key, unless an entry of the fleet decides about the failure. A success of another node ends it.
//! - Floor: kubelet's delay again, which no other node ends. It delays attempts that the fleet neither elected nor released, and only their
//!   failures make it longer.
//! - Retry pause: a second or two, for a failure by chance at a registry that serves other nodes. It then takes the place of the own rule.
//!
//! A success of the key ends all three, and so does an operator's clear. A record lapses after twice the longest delay without a failure of
//! its key, so that an image that never succeeds does not begin anew.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use contract::messages::backoff_tracker::{BackoffCounts, LocalKey};

use super::backoff_key::{BackoffKey, BackoffKeyId};
use super::own_failures::{Cleared, Failed, OwnFailure, OwnRule, Streak};
use crate::core::delays::{BackoffPolicy, Delay};
use crate::core::remove_from_index;

/// Keys that a node remembers: 100 pods with 100 images. For one more, the key whose last failure is the oldest is forgotten; a forgotten
/// key refuses nothing.
const MAX_KEYS: usize = 10_000;
/// The retry pause after the first failure of an image.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The retry pause after each further failure. An image that fails four times out of five then takes 10 s; of 120 such images, the last one
/// takes about a minute.
const FURTHER_PAUSE: Duration = Duration::from_secs(2);
/// Lapsed records are looked for this often at most, because there may be thousands.
const COLLECTED_EVERY: Duration = Duration::from_secs(60);

/// The record of one key.
#[derive(Debug, Default)]
pub(super) struct FailedKey {
    pub(super) failure: Arc<OwnFailure>,
    /// The failures since the last success.
    pub(super) streak: Streak,
    /// When the attempt began.
    pub(super) began: Duration,
    /// What the failure is about. A success on one of them shows that the cause is removed.
    pub(super) backoff_keys: Vec<Arc<BackoffKey>>,
    /// False once an attempt was allowed or another node has succeeded: lists then do not name the failure, as kubelet does not.
    is_current: bool,
    own_rule: Option<Delay>,
    floor: Option<Delay>,
    /// When the last retry pause ends.
    paused_until: Option<Duration>,
    /// Failures by chance since the last success.
    by_chance: u32,
}

/// The records, and the policy by which they delay attempts.
#[derive(Debug)]
pub(super) struct FailedKeys {
    pub(super) policy: BackoffPolicy,
    keys: BTreeMap<LocalKey, FailedKey>,
    /// The keys whose current failure is about a back-off key.
    by_backoff_key: BTreeMap<BackoffKeyId, BTreeSet<LocalKey>>,
    /// Ordered by the time of the last failure.
    by_age: BTreeSet<(Duration, LocalKey)>,
    /// When lapsed records were last looked for.
    collected: Duration,
    /// Refusals, failures and forgotten keys since start.
    pub(super) counts: BackoffCounts,
}

impl FailedKeys {
    pub(super) fn new(policy: BackoffPolicy) -> Self {
        let (keys, by_backoff_key, by_age) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
        Self { policy, keys, by_backoff_key, by_age, collected: Duration::ZERO, counts: BackoffCounts::default() }
    }

    pub(super) fn get(&self, key: &LocalKey) -> Option<&FailedKey> {
        self.keys.get(key)
    }

    /// The counts since start, and the keys of now.
    pub(super) fn counts(&self, now: Duration) -> BackoffCounts {
        let held = self.keys.values().filter(|failed| self.policy.held(failed.own_rule, now).is_some());
        BackoffCounts { held: held.count() as u64, known: self.known().count() as u64, ..self.counts }
    }

    /// How long the own rule still refuses a key.
    pub(super) fn held(&self, now: Duration, key: &LocalKey) -> Option<Duration> {
        self.policy.held(self.keys.get(key)?.own_rule, now)
    }

    /// How long the next attempt for a key must wait unless it is elected or released, and because of which failure.
    pub(super) fn under_the_floor(&self, now: Duration, key: &LocalKey) -> Option<(Duration, &FailedKey)> {
        let failed = self.keys.get(key)?;
        Some((self.policy.held(failed.floor, now)?, failed))
    }

    /// Until when a key's last retry pause lasts, and because of which failure.
    pub(super) fn paused_until(&self, key: &LocalKey) -> Option<(Duration, &Arc<OwnFailure>)> {
        let failed = self.keys.get(key)?;
        Some((failed.paused_until?, &failed.failure))
    }

    /// How often a key has failed by chance since it last succeeded.
    pub(super) fn failures_by_chance(&self, now: Duration, key: &LocalKey) -> u32 {
        let counts = |failed: &&FailedKey| !self.policy.is_long_ago(failed.failure.at, now);
        self.keys.get(key).filter(counts).map_or(0, |failed| failed.by_chance)
    }

    /// The keys whose current failure is about a back-off key.
    pub(super) fn failed_by(&self, backoff_key: BackoffKeyId) -> impl Iterator<Item = (&LocalKey, &FailedKey)> {
        let keys = self.by_backoff_key.get(&backoff_key).into_iter().flatten();
        keys.filter_map(|key| Some((key, self.keys.get(key)?)))
    }

    /// Every key that has a delay by the own rule, with its record if that has the current failure.
    pub(super) fn known(&self) -> impl Iterator<Item = (&LocalKey, Option<&FailedKey>)> {
        self.with_delay(|_| true)
    }

    /// The keys that the own rule refused or refuses.
    pub(super) fn held_ones(&self) -> impl Iterator<Item = (&LocalKey, Option<&FailedKey>)> {
        let policy = self.policy;
        self.with_delay(move |delay| policy.has_refused(delay))
    }

    fn with_delay(&self, counts: impl Fn(Delay) -> bool) -> impl Iterator<Item = (&LocalKey, Option<&FailedKey>)> {
        let of_delay = self.keys.iter().filter(move |(_, failed)| failed.own_rule.is_some_and(&counts));
        of_delay.map(|(key, failed)| (key, Some(failed).filter(|failed| failed.is_current)))
    }

    /// Notes a failure in the record of its key.
    pub(super) fn note(&mut self, key: &LocalKey, failed: Failed) {
        self.counts.failures_total += 1;
        let Failed { failure, backoff_keys, own_rule, cleared, pauses } = failed;
        let (policy, now) = (self.policy, failure.at);
        let last = self.clear(key).filter(|last| !policy.is_long_ago(last.failure.at, now)).unwrap_or_default();
        let streak = last.streak.next(now);
        let own_rule = match own_rule {
            OwnRule::Refuses(None) => Some(policy.next(last.own_rule, now)),
            OwnRule::Refuses(Some(failing)) => Some(policy.next_since(last.own_rule, now, failing)),
            OwnRule::Grows(failing) => Some(policy.next_not_refusing(last.own_rule, now, failing)),
            OwnRule::Stays => last.own_rule.filter(|_| !policy.is_forgotten(last.own_rule, now)),
        };
        let floor = match cleared {
            Some(Cleared { exempt: true, .. }) => Some(policy.next_not_grown(last.floor, now)),
            Some(_) => Some(policy.next(last.floor, now)),
            None => last.floor,
        };
        let by_chance = last.by_chance + u32::from(pauses);
        let pause = if by_chance == 1 { FIRST_PAUSE } else { FURTHER_PAUSE };
        let paused_until = if pauses { Some(now + pause) } else { last.paused_until };
        for backoff_key in &backoff_keys {
            self.by_backoff_key.entry(backoff_key.id()).or_default().insert(key.clone());
        }
        let began = cleared.map_or(now, |cleared| cleared.began);
        self.by_age.insert((now, key.clone()));
        let failed_key = FailedKey { failure, streak, began, backoff_keys, is_current: true, own_rule, floor, paused_until, by_chance };
        self.keys.insert(key.clone(), failed_key);
        self.make_room(now);
    }

    /// The failure of a key is not current any more.
    pub(super) fn outdate(&mut self, key: &LocalKey) {
        let Some(failed) = self.keys.get_mut(key) else { return };
        failed.is_current = false;
        for backoff_key in failed.backoff_keys.iter().map(|backoff_key| backoff_key.id()) {
            remove_from_index(&mut self.by_backoff_key, &backoff_key, key);
        }
    }

    /// Another node has succeeded at what a key failed by.
    pub(super) fn lift(&mut self, key: &LocalKey) {
        self.outdate(key);
        if let Some(failed) = self.keys.get_mut(key) {
            (failed.own_rule, failed.streak) = (None, Streak::default());
        }
    }

    /// The key has succeeded, or its failures are cleared.
    pub(super) fn clear(&mut self, key: &LocalKey) -> Option<FailedKey> {
        self.outdate(key);
        let failed = self.keys.remove(key)?;
        self.by_age.remove(&(failed.failure.at, key.clone()));
        Some(failed)
    }

    /// Clears the keys that failed up to `date` and that `is_cleared` chooses; returns them.
    pub(super) fn clear_all(&mut self, date: Duration, is_cleared: impl Fn(&LocalKey, &FailedKey) -> bool) -> Vec<LocalKey> {
        let cleared = self.keys.iter().filter(|(key, failed)| failed.failure.at <= date && is_cleared(key, failed));
        let cleared: Vec<LocalKey> = cleared.map(|(key, _)| key.clone()).collect();
        cleared.iter().for_each(|key| drop(self.clear(key)));
        cleared
    }

    /// Forgets lapsed records. They delay no attempt any more, and are only listed.
    pub(super) fn collect_garbage(&mut self, now: Duration) {
        if now < self.collected + COLLECTED_EVERY {
            return;
        }
        self.collected = now;
        let policy = self.policy;
        self.clear_all(now, |_, failed| policy.is_long_ago(failed.failure.at, now));
    }

    fn make_room(&mut self, now: Duration) {
        if self.keys.len() <= MAX_KEYS {
            return;
        }
        self.collect_garbage(now);
        while self.keys.len() > MAX_KEYS
            && let Some((_, oldest)) = self.by_age.first().cloned()
        {
            self.counts.evicted_total += u64::from(self.clear(&oldest).is_some());
        }
    }

    pub(super) fn assert_invariants(&self) {
        debug_assert_eq!(self.by_age.len(), self.keys.len(), "each key is found by time");
    }
}

#[cfg(test)]
mod tests {
    use contract::FailureClass;
    use contract::messages::backoff_tracker::AttemptFailure;

    use super::*;

    fn no_keys() -> FailedKeys {
        FailedKeys::new(BackoffPolicy::default())
    }

    fn key(image: &str) -> LocalKey {
        LocalKey { pod: None, image: image.to_owned() }
    }

    fn failed(at: u64) -> Failed {
        let failure = AttemptFailure { class: FailureClass::RateLimited, ..AttemptFailure::default() };
        Failed::new(Duration::from_secs(at), &failure, None)
    }

    fn failed_by_clearance(at: u64, exempt: bool) -> Failed {
        Failed { cleared: Some(Cleared { began: Duration::from_secs(at), exempt }), ..failed(at) }
    }

    fn failed_by_chance(at: u64) -> Failed {
        Failed { own_rule: OwnRule::Stays, pauses: true, ..failed(at) }
    }

    /// How many seconds the own rule refuses a key, and how many its floor lasts.
    fn left(keys: &FailedKeys, at: u64, key: &LocalKey) -> (u64, u64) {
        let now = Duration::from_secs(at);
        let floor = keys.under_the_floor(now, key).map_or(Duration::ZERO, |(left, _)| left);
        (keys.held(now, key).unwrap_or_default().as_secs(), floor.as_secs())
    }

    /// Takes failures (time in seconds, whether exempt); returns how many seconds the next attempt must wait after each.
    fn floors(failures: &[(u64, bool)]) -> Vec<u64> {
        let mut keys = no_keys();
        let fail = |(at, exempt): &(u64, bool)| {
            keys.note(&key("a"), failed_by_clearance(*at, *exempt));
            left(&keys, *at, &key("a")).1
        };
        failures.iter().map(fail).collect()
    }

    #[test]
    fn the_floor_is_kubelets_rule_and_elected_attempts_do_not_make_it_longer() {
        assert_eq!(floors(&[(0, false), (10, false), (30, false), (70, false)]), [10, 20, 40, 80]);
        assert_eq!(floors(&[(0, true), (2, true), (6, true), (16, false)]), [10, 10, 10, 20]);
        assert_eq!(floors(&[(0, false), (10, false), (800, false)]), [10, 20, 10], "it starts over after twice the longest");
        assert_eq!(floors(&[(0, false), (10, false), (30, false), (70, false), (150, false), (310, false)]).last(), Some(&300));
    }

    #[test]
    fn success_of_another_node_ends_the_own_rule_and_leaves_floor_and_failures_by_chance() {
        let mut keys = no_keys();
        keys.note(&key("a"), Failed { pauses: true, ..failed_by_clearance(5, false) });
        assert_eq!(left(&keys, 5, &key("a")), (10, 10));
        keys.lift(&key("a"));
        assert_eq!(left(&keys, 5, &key("a")), (0, 10));
        assert_eq!((keys.known().count(), keys.failures_by_chance(Duration::from_secs(5), &key("a"))), (0, 1));
        keys.note(&key("a"), failed_by_clearance(15, false));
        assert_eq!(left(&keys, 15, &key("a")), (10, 20));
        let streak = keys.get(&key("a")).map(|failed| (failed.streak.since.as_secs(), failed.streak.failures));
        assert_eq!(streak, Some((15, 1)), "the failures before the success are not counted");
        keys.clear(&key("a"));
        assert_eq!(left(&keys, 15, &key("a")), (0, 0));
        assert_eq!(keys.failures_by_chance(Duration::from_secs(15), &key("a")), 0);
    }

    #[test]
    fn clear_ends_failures_up_to_its_date_also_if_an_attempt_was_allowed_since() {
        let mut keys = no_keys();
        keys.note(&key("a"), failed_by_clearance(5, false));
        keys.outdate(&key("a"));
        assert!(keys.clear_all(Duration::from_secs(4), |_, _| true).is_empty());
        assert!(keys.clear_all(Duration::from_secs(5), |key, _| key.image == "b").is_empty());
        assert_eq!(left(&keys, 5, &key("a")), (10, 10));
        assert_eq!(keys.clear_all(Duration::from_secs(5), |key, _| key.image == "a"), [key("a")]);
        assert_eq!(left(&keys, 5, &key("a")), (0, 0));
    }

    #[test]
    fn attempt_without_clearance_leaves_the_floor() {
        let mut keys = no_keys();
        keys.note(&key("a"), failed_by_clearance(0, false));
        keys.note(&key("a"), failed(4));
        assert_eq!(left(&keys, 4, &key("a")), (20, 6));
    }

    #[test]
    fn retry_pause_is_1_s_then_2_s_and_resets_after_success_or_10_min() {
        let (mut keys, mut now) = (no_keys(), 100);
        let mut fail = |keys: &mut FailedKeys, after: u64| {
            now += after;
            keys.note(&key("a"), failed_by_chance(now));
            keys.paused_until(&key("a")).map(|(until, _)| until.as_secs() - now)
        };
        assert_eq!([0, 1, 2, 4].map(|after| fail(&mut keys, after)), [Some(1), Some(2), Some(2), Some(2)]);
        assert_eq!(fail(&mut keys, 605), Some(1));
        keys.clear(&key("a"));
        assert_eq!(fail(&mut keys, 1), Some(1));
        assert!(keys.paused_until(&key("b")).is_none());
    }

    #[test]
    fn further_failures_keep_those_by_chance_in_memory() {
        let mut keys = no_keys();
        keys.note(&key("a"), failed_by_chance(0));
        for at in [300, 600, 900] {
            keys.note(&key("a"), failed(at));
            assert_eq!(keys.failures_by_chance(Duration::from_secs(at), &key("a")), 1, "at {at} s");
        }
        assert_eq!(keys.failures_by_chance(Duration::from_secs(1_500), &key("a")), 1);
        assert_eq!(keys.failures_by_chance(Duration::from_secs(1_501), &key("a")), 0);
    }

    #[test]
    fn own_delay_is_forgotten_while_failures_by_chance_go_on() {
        let mut keys = no_keys();
        keys.note(&key("a"), failed(0));
        for (at, listed) in [(300, 1), (600, 1), (601, 0), (900, 0)] {
            keys.note(&key("a"), failed_by_chance(at));
            assert_eq!(keys.held_ones().count(), listed, "at {at} s");
        }
    }

    #[test]
    fn what_is_long_ago_is_forgotten() {
        let failed_at_0 = || {
            let mut keys = FailedKeys::new(BackoffPolicy { initial: Duration::from_secs(1), max: Duration::from_secs(40) });
            keys.note(&key("a"), failed(0));
            keys.note(&key("b"), failed_by_chance(0));
            keys
        };
        for (at, kept) in [(80, 2), (81, 0)] {
            let mut keys = failed_at_0();
            keys.collect_garbage(Duration::from_secs(at));
            assert_eq!(keys.keys.len(), kept, "at {at} s");
        }
        let mut keys = failed_at_0();
        for (at, kept) in [(60, 2), (119, 2), (120, 0)] {
            keys.collect_garbage(Duration::from_secs(at));
            assert_eq!(keys.keys.len(), kept, "looked for once a minute: {at} s");
        }
    }

    #[test]
    fn full_memory_forgets_what_no_longer_counts_then_the_oldest() {
        // Neither the first nor the last by name.
        const OLDEST: usize = MAX_KEYS / 2;
        // At which second that image failed, and the others; when one more fails; and how many are forgotten then.
        for (oldest, others, one_more, forgotten) in [(100, 102, 103, 1), (100, 110, 400, 1), (100, 110, 702, 1), (100, 100, 702, MAX_KEYS)]
        {
            let mut keys = no_keys();
            let fail = |keys: &mut FailedKeys, image: usize, at: u64| keys.note(&key(&format!("a{image}")), failed_by_chance(at));
            fail(&mut keys, OLDEST, oldest);
            for image in (0..MAX_KEYS).filter(|image| *image != OLDEST) {
                fail(&mut keys, image, others);
            }
            fail(&mut keys, MAX_KEYS, one_more);
            let failures =
                |keys: &FailedKeys, image: usize| keys.failures_by_chance(Duration::from_secs(one_more), &key(&format!("a{image}")));
            assert_eq!((0..MAX_KEYS).filter(|image| failures(&keys, *image) == 0).count(), forgotten, "one more at {one_more} s");
            assert_eq!((failures(&keys, OLDEST), failures(&keys, MAX_KEYS)), (0, 1), "one more at {one_more} s");
            // An image that is remembered takes no more room.
            let evicted = keys.counts.evicted_total;
            fail(&mut keys, MAX_KEYS, one_more + 1);
            assert_eq!((failures(&keys, MAX_KEYS), keys.counts.evicted_total), (2, evicted));
            assert!(keys.keys.len() <= MAX_KEYS);
            keys.assert_invariants();
        }
    }
}
