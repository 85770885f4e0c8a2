//! How long this node waits while others hold a lease and report no result.
//!
//! A holder that lives reports a result within its term, and the lease of one that died ends and is taken by the next node. A lease that
//! is taken again and again without a result blocks nobody for longer than two terms: the node then goes by its own rule, which is
//! kubelet's.

use std::collections::BTreeMap;
use std::time::Duration;

use super::entry::PROBE_DEADLINE;
use super::topic::TopicId;

/// Two terms: that of a holder that died, and that of the next one.
const WAITED_AT_MOST: Duration = Duration::from_secs(2 * PROBE_DEADLINE.as_secs());
/// A caller that was refused comes back after 300 s at most, kubelet's longest back-off: it then goes on with the same wait.
const REMEMBERED: Duration = Duration::from_secs(2 * 300);
/// As many as there are leases that a node remembers. For one more the node waits as long as the leases last.
const WAITS_MOST: usize = 4_096;

/// The waits of this node, by what the result would be about.
#[derive(Debug, Default)]
pub(super) struct LeaseWaits(BTreeMap<TopicId, Wait>);

#[derive(Clone, Copy, Debug)]
struct Wait {
    since: Duration,
    last: Duration,
    /// The newest result that was known when it began. A result is as old as its attempt, which may be older than the wait for it.
    result: Option<Duration>,
}

impl LeaseWaits {
    /// The node waits for a result about `topic`, of which the newest was at `result`. Returns until when it waits. A new result starts the
    /// wait again.
    pub(super) fn until(&mut self, now: Duration, topic: TopicId, result: Option<Duration>) -> Duration {
        if self.0.len() >= WAITS_MOST && !self.0.contains_key(&topic) {
            self.0.retain(|_, wait| now < wait.last + WAITED_AT_MOST);
            if self.0.len() >= WAITS_MOST {
                return now + WAITED_AT_MOST;
            }
        }
        let wait = self.0.entry(topic).or_insert(Wait { since: now, last: now, result });
        if now >= wait.last + REMEMBERED || result > wait.result {
            (wait.since, wait.result) = (now, result);
        }
        wait.last = now;
        wait.since + WAITED_AT_MOST
    }

    /// The node was without a bus, so that results may have passed it by: all waits start again.
    pub(super) fn start_again(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_lasts_two_terms_unless_there_is_a_result() {
        let seconds = Duration::from_secs;
        // When the node waits, when the newest result was, and until when it waits then.
        let table = [
            (100, Some(20), 130),
            (110, Some(20), 130),
            (140, Some(20), 130),
            // It came back after kubelet's longest back-off.
            (430, Some(20), 130),
            // An attempt that began before the wait has come to something.
            (440, Some(99), 470),
            (450, Some(99), 470),
            // It is forgotten.
            (455, None, 470),
            // Another caller, much later.
            (1_055, None, 1_085),
        ];
        let (mut waits, topic) = (LeaseWaits::default(), TopicId(1));
        for (now, result, until) in table {
            assert_eq!(waits.until(seconds(now), topic, result.map(seconds)), seconds(until), "at {now}");
        }
        waits.start_again();
        assert_eq!(waits.until(seconds(1_060), topic, None), seconds(1_090));
    }

    #[test]
    fn waits_are_bounded_and_one_more_lasts_as_long_as_the_leases() {
        let mut waits = LeaseWaits::default();
        for number in 0..3 * WAITS_MOST {
            assert_eq!(waits.until(Duration::ZERO, TopicId(number as u128), None), WAITED_AT_MOST);
        }
        assert_eq!(waits.0.len(), WAITS_MOST);
    }
}
