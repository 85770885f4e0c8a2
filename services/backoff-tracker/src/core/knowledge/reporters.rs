//! Reporters by number: a report is looked up by its reporter several times, and names are long.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use contract::NodeName;

use super::backoff_key::BackoffKeyId;

/// The number of a reporter, while any of its reports is kept. The same node has another number in each replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ReporterId(u32);

/// All reporters, each with the dates of its reports. Bounded by the reports that are kept.
#[derive(Debug, Default)]
pub(super) struct Reporters {
    /// Nothing depends on the iteration order, which differs in each process.
    ids: HashMap<NodeName, ReporterId>,
    known: Vec<Known>,
    /// Numbers of forgotten reporters, for the next new ones.
    free: Vec<ReporterId>,
    reports: usize,
}

#[derive(Debug, Default)]
struct Known {
    name: Option<NodeName>,
    reports: BTreeMap<BackoffKeyId, Duration>,
}

impl Reporters {
    /// The number of a node, if any of its reports is kept.
    pub(super) fn find(&self, name: &NodeName) -> Option<ReporterId> {
        self.ids.get(name).copied()
    }

    /// A reporter has a report of this date on a back-off key.
    pub(super) fn note_report(&mut self, name: &NodeName, backoff_key: BackoffKeyId, date: Duration) -> ReporterId {
        let id = self.find(name).unwrap_or_else(|| self.add(name));
        if self.known[id.place()].reports.insert(backoff_key, date).is_none() {
            self.reports += 1;
        }
        id
    }

    /// A reporter's report on a back-off key is not kept any more.
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

    pub(super) fn backoff_keys_of(&self, id: ReporterId) -> impl Iterator<Item = BackoffKeyId> {
        self.known.get(id.place()).into_iter().flat_map(|known| known.reports.keys().copied())
    }

    /// How many back-off keys a reporter has reports on.
    pub(super) fn count_of(&self, id: ReporterId) -> usize {
        self.known.get(id.place()).map_or(0, |known| known.reports.len())
    }

    /// The back-off key of a reporter's oldest report.
    pub(super) fn oldest_of(&self, id: ReporterId) -> Option<BackoffKeyId> {
        let reports = &self.known.get(id.place())?.reports;
        reports.iter().min_by_key(|(_, date)| **date).map(|(backoff_key, _)| *backoff_key)
    }

    /// The reporter with the most reports; of several, the last by name, on every node.
    pub(super) fn with_most_reports(&self) -> Option<ReporterId> {
        self.ids.iter().max_by_key(|(name, id)| (self.count_of(**id), *name)).map(|(_, id)| *id)
    }

    /// How many reports all reporters have.
    pub(super) fn reports(&self) -> usize {
        self.reports
    }

    fn add(&mut self, name: &NodeName) -> ReporterId {
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
    fn the_number_of_a_forgotten_reporter_goes_to_the_next_new_one() {
        let name = |name: &str| name.parse::<NodeName>().expect("a name");
        let (one, two, date) = (BackoffKeyId(1), BackoffKeyId(2), Duration::from_secs(1));
        let mut reporters = Reporters::default();
        let first = reporters.note_report(&name("a"), one, date);
        assert_eq!(reporters.note_report(&name("a"), two, Duration::ZERO), first);
        let second = reporters.note_report(&name("b"), one, date);
        assert_ne!(first, second);
        assert_eq!((reporters.reports(), reporters.count_of(first), reporters.oldest_of(first)), (3, 2, Some(two)));
        assert_eq!(reporters.with_most_reports(), Some(first));
        reporters.forget(first, one);
        assert_eq!(reporters.find(&name("a")), Some(first), "another of its reports is kept");
        reporters.forget(first, two);
        reporters.forget(first, two);
        assert_eq!((reporters.find(&name("a")), reporters.reports(), reporters.count_of(first)), (None, 1, 0));
        assert_eq!(reporters.note_report(&name("c"), one, date), first);
        assert_eq!(reporters.backoff_keys_of(first).collect::<Vec<_>>(), [one]);
    }
}
