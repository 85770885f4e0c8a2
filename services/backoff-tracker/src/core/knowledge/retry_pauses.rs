//! How long this node waits after a failure at a registry that still serves others.
//!
//! Such a registry has no entry that refuses all nodes, and each received success lifts this node's own delay. Without a pause the node
//! would ask again at once. `Retry-After` delays all pulls on the budget of the node that received it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use contract::messages::backoff_tracker::LocalKey;

use super::backoff_key::BackoffKeyId;
use crate::core::delays::MAX_KEYS;
use crate::core::floor::OwnFailure;
use crate::core::remove_least;

/// The pause after the first failure of an image.
const FIRST: Duration = Duration::from_secs(1);
/// The pause after each further failure. An image that fails four times out of five then takes 10 s; of 120 such images, the last one takes
/// about a minute.
const FURTHER: Duration = Duration::from_secs(2);
/// After this long without a failure an image begins anew: longer than kubelet's longest delay.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(600);
/// Budgets at the same time. For one more, the one that ends first is forgotten.
const MAX_BUDGETS: usize = 256;

#[derive(Debug, Default)]
pub(super) struct RetryPauses {
    /// Until when the registry has asked this node to send no requests, by the back-off key of the budget.
    budgets: BTreeMap<BackoffKeyId, StayAway>,
    keys: BTreeMap<LocalKey, Pause>,
}

#[derive(Debug)]
struct StayAway {
    until: Duration,
    failure: Arc<OwnFailure>,
}

#[derive(Debug)]
struct Pause {
    until: Duration,
    failure: Arc<OwnFailure>,
    /// Failures in a row.
    failures: u32,
    backoff_keys: Vec<BackoffKeyId>,
}

impl Pause {
    /// Whether its failures still count.
    fn counts(&self, now: Duration) -> bool {
        now < self.until + FORGOTTEN_AFTER
    }
}

impl RetryPauses {
    /// The registry has sent `Retry-After` with a failure. The latest end counts.
    pub(super) fn stay_away(&mut self, budget: BackoffKeyId, until: Duration, failure: &Arc<OwnFailure>) {
        self.budgets.retain(|_, asked| failure.at < asked.until);
        if self.budgets.get(&budget).is_none_or(|asked| asked.until < until) {
            self.budgets.insert(budget, StayAway { until, failure: Arc::clone(failure) });
        }
        if self.budgets.len() > MAX_BUDGETS {
            remove_least(&mut self.budgets, |asked| asked.until);
        }
    }

    /// An image failed by these back-off keys, while others were served.
    pub(super) fn failed(&mut self, key: &LocalKey, backoff_keys: Vec<BackoffKeyId>, failure: &Arc<OwnFailure>) {
        let now = failure.at;
        let failures = self.failures(now, key) + 1;
        let until = now + if failures == 1 { FIRST } else { FURTHER };
        if self.keys.len() >= MAX_KEYS && !self.keys.contains_key(key) {
            self.make_room(now);
        }
        self.keys.insert(key.clone(), Pause { until, failure: Arc::clone(failure), failures, backoff_keys });
    }

    /// Drops the images whose failures no longer count; if there are none, the image whose last failure is the oldest.
    fn make_room(&mut self, now: Duration) {
        self.keys.retain(|_, pause| pause.counts(now));
        if self.keys.len() >= MAX_KEYS {
            remove_least(&mut self.keys, |pause| pause.failure.at);
        }
    }

    /// How often in a row an image has failed while others were served.
    pub(super) fn failures(&self, now: Duration, key: &LocalKey) -> u32 {
        self.keys.get(key).filter(|pause| pause.counts(now)).map_or(0, |pause| pause.failures)
    }

    /// Until when an image on this budget is not attempted, and because of which failure.
    pub(super) fn until(&self, now: Duration, budget: BackoffKeyId, key: &LocalKey) -> Option<(Duration, Arc<OwnFailure>)> {
        let of_budget = self.budgets.get(&budget).map(|asked| (asked.until, &asked.failure));
        let of_key = self.keys.get(key).map(|pause| (pause.until, &pause.failure));
        let longest = of_budget.into_iter().chain(of_key).max_by_key(|(until, _)| *until)?;
        (now < longest.0).then(|| (longest.0, Arc::clone(longest.1)))
    }

    /// The image was pulled.
    pub(super) fn succeeded(&mut self, key: &LocalKey) {
        self.keys.remove(key);
    }

    /// An operator has cleared these back-off keys, or images.
    pub(super) fn clear(&mut self, is_cleared: impl Fn(&BackoffKeyId) -> bool, of_image: impl Fn(&LocalKey) -> bool) {
        self.budgets.retain(|budget, _| !is_cleared(budget));
        self.keys.retain(|key, pause| !of_image(key) && !pause.backoff_keys.iter().any(&is_cleared));
    }
}

