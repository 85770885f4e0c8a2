//! What this node found out while it had no bus.
//!
//! It is not among the reports of the replica, as nobody else has it. When the bus is back and all that is stored was heard, the node tells
//! in its turn what changes an entry: one that opens it, or confirms it, or closes it. What others know by then it keeps to itself. So of an
//! outage that thousands of nodes met, each by itself, three tell.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::QUIET_AFTER;
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
    bus: BusSeen,
    reports: BTreeMap<TopicId, Kept>,
}

/// How the bus is, by its own word.
#[derive(Clone, Copy, Debug)]
enum BusSeen {
    Gone,
    /// It can be reached; what it has stored was not heard yet.
    Back,
    /// All that it has stored was heard by then.
    CaughtUp(Duration),
}

impl Default for BusSeen {
    fn default() -> Self {
        Self::CaughtUp(Duration::ZERO)
    }
}

#[derive(Clone, Debug)]
struct Kept {
    report: Arc<Report>,
    /// When it was so, on this node's clock.
    date: Duration,
    /// When it is this node's turn to tell it; none: not before all that is stored was heard.
    turn: Option<Duration>,
}

impl Untold {
    /// Whether what is told now would reach nobody.
    pub(super) fn is_cut(&self) -> bool {
        matches!(self.bus, BusSeen::Gone)
    }

    /// Whether an attempt that began then may be one of many that all nodes made, each without knowing of the others.
    pub(super) fn began_without_bus(&self, began: Duration) -> bool {
        match self.bus {
            BusSeen::Gone | BusSeen::Back => true,
            BusSeen::CaughtUp(at) => began < at,
        }
    }

    pub(super) fn bus_is_gone(&mut self) {
        self.bus = BusSeen::Gone;
        self.reports.values_mut().for_each(|kept| kept.turn = None);
    }

    pub(super) fn bus_is_back(&mut self) {
        if self.is_cut() {
            self.bus = BusSeen::Back;
        }
    }

    /// The failure that was kept of a topic, and when it was.
    pub(super) fn failure(&self, topic: TopicId) -> Option<(&Trouble, Duration)> {
        let kept = self.reports.get(&topic)?;
        Some((kept.report.finding.trouble()?, kept.date))
    }

    /// Keeps what was so then in place of what was kept of its topic before.
    fn keep(&mut self, report: Arc<Report>, date: Duration, turn: Option<Duration>) {
        let topic = report.topic.id();
        if !self.reports.contains_key(&topic) && self.reports.len() >= MAX_TOPICS_OF_ONE {
            let oldest = self.reports.iter().min_by_key(|(_, kept)| kept.date).map(|(topic, _)| *topic);
            oldest.map(|oldest| self.reports.remove(&oldest));
        }
        self.reports.insert(topic, Kept { report, date, turn });
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
    /// Keeps what was so then until it is this node's turn to tell it.
    pub(super) fn tell_in_turn(&mut self, now: Duration, report: Arc<Report>, date: Duration) {
        let caught_up = matches!(self.untold.bus, BusSeen::CaughtUp(_));
        let turn = caught_up.then(|| self.turn_to_tell(now, &report));
        self.untold.keep(report, date, turn);
    }

    /// All that is stored was heard: what was kept has its turn.
    pub(super) fn caught_up(&mut self, now: Duration) {
        match self.untold.bus {
            BusSeen::Gone => return,
            BusSeen::Back => self.untold.bus = BusSeen::CaughtUp(now),
            // What was missed since is no reason to wait with more.
            BusSeen::CaughtUp(_) => {}
        }
        let waiting: Vec<Arc<Report>> =
            self.untold.reports.values().filter(|kept| kept.turn.is_none()).map(|kept| Arc::clone(&kept.report)).collect();
        for report in waiting {
            let turn = self.turn_to_tell(now, &report);
            self.untold.reports.entry(report.topic.id()).and_modify(|kept| kept.turn = Some(turn));
        }
    }

    /// Successes first: what one of them has ended is not told.
    fn turn_to_tell(&self, now: Duration, report: &Report) -> Duration {
        let successes = if report.finding == Finding::Succeeded { Duration::ZERO } else { self.fleet.longest_telling() };
        now + successes + self.fleet.telling(&self.node, purpose(report.topic.id(), 0))
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

    fn is_news(&self, now: Duration, Kept { report, date, .. }: &Kept) -> bool {
        if report.finding != Finding::Succeeded {
            let at_fault = self.replica.at_fault(now, &self.node, Some(&report.topic));
            return !at_fault && self.replica.is_changed_by(report, *date, self.eyes(now));
        }
        // Who asks a registry looks no further back for an answer of it.
        let is_lately = |at: Duration| now < at + QUIET_AFTER;
        let is_first = is_lately(*date) && !self.replica.succeeded_at(report.topic.id()).is_some_and(is_lately);
        is_first || self.replica.is_answered_by(report, *date)
    }
}
