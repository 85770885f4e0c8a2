//! Reports of other nodes as they are received. A success releases pulls that failed here by the same key.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use contract::messages::backoff_tracker::LocalKey;

use super::backoff_key::BackoffKeyId;
use super::lease::RequestId;
use super::node::Knowledge;
use super::planted_bug::PlantedBug;
use super::report::{Finding, Report};
use super::request::{Request, State};

impl Knowledge {
    pub(super) fn report_received(&mut self, now: Duration, report: Arc<Report>, age: Duration) {
        let (backoff_key, succeeded) = (report.backoff_key.id(), report.finding == Finding::Succeeded);
        let answered_at = now.saturating_sub(age);
        // This success refutes the node's own failure, but the node may have failed as all did: it makes one more attempt.
        let released = if succeeded { self.released_by(now, backoff_key, answered_at) } else { BTreeSet::new() };
        if succeeded && self.has(PlantedBug::SuccessIgnored) || !self.replica.receive(now, Arc::clone(&report), age) {
            return;
        }
        self.follow(now, &report);
        if succeeded {
            self.release(released);
            self.abandon_hanging(now, backoff_key, answered_at);
        }
        self.touch(backoff_key);
    }

    /// Ends the own rule's delay of pulls that failed by this key, because another node has succeeded on it.
    pub(super) fn lift_own_delays(&mut self, now: Duration, backoff_key: BackoffKeyId) {
        let released = self.released_by(now, backoff_key, now);
        self.release(released);
    }

    /// The local keys that failed by a back-off key before it was answered, unless an earlier success has refuted this node's failure.
    fn released_by(&self, now: Duration, backoff_key: BackoffKeyId, answered_at: Duration) -> BTreeSet<LocalKey> {
        let refuted = self.replica.is_refuted(now, backoff_key);
        let released = self.failed_keys.failed_by(backoff_key).filter(|(_, failed)| !refuted && failed.failure.at < answered_at);
        released.map(|(key, _)| key.clone()).collect()
    }

    fn release(&mut self, released: BTreeSet<LocalKey>) {
        if released.is_empty() {
            return;
        }
        released.iter().for_each(|key| self.failed_keys.lift(key));
        let waits = |request: &Request| matches!(request.state, State::Fresh) && request.keys().any(|key| released.contains(key));
        let waiting: Vec<RequestId> = self.requests.iter().filter(|(_, request)| waits(request)).map(|(id, _)| id).collect();
        for id in waiting {
            self.requests.change(id, |request| request.state = State::Delayed);
        }
    }
}
