//! Leases of others that come to nothing. Whoever holds one says within its term what came of it, or it ends and another node takes it;
//! where it is taken again and again without a word, nobody waits for longer than two terms.

use std::collections::BTreeMap;
use std::time::Duration;

use super::entry::PROBE_DEADLINE;
use super::lease::LeaseName;

/// Two terms: that of a holder that died, and that of the next one.
const WAITED_AT_MOST: Duration = Duration::from_secs(2 * PROBE_DEADLINE.as_secs());
/// A caller that was refused comes back after 300 s at most, kubelet's longest back-off: within twice that it waits still.
const REMEMBERED: Duration = Duration::from_secs(2 * 300);
/// As many as there are leases that a node remembers.
const WAITS_MOST: usize = 4_096;

/// What this node waits for.
#[derive(Debug, Default)]
pub(super) struct Waits(BTreeMap<LeaseName, Wait>);

#[derive(Clone, Copy, Debug)]
struct Wait {
    since: Duration,
    last: Duration,
}

impl Waits {
    /// The node waits for another's result under this lease, the first of several that serve for one thing. Returns until when it does;
    /// what is known since `result` ends a wait that began before.
    pub(super) fn until(&mut self, now: Duration, name: LeaseName, result: Option<Duration>) -> Duration {
        if self.0.len() >= WAITS_MOST && !self.0.contains_key(&name) {
            self.0.retain(|_, wait| now < wait.last + WAITED_AT_MOST);
            if self.0.len() >= WAITS_MOST {
                return now + WAITED_AT_MOST;
            }
        }
        let wait = self.0.entry(name).or_insert(Wait { since: now, last: now });
        if now >= wait.last + REMEMBERED || result.is_some_and(|result| result >= wait.since) {
            wait.since = now;
        }
        wait.last = now;
        wait.since + WAITED_AT_MOST
    }
}

#[cfg(test)]
mod tests {
    use super::super::topic::TopicId;
    use super::*;

    #[test]
    fn who_waits_does_so_for_two_terms_unless_there_is_a_result() {
        let seconds = Duration::from_secs;
        // When it waits, when there was a result last, and until when it waits then.
        let table = [
            (100, None, 130),
            (110, None, 130),
            (140, None, 130),
            // It came back after kubelet's longest back-off.
            (430, None, 130),
            (440, Some(440), 470),
            (450, Some(439), 470),
            // Somebody else, much later.
            (1_050, None, 1_080),
        ];
        let (mut waits, name) = (Waits::default(), LeaseName::Lead(TopicId(1), 0));
        for (now, result, until) in table {
            assert_eq!(waits.until(seconds(now), name, result.map(seconds)), seconds(until), "at {now}");
        }
    }

    #[test]
    fn waits_are_bounded_and_what_is_not_remembered_is_waited_for() {
        let mut waits = Waits::default();
        for number in 0..3 * WAITS_MOST {
            let until = waits.until(Duration::ZERO, LeaseName::Lead(TopicId(number as u128), 0), None);
            assert_eq!(until, WAITED_AT_MOST);
        }
        assert_eq!(waits.0.len(), WAITS_MOST);
    }
}
