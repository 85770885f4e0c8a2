//! What this node found out while it had no bus.
//!
//! It is not among the reports of the replica, as nobody else has it. When the bus is back and all that is stored was heard, the node tells
//! in its turn what changes an entry: one that opens it, or confirms it, or closes it. What others know by then it keeps to itself. So of an
//! outage that thousands of nodes met, each by itself, three tell.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::decide::purpose;
use super::input::Effect;
use super::lease::WishId;
use super::node::Knowledge;
use super::replica::MAX_TOPICS_OF_ONE;
use super::report::{Finding, Report, Trouble};
use super::topic::TopicId;

/// What a node without a bus would have told, the last of each topic.
#[derive(Debug, Default)]
pub(super) struct Untold {
    /// The bus is gone, by its own word.
    cut: bool,
    reports: BTreeMap<TopicId, Kept>,
}

#[derive(Clone, Debug)]
struct Kept {
    report: Arc<Report>,
    /// When it was so, on this node's clock.
    date: Duration,
    /// It is a success, and this node had failed before it.
    recovered: bool,
    /// When it is this node's turn to tell it; none: not before all that is stored was heard.
    turn: Option<Duration>,
}

impl Untold {
    /// Whether what is told now would reach nobody.
    pub(super) fn is_cut(&self) -> bool {
        self.cut
    }

    pub(super) fn set_cut(&mut self, cut: bool) {
        self.cut = cut;
        if cut {
            self.reports.values_mut().for_each(|kept| kept.turn = None);
        }
    }

    /// The failure that was kept of a topic, and when it was.
    pub(super) fn failure(&self, topic: TopicId) -> Option<(&Trouble, Duration)> {
        let kept = self.reports.get(&topic)?;
        Some((kept.report.finding.trouble()?, kept.date))
    }

    /// Keeps what was so then in place of what was kept of its topic before.
    pub(super) fn keep(&mut self, report: Arc<Report>, date: Duration) {
        let topic = report.topic.id();
        let before = self.reports.get(&topic);
        let recovered = before.is_some_and(|before| before.recovered || before.report.finding.trouble().is_some());
        if before.is_none() && self.reports.len() >= MAX_TOPICS_OF_ONE {
            let oldest = self.reports.iter().min_by_key(|(_, kept)| kept.date).map(|(topic, _)| *topic);
            oldest.map(|oldest| self.reports.remove(&oldest));
        }
        self.reports.insert(topic, Kept { report, date, recovered, turn: None });
    }

    /// What was kept of a topic is outdated.
    pub(super) fn forget(&mut self, topic: TopicId) {
        self.reports.remove(&topic);
    }

    /// When the next turn is.
    pub(super) fn next_wake(&self) -> Option<Duration> {
        self.reports.values().filter_map(|kept| kept.turn).min()
    }

    fn take_due(&mut self, now: Duration) -> Vec<Kept> {
        self.reports.extract_if(.., |_, kept| kept.turn.is_some_and(|turn| turn <= now)).map(|(_, kept)| kept).collect()
    }
}

impl Knowledge {
    /// All that is stored was heard: what was kept has its turn.
    pub(super) fn caught_up(&mut self, now: Duration) {
        if self.untold.is_cut() {
            return;
        }
        for (topic, kept) in &mut self.untold.reports {
            kept.turn = kept.turn.or_else(|| Some(now + self.fleet.telling(&self.node, purpose(*topic, 0))));
        }
    }

    /// Tells what is due and changes what the others know; returns the wishes that it touches.
    pub(super) fn tell_untold(&mut self, now: Duration, effects: &mut Vec<Effect>) -> Vec<WishId> {
        let mut touched = Vec::new();
        for kept in self.untold.take_due(now) {
            if self.is_news(now, &kept) {
                touched.extend(self.wishes.touching(kept.report.topic.id()));
                self.tell(now, kept.report, now.saturating_sub(kept.date), effects);
            }
        }
        touched
    }

    fn is_news(&self, now: Duration, Kept { report, date, recovered, .. }: &Kept) -> bool {
        if report.finding != Finding::Succeeded {
            let at_fault = self.replica.at_fault(now, &self.node, Some(&report.topic));
            return !at_fault && self.replica.is_changed_by(report, *date, self.eyes(now));
        }
        let of_many = *recovered || report.topic.about().may_be_overloaded();
        self.replica.is_answered_by(report, *date) || (of_many && self.is_newer_success(&report.topic, *date))
    }
}
