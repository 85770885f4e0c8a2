//! The attempts that a span links to.

use contract::TraceContext;

/// More attempts than one pull waits for at the same time.
const REMEMBERED: usize = 16;

/// The newest attempts that a span links to. A pull that waits for days is refused because of thousands of attempts, and because of each of
/// them several times.
#[derive(Debug, Default)]
pub(super) struct Linked(Vec<TraceContext>);

impl Linked {
    /// Returns the attempt if a link to it is to be added: it is exported, and not among the newest.
    pub(super) fn add(&mut self, attempt: Option<TraceContext>) -> Option<TraceContext> {
        let attempt = attempt.filter(|attempt| attempt.sampled && !self.0.contains(attempt))?;
        if self.0.len() == REMEMBERED {
            self.0.remove(0);
        }
        self.0.push(attempt);
        Some(attempt)
    }
}

#[cfg(test)]
mod tests {
    use clock::Random;

    use super::*;

    #[test]
    fn attempt_is_linked_once_and_only_the_newest_are_remembered() {
        let (random, mut linked) = (&mut Random::seeded(1), Linked::default());
        for _ in 0..1_000 {
            let attempt = TraceContext::root(random);
            assert_eq!(linked.add(Some(attempt)), Some(attempt));
            assert_eq!(linked.add(Some(attempt)), None);
        }
        assert_eq!(linked.0.len(), REMEMBERED);
        assert_eq!(linked.add(Some(TraceContext { sampled: false, ..TraceContext::root(random) })), None, "it is not exported");
    }
}
