//! Leases that stay in a bucket although no process renews them.

use std::collections::BTreeMap;
use std::time::Duration;

/// The most remembered keys: those that one process could not take.
const KEYS_MAX: usize = 1_024;

/// Leases of others that this process could not take. One that does not change for two of its terms has no holder: a live holder renews or
/// releases it, and a key with a TTL of one term has expired. So it was written without a TTL.
#[derive(Debug)]
pub(crate) struct Outlived {
    term: Duration,
    seen: BTreeMap<String, Seen>,
}

#[derive(Clone, Debug)]
struct Seen {
    revision: u64,
    value: Vec<u8>,
    since: Duration,
    last: Duration,
}

impl Outlived {
    /// Leases with this term.
    pub(crate) fn of_term(term: Duration) -> Self {
        Self { term, seen: BTreeMap::new() }
    }

    /// Whether this key has been looked at for two terms, at least once per two terms, and was the same each time. An earlier look does not
    /// count, because revisions start over in a bucket that was made again.
    pub(crate) fn stays(&mut self, now: Duration, key: &str, revision: u64, value: &[u8]) -> bool {
        if self.seen.len() >= KEYS_MAX && !self.seen.contains_key(key) {
            self.seen.clear();
        }
        let fresh = || Seen { revision, value: value.to_vec(), since: now, last: now };
        let known = self.seen.entry(key.to_owned()).or_insert_with(fresh);
        let same = known.revision == revision && known.value == value && now <= known.last + 2 * self.term;
        if !same {
            *known = fresh();
        }
        known.last = now;
        now >= known.since + 2 * self.term
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unchanged_key_outlives_its_term_after_two_terms() {
        // Seconds, revision, value, and whether it has stayed for two terms of 10 s.
        let table = [
            (0, 5, "a", false),
            (10, 5, "a", false),
            (20, 5, "a", true),
            // It was renewed.
            (21, 6, "a", false),
            (40, 6, "a", false),
            (41, 6, "a", true),
            // The same revision in a bucket that was made again.
            (42, 6, "b", false),
            (63, 6, "b", false),
            (83, 6, "b", true),
        ];
        let mut outlived = Outlived::of_term(Duration::from_secs(10));
        for (now, revision, value, stays) in table {
            assert_eq!(outlived.stays(Duration::from_secs(now), "lead", revision, value.as_bytes()), stays, "at {now} s");
        }
    }

    #[test]
    fn number_of_remembered_keys_is_bounded() {
        let mut outlived = Outlived::of_term(Duration::from_secs(10));
        for number in 0..3 * KEYS_MAX {
            outlived.stays(Duration::ZERO, &number.to_string(), 1, b"");
        }
        assert!(outlived.seen.len() <= KEYS_MAX);
    }
}
