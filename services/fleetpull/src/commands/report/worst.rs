//! Finds the worst of many names in constant memory.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::AddAssign;

/// Names that are kept after pruning. The table is pruned at twice this number.
const KEPT: usize = 10_000;
/// The longest name that is counted separately, in bytes. References are shorter.
const NAME_MOST: usize = 1_024;

/// The counts for a name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) pulled: u64,
    pub(super) failed: u64,
    pub(super) refused: u64,
    /// The attempts by kubelet's rule.
    pub(super) by_rule: u64,
    /// The failing attempts made in the same time.
    pub(super) made: u64,
}

impl Tally {
    /// The spared attempts. Negative if more were made than kubelet's rule makes.
    pub(super) fn spared(&self) -> i64 {
        let spared = i128::from(self.by_rule) - i128::from(self.made);
        i64::try_from(spared).unwrap_or(if spared < 0 { i64::MIN } else { i64::MAX })
    }

    /// The number by which names are ranked.
    fn badness(&self) -> u64 {
        self.failed.saturating_add(self.refused)
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        let add = |one: &mut u64, more: u64| *one = one.saturating_add(more);
        add(&mut self.pulled, other.pulled);
        add(&mut self.failed, other.failed);
        add(&mut self.refused, other.refused);
        add(&mut self.by_rule, other.by_rule);
        add(&mut self.made, other.made);
    }
}

/// The counts by name.
#[derive(Debug, Default)]
pub(super) struct Worst {
    by_name: BTreeMap<String, Tally>,
    /// The counts of names that are not kept.
    others: Tally,
    /// True if a name was dropped.
    is_pruned: bool,
}

impl Worst {
    pub(super) fn add(&mut self, name: &str, tally: Tally) {
        if name.len() > NAME_MOST {
            self.is_pruned = true;
            self.others += tally;
            return;
        }
        if let Some(known) = self.by_name.get_mut(name) {
            *known += tally;
            return;
        }
        if self.by_name.len() >= 2 * KEPT {
            self.prune();
        }
        self.by_name.insert(name.to_owned(), tally);
    }

    /// The worst names, and the sum of all others if there are any.
    pub(super) fn end(self, top: usize) -> (Vec<(String, Tally)>, Option<Tally>) {
        let Self { by_name, mut others, is_pruned } = self;
        let mut all = sorted(by_name);
        let mut has_others = is_pruned;
        for (_, tally) in all.drain(top.min(all.len())..) {
            has_others = true;
            others += tally;
        }
        (all, has_others.then_some(others))
    }

    fn prune(&mut self) {
        let mut all = sorted(std::mem::take(&mut self.by_name));
        all.drain(KEPT..).for_each(|(_, tally)| self.others += tally);
        self.by_name = all.into_iter().collect();
        self.is_pruned = true;
    }
}

/// Sorts the worst first; equals by the number of pulls, then by name.
fn sorted(by_name: BTreeMap<String, Tally>) -> Vec<(String, Tally)> {
    let mut all: Vec<(String, Tally)> = by_name.into_iter().collect();
    all.sort_by_key(|(_, tally)| Reverse((tally.badness(), tally.pulled)));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(failed: u64) -> Tally {
        Tally { failed, ..Tally::default() }
    }

    #[test]
    fn the_worst_come_first_and_the_others_are_one_row() {
        let mut worst = Worst::default();
        for (name, tally) in [("a", failed(1)), ("b", failed(5)), ("c", Tally { refused: 3, ..failed(0) }), ("a", failed(1))] {
            worst.add(name, tally);
        }
        let (top, others) = worst.end(2);
        assert_eq!(top.iter().map(|(name, tally)| (name.as_str(), tally.badness())).collect::<Vec<_>>(), [("b", 5), ("c", 3)]);
        assert_eq!(others, Some(failed(2)));
        let mut few = Worst::default();
        few.add("a", failed(1));
        assert_eq!(few.end(5), (vec![("a".to_owned(), failed(1))], None));
    }

    #[test]
    fn spared_attempts_have_the_right_sign_whatever_nodes_count() {
        let of = |by_rule, made| Tally { by_rule, made, ..Tally::default() }.spared();
        assert_eq!([of(3, 1), of(1, 3), of(u64::MAX, 0), of(0, u64::MAX)], [2, -2, i64::MAX, i64::MIN]);
    }

    #[test]
    fn a_million_names_take_the_room_of_some_and_the_worst_stays() {
        let mut worst = Worst::default();
        for number in 0..200_000_u64 {
            worst.add(&format!("image-{number}"), failed(1));
            worst.add("bad", failed(1));
            assert!(worst.by_name.len() <= 2 * KEPT);
        }
        worst.add(&"x".repeat(NAME_MOST + 1), failed(7));
        let (top, others) = worst.end(1);
        assert_eq!(top, [("bad".to_owned(), failed(200_000))]);
        assert_eq!(others, Some(failed(200_007)), "nothing is lost");
    }
}
