//! How long this node waits while other nodes hold a lease.
//!
//! A holder that is alive reports within seconds that its attempt is unanswered, and within its term how it ended. If a holder dies, its
//! lease expires and another node takes it. So a node waits for at most two terms, counted anew from each result whose reporter differs
//! from the one before. Then it uses its own rule, which is kubelet's. While an entry is not due, no node may hold its lease, so that time
//! does not count. A single node cannot keep others waiting, even if it takes a lease again and again and publishes any reports, successes
//! and failures in turn.

use std::collections::BTreeMap;
use std::time::Duration;

use contract::{DEADLINES, NodeName};

use super::backoff_key::BackoffKeyId;

/// Two terms: that of a holder that died, and that of the next one.
const WAITED_AT_MOST: Duration = Duration::from_secs(2 * DEADLINES.attempt_lease.as_secs());
/// A caller that was refused comes back after 300 s at most, kubelet's longest back-off, and then continues the same wait.
const REMEMBERED: Duration = Duration::from_secs(2 * 300);
/// Waits remembered, as many as leases. One more is not remembered: the node waits for as long as the leases last.
const WAITS_MOST: usize = 4_096;

/// A success or a failure: the date of its attempt, and the node that reported it.
pub(super) type Reported = (Duration, NodeName);

/// The waits of this node, by the key of the lease.
#[derive(Debug, Default)]
pub(super) struct LeaseWaits(BTreeMap<BackoffKeyId, Wait>);

#[derive(Clone, Debug)]
struct Wait {
    /// How long the node has waited, up to `last`.
    waited: Duration,
    last: Duration,
    /// An entry is not due: the time from `last` on does not count.
    is_paused: bool,
    /// The result that started the wait again, or the newest one known when it began, which may be older than the wait.
    result: Option<Reported>,
}

impl LeaseWaits {
    /// Returns until when the node waits for a lease about `backoff_key`. `results` are the newest successes and failures that concern the
    /// request, of at least two nodes each if there are.
    pub(super) fn until(&mut self, now: Duration, backoff_key: BackoffKeyId, results: &[Reported]) -> Duration {
        if self.0.len() >= WAITS_MOST && !self.0.contains_key(&backoff_key) {
            self.0.retain(|_, wait| now < wait.last + WAITED_AT_MOST);
            if self.0.len() >= WAITS_MOST {
                return now + WAITED_AT_MOST;
            }
        }
        let wait = self.0.entry(backoff_key).or_insert_with(|| Wait {
            waited: Duration::ZERO,
            last: now,
            is_paused: false,
            result: results.iter().max().cloned(),
        });
        let is_forgotten = now >= wait.last + REMEMBERED;
        wait.count(now);
        wait.is_paused = false;
        let counts = |(at, by): &&Reported| wait.result.as_ref().is_none_or(|(then, last)| at > then && by != last);
        if let Some(result) = results.iter().filter(counts).max().cloned() {
            (wait.waited, wait.result) = (Duration::ZERO, Some(result));
        }
        if is_forgotten {
            wait.waited = Duration::ZERO;
        }
        now + WAITED_AT_MOST.saturating_sub(wait.waited)
    }

    /// The node knows an entry that is not due and concerns these: it does not wait for another node's lease.
    pub(super) fn pause(&mut self, now: Duration, backoff_keys: &[BackoffKeyId]) {
        for backoff_key in backoff_keys {
            if let Some(wait) = self.0.get_mut(backoff_key) {
                wait.count(now);
                wait.is_paused = true;
            }
        }
    }

    /// The node makes an attempt that these keys concern: its waits end.
    pub(super) fn forget(&mut self, backoff_keys: &[BackoffKeyId]) {
        backoff_keys.iter().for_each(|backoff_key| drop(self.0.remove(backoff_key)));
    }

    /// The node was without a bus and may have missed reports: all waits start again.
    pub(super) fn start_again(&mut self) {
        self.0.clear();
    }
}