#[cfg(test)]
mod tests {
    use contract::FailureClass;

    use super::*;

    const BUDGET: BackoffKeyId = BackoffKeyId(7);

    fn at(at: Duration) -> Arc<OwnFailure> {
        Arc::new(OwnFailure { at, class: FailureClass::RateLimited, cause: String::new(), trace: None })
    }

    fn until(pauses: &RetryPauses, now: Duration, budget: BackoffKeyId, image: &str) -> Option<Duration> {
        pauses.until(now, budget, &key(image)).map(|(until, _)| until)
    }

    fn key(image: &str) -> LocalKey {
        LocalKey { pod: None, image: image.to_owned() }
    }

    #[test]
    fn retry_pause_is_1_s_then_2_s_and_resets_after_success_or_10_min() {
        let mut pauses = RetryPauses::default();
        let mut now = Duration::from_secs(100);
        let mut fail = |pauses: &mut RetryPauses, after: u64| {
            now += Duration::from_secs(after);
            pauses.failed(&key("a"), vec![BUDGET], &at(now));
            until(pauses, now, BUDGET, "a").map(|until| (until - now).as_secs())
        };
        assert_eq!([0, 1, 2, 4].map(|after| fail(&mut pauses, after)), [Some(1), Some(2), Some(2), Some(2)]);
        assert_eq!(fail(&mut pauses, 605), Some(1));
        pauses.succeeded(&key("a"));
        assert_eq!(fail(&mut pauses, 1), Some(1));
        assert_eq!(until(&pauses, now, BUDGET, "b"), None);
        assert_eq!(until(&pauses, now + Duration::from_secs(2), BUDGET, "a"), None);
    }

    #[test]
    fn full_memory_forgets_what_no_longer_counts_then_the_oldest() {
        // Neither the first nor the last by name.
        const OLDEST: usize = MAX_KEYS / 2;
        // At which second that image failed, and the others; when one more fails; and how many are forgotten then.
        for (oldest, others, one_more, forgotten) in [(100, 102, 103, 1), (100, 110, 400, 1), (100, 110, 702, 1), (100, 100, 702, MAX_KEYS)]
        {
            let (mut pauses, second) = (RetryPauses::default(), Duration::from_secs(1));
            let fail = |pauses: &mut RetryPauses, image: usize, at_second: u32| {
                pauses.failed(&key(&format!("a{image}")), vec![BUDGET], &at(at_second * second));
            };
            fail(&mut pauses, OLDEST, oldest);
            for image in (0..MAX_KEYS).filter(|image| *image != OLDEST) {
                fail(&mut pauses, image, others);
            }
            fail(&mut pauses, MAX_KEYS, one_more);
            let now = one_more * second;
            let failures = |image: usize| pauses.failures(now, &key(&format!("a{image}")));
            assert_eq!((0..MAX_KEYS).filter(|image| failures(*image) == 0).count(), forgotten, "one more at {one_more} s");
            assert_eq!((failures(OLDEST), failures(MAX_KEYS)), (0, 1), "one more at {one_more} s");
            // An image that is remembered takes no more room.
            fail(&mut pauses, MAX_KEYS, one_more + 1);
            assert_eq!(pauses.failures(now, &key(&format!("a{MAX_KEYS}"))), 2);
            assert!(pauses.keys.len() <= MAX_KEYS);
        }
    }

    #[test]
    fn retry_after_pauses_all_images_of_a_budget_until_expiry_or_clear() {
        let (mut pauses, now) = (RetryPauses::default(), Duration::from_secs(100));
        let ends = now + Duration::from_secs(60);
        pauses.stay_away(BUDGET, ends, &at(now));
        pauses.stay_away(BUDGET, now + Duration::from_secs(1), &at(now + Duration::from_millis(1)));
        assert_eq!(until(&pauses, now, BUDGET, "a"), Some(ends), "the longest that was asked for");
        assert_eq!(pauses.until(now, BUDGET, &key("a")).map(|(_, failure)| failure.at), Some(now), "by what asked for it");
        assert_eq!(until(&pauses, now, BackoffKeyId(8), "a"), None);
        assert_eq!(until(&pauses, ends, BUDGET, "a"), None);
        pauses.clear(|backoff_key| *backoff_key == BUDGET, |_| false);
        assert_eq!(until(&pauses, now, BUDGET, "a"), None);
        for number in 0..1_000 {
            pauses.stay_away(BackoffKeyId(number), ends, &at(now));
        }
        assert_eq!(pauses.budgets.len(), MAX_BUDGETS);
    }
}
