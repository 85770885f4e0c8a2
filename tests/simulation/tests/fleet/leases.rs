//! The leases that each node held, as far as it knew.

use std::collections::BTreeMap;
use std::time::Duration;

/// How long after an unanswered request for a lease a node may go ahead without the lease: it waits 250 ms for the answer, and then for a
/// permit of the budget, whose messages may be lost as well: it asks again after 5 s and has the answer within 500 ms.
pub const WITHOUT_LEASE_WITHIN: Duration = Duration::from_millis(250 + 5_000 + 500);

/// The leases of all nodes.
#[derive(Clone, Debug, Default)]
pub struct Leases {
    held: Vec<Held>,
    /// When each node asked for a lease without getting an answer.
    unanswered: BTreeMap<usize, Vec<Duration>>,
}

#[derive(Clone, Debug)]
struct Held {
    node: usize,
    key: String,
    from: Duration,
    until: Duration,
}

impl Leases {
    /// Records that a node has learned that it has the lease that it requested at `asked`.
    pub fn won(&mut self, node: usize, key: &str, asked: Duration, now: Duration, ttl: Duration) {
        self.held.push(Held { node, key: key.to_owned(), from: now, until: asked + ttl });
    }

    /// Records that a node releases a lease.
    pub fn released(&mut self, node: usize, key: &str, now: Duration) {
        let mine = self.held.iter_mut().filter(|held| held.node == node && held.key == key && held.until > now);
        mine.for_each(|held| held.until = now);
    }

    /// Records that the bucket was lost: its leases end.
    pub fn wiped(&mut self, now: Duration) {
        self.held.iter_mut().for_each(|held| held.until = held.until.min(now));
    }

    /// Records that a request for a lease got no answer.
    pub fn unanswered(&mut self, node: usize, asked: Duration) {
        self.unanswered.entry(node).or_default().push(asked);
    }

    /// Whether a node made a request for a lease in this time that got no answer.
    pub fn was_unanswered(&self, node: usize, from: Duration, to: Duration) -> bool {
        self.unanswered.get(&node).into_iter().flatten().any(|asked| from <= *asked && *asked <= to)
    }

    /// When a node last made, up to `at`, a request for a lease that got no answer.
    pub fn last_unanswered(&self, node: usize, at: Duration) -> Option<Duration> {
        self.unanswered.get(&node).into_iter().flatten().filter(|asked| **asked <= at).max().copied()
    }

    /// Whether a node may lead at this time: it holds a lease, or its request for one got no answer.
    pub fn may_attempt(&self, node: usize, at: Duration) -> bool {
        let holds = self.held.iter().any(|held| held.node == node && held.from <= at && at <= held.until);
        let asked = self.unanswered.get(&node).into_iter().flatten();
        holds || asked.clone().any(|asked| *asked <= at && at <= *asked + WITHOUT_LEASE_WITHIN)
    }

    /// The leases of a node around a time, as lines of text.
    pub fn describe(&self, node: usize, near: impl Fn(Duration) -> bool) -> Vec<String> {
        let held = self.held.iter().filter(|held| held.node == node && (near(held.from) || near(held.until)));
        let unanswered = self.unanswered.get(&node).into_iter().flatten().filter(|asked| near(**asked));
        let held = held.map(|held| format!("n{node} holds {} from {:?} to {:?}", held.key, held.from, held.until));
        held.chain(unanswered.map(|asked| format!("n{node} asked for a lease at {asked:?}, without an answer"))).collect()
    }

    /// The nodes that got a lease while another node held it, with the time.
    pub fn held_twice(&self) -> Vec<(usize, Duration)> {
        let mut by_key: BTreeMap<&str, Vec<&Held>> = BTreeMap::new();
        for held in &self.held {
            by_key.entry(&held.key).or_default().push(held);
        }
        let overlap = |one: &Held, other: &Held| one.node != other.node && one.from < other.until && other.from < one.until;
        let second = |(index, one): &(usize, &&Held), held: &[&Held]| held[..*index].iter().any(|other| overlap(one, other));
        let twice = by_key.values().flat_map(|held| held.iter().enumerate().filter(move |one| second(one, held)));
        twice.map(|(_, one)| (one.node, one.from)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(15);

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// What is found if node 1 takes a lease at 10 s, then `ends` is done, and then node 2 takes this lease at `at` seconds.
    fn found(at: u64, key: &str, ends: impl FnOnce(&mut Leases)) -> Vec<(usize, Duration)> {
        let mut leases = Leases::default();
        leases.won(1, "a", seconds(10), seconds(11), TTL);
        ends(&mut leases);
        leases.won(2, key, seconds(at), seconds(at), TTL);
        leases.held_twice()
    }

    #[test]
    fn lease_is_held_twice_until_it_ends_is_released_or_is_lost() {
        assert_eq!(found(24, "a", |_| ()), [(2, seconds(24))]);
        assert_eq!(found(25, "a", |_| ()), [], "its term counts from when it was requested");
        assert_eq!(found(24, "b", |_| ()), [], "another lease");
        assert_eq!(found(24, "a", |leases| leases.released(1, "a", seconds(23))), []);
        assert_eq!(found(24, "a", |leases| leases.released(3, "a", seconds(23))), [(2, seconds(24))], "another node released it");
        assert_eq!(found(24, "a", |leases| leases.wiped(seconds(23))), []);
    }
}
