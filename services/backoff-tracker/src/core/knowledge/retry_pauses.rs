//! How long this node waits after a failure at a registry that still serves others.
//!
//! Such a registry has no entry that refuses all nodes, and each received success lifts this node's own delay. Without a pause the node
//! would ask again at once. `Retry-After` delays all pulls on the budget of the node that received it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use contract::messages::backoff_tracker::LocalKey;

use super::backoff_key::BackoffKeyId;
use super::node::Knowledge;
use super::own_failures::OwnFailure;
use super::report::{MAX_MESSAGE_BYTES, shorten};
use crate::core::remove_least;

/// Budgets at the same time. For one more, the one that ends first is forgotten.
const MAX_BUDGETS: usize = 256;

/// Until when the registry has asked this node to send no requests, and with which failure, by the back-off key of the budget.
#[derive(Debug, Default)]
pub(super) struct RetryPauses(BTreeMap<BackoffKeyId, (Duration, Arc<OwnFailure>)>);

impl RetryPauses {
    /// The registry has sent `Retry-After` with a failure. The latest end counts. The cause is shortened, because the refusals of all pulls on
    /// the budget keep a copy of it.
    pub(super) fn stay_away(&mut self, budget: BackoffKeyId, until: Duration, failure: &OwnFailure) {
        self.0.retain(|_, (until, _)| failure.at < *until);
        if self.0.get(&budget).is_none_or(|(known, _)| *known < until) {
            let mut failure = failure.clone();
            shorten(&mut failure.cause, MAX_MESSAGE_BYTES);
            self.0.insert(budget, (until, Arc::new(failure)));
        }
        if self.0.len() > MAX_BUDGETS {
            remove_least(&mut self.0, |(until, _)| *until);
        }
    }

    /// An operator has cleared these back-off keys.
    pub(super) fn clear(&mut self, is_cleared: impl Fn(&BackoffKeyId) -> bool) {
        self.0.retain(|budget, _| !is_cleared(budget));
    }
}

impl Knowledge {
    /// Until when an image on this budget is not attempted, and because of which failure.
    pub(super) fn retry_pause(&self, now: Duration, budget: BackoffKeyId, key: &LocalKey) -> Option<(Duration, Arc<OwnFailure>)> {
        let of_budget = self.retry_pauses.0.get(&budget).map(|(until, failure)| (*until, failure));
        let (until, failure) = of_budget.into_iter().chain(self.failed_keys.paused_until(key)).max_by_key(|(until, _)| *until)?;
        (now < until).then(|| (until, Arc::clone(failure)))
    }
}

#[cfg(test)]
mod tests {
    use contract::FailureClass;

    use super::*;
    use crate::core::BackoffPolicy;

    const BUDGET: BackoffKeyId = BackoffKeyId(7);

    fn at(at: Duration) -> OwnFailure {
        OwnFailure { at, class: FailureClass::RateLimited, ..OwnFailure::default() }
    }

    #[test]
    fn cause_of_a_pause_is_as_short_as_that_of_a_report() {
        let mut pauses = RetryPauses::default();
        let failure = OwnFailure { cause: "a".repeat(64 * 1_024), ..OwnFailure::default() };
        pauses.stay_away(BUDGET, Duration::from_secs(60), &failure);
        assert_eq!(pauses.0.get(&BUDGET).map(|(_, failure)| failure.cause.len()), Some(MAX_MESSAGE_BYTES));
    }

    #[test]
    fn retry_after_pauses_all_images_of_a_budget_until_expiry_or_clear() {
        let (mut knowledge, now) = (Knowledge::new("me".parse().unwrap(), BackoffPolicy::default()), Duration::from_secs(100));
        let until = |knowledge: &Knowledge, now: Duration, budget: BackoffKeyId| {
            let key = LocalKey { pod: None, image: "a".to_owned() };
            knowledge.retry_pause(now, budget, &key).map(|(until, failure)| (until, failure.at))
        };
        let ends = now + Duration::from_secs(60);
        knowledge.retry_pauses.stay_away(BUDGET, ends, &at(now));
        knowledge.retry_pauses.stay_away(BUDGET, now + Duration::from_secs(1), &at(now + Duration::from_millis(1)));
        assert_eq!(until(&knowledge, now, BUDGET), Some((ends, now)), "the longest that was asked for, and what asked for it");
        assert_eq!(until(&knowledge, now, BackoffKeyId(8)), None);
        assert_eq!(until(&knowledge, ends, BUDGET), None);
        knowledge.retry_pauses.clear(|backoff_key| *backoff_key == BUDGET);
        assert_eq!(until(&knowledge, now, BUDGET), None);
        for number in 0..1_000 {
            knowledge.retry_pauses.stay_away(BackoffKeyId(number), ends, &at(now));
        }
        assert_eq!(knowledge.retry_pauses.0.len(), MAX_BUDGETS);
    }
}
