//! What a refusal says, for each reason: an entry, this node's own rule, no room.

use std::time::Duration;

use contract::FailureClass;

use super::entry::Entry;
use super::input::Refusal;
use super::node::{Knowledge, MAX_REQUESTS};
use super::own_failures::OwnFailure;
use super::planted_bug::PlantedBug;

impl Knowledge {
    pub(super) fn refusal_by_own_rule(&self, now: Duration, failure: &OwnFailure, next_attempt: Duration) -> Refusal {
        Refusal {
            class: failure.class,
            cause: failure.cause.clone(),
            learned_by: self.node.clone(),
            learned_ago: now.saturating_sub(failure.at),
            trace: failure.trace.filter(|_| !self.has(PlantedBug::AttemptsUnnamed)),
            next_attempt,
            unconfirmed: false,
            entry: None,
        }
    }

    /// The refusal of one request too many.
    #[must_use]
    pub fn no_room(&self, now: Duration) -> Refusal {
        Refusal {
            class: FailureClass::NodeLocal,
            cause: format!("{MAX_REQUESTS} images are requested on this node already: wait until some are pulled, or cancel them"),
            learned_by: self.node.clone(),
            learned_ago: Duration::ZERO,
            trace: None,
            next_attempt: now + self.failed_keys.policy.initial,
            unconfirmed: false,
            entry: None,
        }
    }
}

pub(super) fn refusal_by(now: Duration, entry: &Entry) -> Refusal {
    Refusal {
        class: entry.backoff_key.class(),
        cause: entry.newest.finding.details().map(|details| details.message.clone()).unwrap_or_default(),
        learned_by: entry.newest.reporter.clone(),
        learned_ago: now.saturating_sub(entry.failed_at),
        trace: entry.newest.trace,
        next_attempt: entry.next_attempt,
        unconfirmed: entry.is_unconfirmed(),
        entry: Some(entry.backoff_key.id()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::BackoffPolicy;

    #[test]
    fn request_too_many_is_refused_for_the_first_delay_of_the_nodes_policy() {
        let second = Duration::from_secs(1);
        for policy in [BackoffPolicy::default(), BackoffPolicy { initial: 3 * second, max: 60 * second }] {
            let knowledge = Knowledge::new("me".parse().expect("a name"), policy);
            assert_eq!(knowledge.no_room(100 * second).next_attempt, 100 * second + policy.initial);
        }
    }
}
