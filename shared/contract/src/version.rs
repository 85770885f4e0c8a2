//! Versions of messages: which ones agents read, and which one they write so that all others can read it.
//!
//! During a roll-out, which takes days, a fleet has agents of two versions. Each agent reports the versions that it reads; the registrar
//! publishes the one that all have in common, in which shared state is written.

use std::collections::BTreeMap;

use crate::VERSION;

/// The first version, written while the versions of other agents are unknown.
pub const FIRST: u32 = 1;
/// The versions that this program reads and writes, in order.
pub const READS: &[u32] = &[VERSION];
/// The most versions that are accepted from one agent, far more than a program ever reads.
const VERSIONS_MAX: usize = 16;

/// The version to write, among those that this program knows: the newest that is not newer than what all agents read. If there is none, or
/// the others are unknown, the oldest.
#[must_use]
pub fn to_write(known: &[u32], in_common: Option<u32>) -> u32 {
    let readable = known.iter().copied().filter(|version| in_common.is_some_and(|newest| *version <= newest)).max();
    readable.or_else(|| known.iter().copied().min()).unwrap_or(FIRST)
}

/// The versions that an agent reads, sorted and bounded for counting. An agent that reports none reads the first version.
#[must_use]
pub fn normalised(reads: &[u32]) -> Vec<u32> {
    let mut reads: Vec<u32> = reads.iter().copied().take(VERSIONS_MAX).collect();
    reads.sort_unstable();
    reads.dedup();
    if reads.is_empty() { vec![FIRST] } else { reads }
}

/// Counts agents by the versions that they read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Readers {
    agents: u64,
    by_version: BTreeMap<u32, u64>,
}

impl Readers {
    /// Adds an agent that reads these; see [`normalised`].
    pub fn add(&mut self, reads: &[u32]) {
        self.agents += 1;
        for version in reads {
            *self.by_version.entry(*version).or_default() += 1;
        }
    }

    /// Removes an agent that reads these.
    pub fn remove(&mut self, reads: &[u32]) {
        self.agents = self.agents.saturating_sub(1);
        for version in reads {
            if let Some(readers) = self.by_version.get_mut(version) {
                *readers = readers.saturating_sub(1);
            }
        }
        self.by_version.retain(|_, readers| *readers > 0);
    }

    /// The newest version that all agents read, and how many do not read it. If no version is read by all, it is the one that most read, so
    /// that one agent of another version does not divide the others. None: there are no agents.
    #[must_use]
    pub fn in_common(&self) -> Option<(u32, u64)> {
        let most = self.by_version.iter().max_by_key(|(version, readers)| (**readers, **version));
        most.map(|(version, readers)| (*version, self.agents.saturating_sub(*readers)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readers(fleet: &[&[u32]]) -> Readers {
        let mut readers = Readers::default();
        fleet.iter().for_each(|reads| readers.add(&normalised(reads)));
        readers
    }

    #[test]
    fn a_fleet_writes_the_newest_version_that_all_of_it_reads() {
        type Case<'a> = (&'a [&'a [u32]], Option<(u32, u64)>);
        let cases: [Case<'_>; 7] = [
            (&[], None),
            (&[&[1], &[1]], Some((1, 0))),
            (&[&[1], &[1, 2]], Some((1, 0))),
            (&[&[1, 2], &[2, 1]], Some((2, 0))),
            (&[&[1, 2], &[2, 3]], Some((2, 0))),
            (&[&[], &[1, 2]], Some((1, 0))),
            (&[&[1], &[1, 2], &[3]], Some((1, 1))),
        ];
        for (fleet, expected) in cases {
            assert_eq!(readers(fleet).in_common(), expected, "{fleet:?}");
        }
    }

    #[test]
    fn agent_that_leaves_does_not_hold_the_others_back() {
        let mut fleet = readers(&[&[1], &[1, 2], &[1, 2]]);
        fleet.remove(&normalised(&[1]));
        assert_eq!(fleet.in_common(), Some((2, 0)));
        fleet.remove(&[1, 2]);
        fleet.remove(&[1, 2]);
        assert_eq!(fleet, Readers::default());
    }

    #[test]
    fn written_version_is_read_by_all_or_is_the_oldest() {
        for (known, in_common, expected) in [
            (&[1][..], None, 1),
            (&[1], Some(1), 1),
            (&[1], Some(2), 1),
            (&[1, 2], None, 1),
            (&[1, 2], Some(1), 1),
            (&[1, 2], Some(2), 2),
            (&[1, 2], Some(9), 2),
            (&[2, 3], Some(1), 2),
        ] {
            assert_eq!(to_write(known, in_common), expected, "{known:?} {in_common:?}");
        }
    }

    #[test]
    fn an_endless_list_is_cut() {
        assert_eq!(normalised(&(0..1_000_000).rev().collect::<Vec<_>>()).len(), VERSIONS_MAX);
    }
}
