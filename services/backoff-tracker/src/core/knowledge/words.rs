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
    /// Of who says that it is in order.
    sound: BTreeMap<NodeName, Heard>,
    /// Of who says that it fails.
    failing: BTreeMap<NodeName, Heard>,
    /// The newest success, and whose.
    success: Option<(Duration, NodeName)>,
    /// The newest success at which all who say that it fails were found to be contradicted, if nobody said so since.
    contradicted: Option<Duration>,
}

impl Words {
    pub(super) fn insert(&mut self, node: NodeName, heard: Heard) {
        let date = heard.date;
        let succeeded = heard.report.finding == Finding::Succeeded;
        if succeeded {
            self.failing.remove(&node);
            self.sound.insert(node.clone(), heard);
        } else {
            self.sound.remove(&node);
            self.failing.insert(node.clone(), heard);
            self.contradicted = None;
        }
        match &self.success {
            _ if succeeded && self.succeeded_at().is_none_or(|newest| newest <= date) => self.success = Some((date, node)),
            Some((_, by)) if *by == node => self.find_success(),
            _ => {}
        }
    }

    pub(super) fn remove(&mut self, node: &NodeName) {
        self.failing.remove(node);
        self.sound.remove(node);
        if self.success.as_ref().is_some_and(|(_, by)| by == node) {
            self.find_success();
        }
    }

    pub(super) fn of(&self, node: &NodeName) -> Option<&Heard> {
        self.failing.get(node).or_else(|| self.sound.get(node))
    }

    /// Those who say that it fails, then the others.
    pub(super) fn all(&self) -> impl Iterator<Item = (&NodeName, &Heard)> {
        self.failing.iter().chain(&self.sound)
    }

    pub(super) fn any(&self) -> Option<&Heard> {
        self.failing.values().chain(self.sound.values()).next()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.failing.is_empty() && self.sound.is_empty()
    }

    pub(super) fn fails(&self) -> bool {
        !self.failing.is_empty()
    }

    pub(super) fn troubles(&self) -> impl Iterator<Item = &Heard> + Clone {
        self.failing.values()
    }

    /// Failures later than that.
    pub(super) fn troubles_since(&self, since: Option<Duration>) -> impl Iterator<Item = &Heard> + Clone {
        self.troubles().filter(move |heard| since.is_none_or(|since| heard.date > since))
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
        self.sound.iter().map(|(node, heard)| (node, heard.date))
    }
}
