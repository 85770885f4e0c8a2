//! What the nodes last said of one topic.

use std::collections::BTreeMap;
use std::time::Duration;

use contract::NodeName;

use super::entry::Heard;
use super::report::Finding;

/// Every node's last word on a topic. Of most topics thousands say that it is in order, and few that it fails: whatever is asked of it
/// often costs by these few.
#[derive(Debug, Default)]
pub(super) struct Words {
    by: BTreeMap<NodeName, Heard>,
    /// Who says that it fails, and when it last did.
    failing: BTreeMap<NodeName, Duration>,
    /// The newest success, and whose.
    success: Option<(Duration, NodeName)>,
    /// The newest success at which all who say that it fails were found to be contradicted, if nobody said so since.
    contradicted: Option<Duration>,
}

impl Words {
    pub(super) fn insert(&mut self, node: NodeName, heard: Heard) {
        let date = heard.date;
        if heard.report.finding.trouble().is_some() {
            self.failing.insert(node.clone(), date);
            self.contradicted = None;
        } else {
            self.failing.remove(&node);
        }
        let succeeded = heard.report.finding == Finding::Succeeded;
        self.by.insert(node.clone(), heard);
        match &self.success {
            _ if succeeded && self.succeeded_at().is_none_or(|newest| newest <= date) => self.success = Some((date, node)),
            Some((_, by)) if *by == node => self.find_success(),
            _ => {}
        }
    }

    pub(super) fn remove(&mut self, node: &NodeName) {
        self.failing.remove(node);
        self.by.remove(node);
        if self.success.as_ref().is_some_and(|(_, by)| by == node) {
            self.find_success();
        }
    }

    pub(super) fn of(&self, node: &NodeName) -> Option<&Heard> {
        self.by.get(node)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (&NodeName, &Heard)> {
        self.by.iter()
    }

    pub(super) fn any(&self) -> Option<&Heard> {
        self.by.values().next()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by.is_empty()
    }

    pub(super) fn fails(&self) -> bool {
        !self.failing.is_empty()
    }

    pub(super) fn troubles(&self) -> impl Iterator<Item = &Heard> + Clone {
        self.troubles_since(None)
    }

    /// Failures later than that.
    pub(super) fn troubles_since(&self, since: Option<Duration>) -> impl Iterator<Item = &Heard> + Clone {
        let later = self.failing.iter().filter(move |(_, date)| since.is_none_or(|since| **date > since));
        later.filter_map(|(node, _)| self.by.get(node))
    }

    /// The newest success.
    pub(super) fn succeeded_at(&self) -> Option<Duration> {
        self.success.as_ref().map(|(date, _)| *date)
    }

    /// The newest success of those that count.
    pub(super) fn succeeded_for(&self, counts: impl Fn(&NodeName) -> bool) -> Option<Duration> {
        let (date, by) = self.success.as_ref()?;
        if counts(by) {
            return Some(*date);
        }
        self.successes().filter(|(node, _)| counts(node)).map(|(_, date)| date).max()
    }

    /// Whether it is to be found who is contradicted by a success: where all were, it is done anew once in `apart`.
    pub(super) fn contradicts(&mut self, success: Duration, apart: Duration) -> bool {
        if self.failing.is_empty() || self.contradicted.is_some_and(|before| success < before + apart) {
            return false;
        }
        let all = self.troubles().all(|heard| heard.failing_since < success);
        self.contradicted = all.then_some(success);
        true
    }

    fn find_success(&mut self) {
        self.success = self.successes().map(|(node, date)| (date, node.clone())).max();
    }

    fn successes(&self) -> impl Iterator<Item = (&NodeName, Duration)> {
        self.by.iter().filter(|(_, heard)| heard.report.finding == Finding::Succeeded).map(|(node, heard)| (node, heard.date))
    }
}
