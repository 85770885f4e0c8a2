//! Who has said anything, by number: a report is looked up under its reporter several times, and names are long.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use contract::NodeName;

use super::backoff_key::BackoffKeyId;

/// A reporter, for as long as any of its words is kept. The same node has another number in each replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ReporterId(u32);

/// All reporters, each with the dates of its words. Bounded by the words that are kept.
#[derive(Debug, Default)]
pub(super) struct Reporters {
    /// Nothing depends on their order, which is another in each process.
    ids: HashMap<NodeName, ReporterId>,
    known: Vec<Known>,
    /// Whose words are all forgotten: the next new reporter is given its number.
    free: Vec<ReporterId>,
    reports: usize,
}

#[derive(Debug, Default)]
struct Known {
    name: Option<NodeName>,
    reports: BTreeMap<BackoffKeyId, Duration>,
}

impl Reporters {
    /// Who it is, if any of its words is kept.
    pub(super) fn find(&self, name: &NodeName) -> Option<ReporterId> {
        self.ids.get(name).copied()
    }

    /// It has said something of a back-off key, dated so.
    pub(super) fn spoke(&mut self, name: &NodeName, backoff_key: BackoffKeyId, date: Duration) -> ReporterId {
        let id = self.find(name).unwrap_or_else(|| self.admit(name));
        if self.known[id.place()].reports.insert(backoff_key, date).is_none() {
            self.reports += 1;
        }
        id
    }

    /// Its word on a back-off key is kept no more.
    pub(super) fn forget(&mut self, id: ReporterId, backoff_key: BackoffKeyId) {
        let Some(known) = self.known.get_mut(id.place()) else { return };
        self.reports -= usize::from(known.reports.remove(&backoff_key).is_some());
        if known.reports.is_empty()
            && let Some(name) = known.name.take()
        {
            self.ids.remove(&name);
            self.free.push(id);
        }
    }

    /// The back-off keys it speaks of.
    pub(super) fn backoff_keys_of(&self, id: ReporterId) -> impl Iterator<Item = BackoffKeyId> {
        self.known.get(id.place()).into_iter().flat_map(|known| known.reports.keys().copied())
    }

    /// Of how many back-off keys it speaks.
    pub(super) fn count_of(&self, id: ReporterId) -> usize {
        self.known.get(id.place()).map_or(0, |known| known.reports.len())
    }

    /// The back-off key of its oldest word.
    pub(super) fn oldest_of(&self, id: ReporterId) -> Option<BackoffKeyId> {
        let reports = &self.known.get(id.place())?.reports;
        reports.iter().min_by_key(|(_, date)| **date).map(|(backoff_key, _)| *backoff_key)
    }

    /// Who speaks of the most back-off keys.
    pub(super) fn most_talkative(&self) -> Option<ReporterId> {
        self.ids.values().copied().max_by_key(|id| (self.count_of(*id), *id))
    }

    /// The words of all together.
    pub(super) fn reports(&self) -> usize {
        self.reports
    }

    fn admit(&mut self, name: &NodeName) -> ReporterId {
        let id = self.free.pop().unwrap_or_else(|| {
            self.known.push(Known::default());
            ReporterId(u32::try_from(self.known.len() - 1).unwrap_or(u32::MAX))
        });
        self.known[id.place()].name = Some(name.clone());
        self.ids.insert(name.clone(), id);
        id
    }
}

impl ReporterId {
    fn place(self) -> usize {
        self.0 as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_forgotten_leaves_its_number_to_the_next() {
        let name = |name: &str| name.parse::<NodeName>().expect("a name");
        let (one, two, date) = (BackoffKeyId(1), BackoffKeyId(2), Duration::from_secs(1));
        let mut reporters = Reporters::default();
        let first = reporters.spoke(&name("a"), one, date);
        assert_eq!(reporters.spoke(&name("a"), two, Duration::ZERO), first);
        let second = reporters.spoke(&name("b"), one, date);
        assert_ne!(first, second);
        assert_eq!((reporters.reports(), reporters.count_of(first), reporters.oldest_of(first)), (3, 2, Some(two)));
        assert_eq!(reporters.most_talkative(), Some(first));
        reporters.forget(first, one);
        assert_eq!(reporters.find(&name("a")), Some(first), "another word of its is kept");
        reporters.forget(first, two);
        reporters.forget(first, two);
        assert_eq!((reporters.find(&name("a")), reporters.reports(), reporters.count_of(first)), (None, 1, 0));
        assert_eq!(reporters.spoke(&name("c"), one, date), first);
        assert_eq!(reporters.backoff_keys_of(first).collect::<Vec<_>>(), [one]);
    }
}