impl Wait {
    fn count(&mut self, now: Duration) {
        if !self.is_paused {
            self.waited += now.saturating_sub(self.last);
        }
        self.last = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn result((at, by): (u64, &str)) -> Reported {
        (seconds(at), by.parse().expect("a node's name"))
    }

    #[test]
    fn a_wait_lasts_two_terms_unless_another_node_has_a_result() {
        // When the node waits, the newest result, and until when it waits then.
        type Row = (u64, Option<(u64, &'static str)>, u64);
        let table: [Row; 13] = [
            (100, Some((20, "n0")), 130),
            (110, Some((20, "n0")), 130),
            (140, Some((20, "n0")), 140),
            // The caller comes back after kubelet's longest back-off.
            (430, Some((20, "n0")), 430),
            // An attempt of another node, which began before the wait, has a result.
            (440, Some((99, "n1")), 470),
            (450, Some((99, "n1")), 470),
            (455, Some((440, "n2")), 485),
            // The same node again: it may be the one that takes the lease again and again.
            (460, Some((450, "n2")), 485),
            (465, Some((452, "n1")), 495),
            // An older result than the one that counted, the newer one having been refuted.
            (470, Some((440, "n2")), 495),
            (475, Some((470, "n2")), 505),
            // What was known is forgotten.
            (480, None, 505),
            // Another caller, much later.
            (1_080, None, 1_110),
        ];
        let (mut waits, backoff_key) = (LeaseWaits::default(), BackoffKeyId(1));
        for (now, newest, until) in table {
            let results: Vec<Reported> = newest.into_iter().map(result).collect();
            assert_eq!(waits.until(seconds(now), backoff_key, &results), seconds(until), "at {now}");
        }
        assert_eq!(waits.until(seconds(1_085), backoff_key, &[]), seconds(1_110));
        waits.forget(&[backoff_key]);
        assert_eq!(waits.until(seconds(1_087), backoff_key, &[]), seconds(1_117));
        waits.start_again();
        assert_eq!(waits.until(seconds(1_090), backoff_key, &[]), seconds(1_120));
    }

    #[test]
    fn older_failure_of_another_node_restarts_wait() {
        let (mut waits, backoff_key) = (LeaseWaits::default(), BackoffKeyId(1));
        let mut until = |now, results: &[(u64, &str)]| {
            let results: Vec<Reported> = results.iter().copied().map(result).collect();
            waits.until(seconds(now), backoff_key, &results)
        };
        assert_eq!(until(100, &[(90, "n3"), (89, "n2")]), seconds(130));
        assert_eq!(until(110, &[(105, "n3"), (89, "n2")]), seconds(130));
        assert_eq!(until(120, &[(115, "n3"), (114, "n2")]), seconds(150));
    }

    #[test]
    fn the_time_in_which_an_entry_is_not_due_does_not_count() {
        let (mut waits, backoff_key, other) = (LeaseWaits::default(), BackoffKeyId(1), BackoffKeyId(2));
        let failed = [result((90, "n1"))];
        assert_eq!(waits.until(seconds(100), backoff_key, &failed), seconds(130));
        waits.pause(seconds(110), &[backoff_key, other]);
        waits.pause(seconds(115), &[backoff_key]);
        assert_eq!(waits.until(seconds(160), backoff_key, &failed), seconds(180));
        assert_eq!(waits.until(seconds(170), backoff_key, &failed), seconds(180));
        waits.pause(seconds(170), &[other]);
        assert_eq!(waits.until(seconds(175), backoff_key, &failed), seconds(180));
    }

    #[test]
    fn wait_beyond_bound_is_not_remembered() {
        let mut waits = LeaseWaits::default();
        for number in 0..3 * WAITS_MOST {
            assert_eq!(waits.until(Duration::ZERO, BackoffKeyId(number as u128), &[]), WAITED_AT_MOST);
        }
        assert_eq!(waits.0.len(), WAITS_MOST);
    }
}
