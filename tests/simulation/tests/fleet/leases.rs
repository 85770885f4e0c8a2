//! Who held which lease, as far as each node knew.

use std::collections::BTreeMap;
use std::time::Duration;

/// How long after a question for a lease that nobody answered a node may go ahead without: it waits a quarter of a second for the answer,
/// and then for a permit of the budget, whose messages may be lost as well: then it asks again after five seconds, and has its answer within
/// half a second.
pub const GOES_WITHOUT: Duration = Duration::from_millis(250 + 5_000 + 500);

/// What nodes know of their leases.
#[derive(Clone, Debug, Default)]
pub struct Leases {
    held: Vec<Held>,
    /// When a node asked for one and got no answer.
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
    /// A node was told that it has a lease, for which it asked then.
    pub fn won(&mut self, node: usize, key: &str, asked: Duration, now: Duration, ttl: Duration) {
        self.held.push(Held { node, key: key.to_owned(), from: now, until: asked + ttl });
    }

    /// It gives it back.
    pub fn gave_back(&mut self, node: usize, key: &str, now: Duration) {
        let mine = self.held.iter_mut().filter(|held| held.node == node && held.key == key && held.until > now);
        mine.for_each(|held| held.until = now);
    }

    /// The bucket was lost: what it said holds no more.
    pub fn wiped(&mut self, now: Duration) {
        self.held.iter_mut().for_each(|held| held.until = held.until.min(now));
    }

    /// Nobody answered.
    pub fn unanswered(&mut self, node: usize, asked: Duration) {
        self.unanswered.entry(node).or_default().push(asked);
    }

    /// Whether a node had no answer to its question for a lease in this time.
    pub fn was_unanswered(&self, node: usize, from: Duration, to: Duration) -> bool {
        self.unanswered.get(&node).into_iter().flatten().any(|asked| from <= *asked && *asked <= to)
    }

    /// When a node last asked for a lease before `at` and nobody answered.
    pub fn last_unanswered(&self, node: usize, at: Duration) -> Option<Duration> {
        self.unanswered.get(&node).into_iter().flatten().filter(|asked| **asked <= at).max().copied()
    }

    /// Whether a node may ask for all then: it holds a lease, or nobody answered when it asked for one.
    pub fn may_go(&self, node: usize, at: Duration) -> bool {
        let holds = self.held.iter().any(|held| held.node == node && held.from <= at && at <= held.until);
        let asked = self.unanswered.get(&node).into_iter().flatten();
        holds || asked.clone().any(|asked| *asked <= at && at <= *asked + GOES_WITHOUT)
    }

    /// What a node knew of its leases around a time, in lines.
    pub fn told(&self, node: usize, near: impl Fn(Duration) -> bool) -> Vec<String> {
        let held = self.held.iter().filter(|held| held.node == node && (near(held.from) || near(held.until)));
        let unanswered = self.unanswered.get(&node).into_iter().flatten().filter(|asked| near(**asked));
        let held = held.map(|held| format!("n{node} holds {} from {:?} to {:?}", held.key, held.from, held.until));
        held.chain(unanswered.map(|asked| format!("n{node} asked for a lease at {asked:?}, without an answer"))).collect()
    }

    /// Who was told that it has a lease while another had it, and when.
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
