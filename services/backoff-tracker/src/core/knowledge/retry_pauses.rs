//! How long this node itself waits after a failure at a registry that serves others all the same.
//!
//! Such a registry holds nobody back by an entry, and each success that is heard lifts what this node's own rule holds. Without a pause it
//! would ask again at once. `Retry-After` holds all pulls of the node that got it, as the registry says.

use std::collections::BTreeMap;
use std::time::Duration;

use contract::messages::backoff_tracker::BackoffKey;

use super::topic::TopicId;
use crate::core::tracker::MAX_KEYS;

/// After the first failure of an image; twice as long after each further one.
const FIRST: Duration = Duration::from_secs(1);
/// After so long without a failure an image begins anew: longer than kubelet's longest delay.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(600);
/// Budgets at once. At one more the one that ends first is forgotten.
const MAX_BUDGETS: usize = 256;

/// The pauses of one node.
#[derive(Debug, Default)]
pub(super) struct RetryPauses {
    /// Until when the registry has asked this node to stay away, by the topic of the budget.
    budgets: BTreeMap<TopicId, Duration>,
    keys: BTreeMap<BackoffKey, Pause>,
}

#[derive(Debug)]
struct Pause {
    until: Duration,
    length: Duration,
    /// In a row.
    failures: u32,
    topics: Vec<TopicId>,
}

impl RetryPauses {
    /// The registry has asked this node to stay away until then.
    pub(super) fn stay_away(&mut self, now: Duration, budget: TopicId, until: Duration) {
        self.budgets.retain(|_, ends| now < *ends);
        let ends = self.budgets.entry(budget).or_default();
        *ends = until.max(*ends);
        if self.budgets.len() > MAX_BUDGETS
            && let Some(first) = self.budgets.iter().min_by_key(|(_, ends)| **ends).map(|(budget, _)| *budget)
        {
            self.budgets.remove(&first);
        }
    }

    /// An image failed by these topics, while others were served. No pause is longer than `longest`.
    pub(super) fn failed(&mut self, now: Duration, key: &BackoffKey, topics: Vec<TopicId>, longest: Duration) {
        let known = self.keys.get(key).filter(|pause| now < pause.until + FORGOTTEN_AFTER);
        let length = known.map_or(FIRST, |pause| (pause.length * 2).min(longest));
        if self.keys.len() >= MAX_KEYS {
            self.keys.retain(|_, pause| now < pause.until);
        }
        if self.keys.len() < MAX_KEYS {
            self.keys.insert(key.clone(), Pause { until: now + length, length, failures: self.failures(now, key) + 1, topics });
        }
    }

    /// How often in a row an image has failed so.
    pub(super) fn failures(&self, now: Duration, key: &BackoffKey) -> u32 {
        self.keys.get(key).filter(|pause| now < pause.until + FORGOTTEN_AFTER).map_or(0, |pause| pause.failures)
    }

    /// Until when an image is not tried, which is counted on this budget.
    pub(super) fn until(&self, now: Duration, budget: TopicId, key: &BackoffKey) -> Option<Duration> {
        let of_budget = self.budgets.get(&budget).copied();
        let of_key = self.keys.get(key).map(|pause| pause.until);
        of_budget.max(of_key).filter(|until| now < *until)
    }

    /// The image was pulled.
    pub(super) fn succeeded(&mut self, key: &BackoffKey) {
        self.keys.remove(key);
    }

    /// An operator has cleared these topics, or images.
    pub(super) fn clear(&mut self, is_cleared: impl Fn(&TopicId) -> bool, of_image: impl Fn(&BackoffKey) -> bool) {
        self.budgets.retain(|budget, _| !is_cleared(budget));
        self.keys.retain(|key, pause| !of_image(key) && !pause.topics.iter().any(&is_cleared));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUDGET: TopicId = TopicId(7);

    fn key(image: &str) -> BackoffKey {
        BackoffKey { pod: None, image: image.to_owned() }
    }

    #[test]
    fn pauses_double_up_to_four_seconds_and_begin_anew_after_a_success_or_ten_minutes() {
        let mut pauses = RetryPauses::default();
        let mut now = Duration::from_secs(100);
        let mut fail = |pauses: &mut RetryPauses, after: u64| {
            now += Duration::from_secs(after);
            pauses.failed(now, &key("a"), vec![BUDGET], Duration::from_secs(4));
            pauses.until(now, BUDGET, &key("a")).map(|until| (until - now).as_secs())
        };
        assert_eq!([0, 1, 2, 4, 4].map(|after| fail(&mut pauses, after)), [Some(1), Some(2), Some(4), Some(4), Some(4)]);
        assert_eq!(fail(&mut pauses, 605), Some(1));
        pauses.succeeded(&key("a"));
        assert_eq!(fail(&mut pauses, 1), Some(1));
        assert_eq!(pauses.until(now, BUDGET, &key("b")), None);
        assert_eq!(pauses.until(now + Duration::from_secs(2), BUDGET, &key("a")), None);
    }

    #[test]
    fn retry_after_holds_all_images_of_the_budget_until_it_is_over_or_cleared() {
        let (mut pauses, now) = (RetryPauses::default(), Duration::from_secs(100));
        let until = now + Duration::from_secs(60);
        pauses.stay_away(now, BUDGET, until);
        pauses.stay_away(now, BUDGET, now + Duration::from_secs(1));
        assert_eq!(pauses.until(now, BUDGET, &key("a")), Some(until), "the longest that was asked for");
        assert_eq!(pauses.until(now, TopicId(8), &key("a")), None);
        assert_eq!(pauses.until(until, BUDGET, &key("a")), None);
        pauses.clear(|topic| *topic == BUDGET, |_| false);
        assert_eq!(pauses.until(now, BUDGET, &key("a")), None);
        for number in 0..1_000 {
            pauses.stay_away(now, TopicId(number), until);
        }
        assert_eq!(pauses.budgets.len(), MAX_BUDGETS);
    }
}
